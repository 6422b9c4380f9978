"""Named limits of the engine, and why each is what it is. Times in nanoseconds."""

import msgspec

SECOND_NS = 1_000_000_000


class Limits(msgspec.Struct, frozen=True):
    """Backoff and flush as kube-scheduler has them; the rest keeps a step short."""

    # KubeSchedulerConfiguration podInitialBackoffSeconds, podMaxBackoffSeconds.
    backoff_initial_ns: int = 1 * SECOND_NS
    backoff_max_ns: int = 10 * SECOND_NS
    # kube-scheduler --pod-max-in-unschedulable-pods-duration.
    unschedulable_max_ns: int = 300 * SECOND_NS
    # A step of so many cycles takes some 50 ms; the shell sends a Tick for the rest.
    cycles_per_step_max: int = 1_000
    # What pods with new terms may cost in one step, see state.tallies.VISITS_MAX: most of a second.
    visits_per_step_max: int = 4_000_000
    # Decisions kept for a shell that does not drain them.
    decisions_max: int = 100_000
    # events.k8s.io/v1: note.
    event_note_bytes_max: int = 1_024
    # Deleted pods remembered; deliveries that are late by more than so many deletions are not real.
    gone_pods_max: int = 4_096
    # After so many binds of which nobody knows what became of them, the pod says so.
    bind_tries_silent: int = 2
    # Longer than a watch takes to be taken up again and to tell of what has happened meanwhile.
    doubt_ns: int = 60 * SECOND_NS
