"""The simulator: runs the engine on objects in memory, on a virtual clock."""
