"""Preemption: which pods leave so that another pod fits, and how they are evicted.

Must not know how pods are queued or bound, except which pods wait for which victims. Exports
Evaluator and Search (evaluator), PodEviction (pod_eviction), Displacement and displaceable_pods
(displacement).
"""
