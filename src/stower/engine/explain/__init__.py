"""Answers questions about a pod on the state as it is; changes nothing.

Must not know the outbox: nothing here writes.
Exports explain (explanation), judged (agreement), would_go and explained (probe).
"""
