"""The scheduling cycle: chooses a node for one pod, or diagnoses why there is none.

Must not know the queue, writes or time; but for pod_attempts, which applies results.
Exports SchedulingCycle (scheduling_cycle), PodAttempts (pod_attempts), FailureHandler, and the
uncached oracle of all caches (reference).
"""
