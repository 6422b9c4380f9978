"""Trees of pod groups (KEP-6012): which domains and nodes hold the whole of them.

Must not know of plugins, queues or writes: what plugins say comes in as numbers per node.
"""
