"""The scheduling cycle: chooses a node for one pod, or diagnoses why there is none.

Must not know the queue, writes or time. Exceptions: pod_attempts and failure_handler apply results,
and use the queue and the state's time for it; scheduling_cycle collects the writes that PostFilter
plugins return.

Exports SchedulingCycle (scheduling_cycle), PodAttempts (pod_attempts), FailureHandler
(failure_handler), and the cycle without caches (reference), which tests compare all caches with.
"""
