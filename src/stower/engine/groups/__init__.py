"""Pod group trees in the engine: queued, searched and placed as a whole (KEP-6012).

Must not know the search itself, which is in stower.groups.
Exports TreeAttempts (tree_attempts), TreeQueue (tree_queue), TreeCycle (tree_cycle) and GroupStatus
(group_status).
"""
