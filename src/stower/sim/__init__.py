"""The simulator: the engine itself, run over objects in memory, on a clock that only it moves."""
