"""Preemption: chooses the pods that are evicted so that another pod fits, and evicts them.

Must not know how pods are queued, scheduled or bound. Exceptions: pod_eviction withdraws victims
from the binding cycle, and has the queue hold preemptors until their victims are deleted;
displacement calls the scheduling cycle, and deletes pods; evaluator uses the filters of
cycle.reference.

Exports Evaluator and Search (evaluator), PodEviction (pod_eviction), Displacement and
displaceable_pods (displacement).
"""
