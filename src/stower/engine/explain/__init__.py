"""Answers questions about pods on the current state; changes nothing.

Must not know the outbox: nothing here writes.
Exports explain (explanation), judge (agreement), explain_pod and choose_node_for (probe).
"""
