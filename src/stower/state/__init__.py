"""The cluster state: nodes as rows of arrays, pods, and the other objects that scheduling reads.

Only events, and assumptions about decisions that the API does not show yet, change the state. Must
not know plugins, queues or the engine.
"""
