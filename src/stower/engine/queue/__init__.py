"""The scheduling queue: every pod and pod group tree that waits for a node.

Must not know nodes, writes, or plugins beyond their PreEnqueue, QueueSort and hint methods.
Exports SchedulingQueue (scheduling_queue), QueuedEntity, QueuedPod, QueuedTree and Place
(entities).
"""
