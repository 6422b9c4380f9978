"""The scheduling cycle: chooses a node for one pod, or says why there is none.

Must not know the queue, writes or time; only pod_attempts, which applies results, knows them.
Exports SchedulingCycle (scheduling_cycle), the uncached oracle (reference), PodAttempts.
"""
