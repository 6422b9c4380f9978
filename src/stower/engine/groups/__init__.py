"""Pod group trees: queued, searched and placed as a whole (KEP-6012).

Must not know HTTP, files or the search itself, which is in stower.groups.
Exports TreeQueue (tree_queue), TreeAttempts (tree_attempts), GroupStatus (group_status).
"""
