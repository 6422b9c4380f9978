"""Preemption: which pods leave so that another pod fits, and how they are removed.

Must not know the binding cycle or the order of the queue.
Exports Evaluator and Search (evaluator), PodEviction (pod_eviction), Displacement (displacement).
"""
