"""The engine: one entry (step), the cycle, the queue, decisions. It is given its plugins."""
