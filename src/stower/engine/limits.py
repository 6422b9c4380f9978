"""Named limits of the engine, each with its reason. Times in nanoseconds."""

import msgspec

SECOND_NS = 1_000_000_000


class Limits(msgspec.Struct, frozen=True):
    """Backoff and flush times are those of kube-scheduler; the rest keeps a step short."""

    # KubeSchedulerConfiguration podInitialBackoffSeconds, podMaxBackoffSeconds.
    backoff_initial_ns: int = 1 * SECOND_NS
    backoff_max_ns: int = 10 * SECOND_NS
    # kube-scheduler --pod-max-in-unschedulable-pods-duration.
    unschedulable_max_ns: int = 300 * SECOND_NS
    # This many cycles take some 50 ms; the shell sends a Tick for the rest.
    cycles_per_step_max: int = 1_000
    # Pods counted for new selectors in one step (state.tallies.VISITS_MAX): most of a second.
    visits_per_step_max: int = 4_000_000
    # Decisions kept for a shell that does not drain them.
    decisions_max: int = 100_000
    # events.k8s.io/v1: note.
    event_note_bytes_max: int = 1_024
    # Deleted pods remembered; no delivery is late by more deletions than that.
    gone_pods_max: int = 4_096
    # Bind writes with unknown outcome before the pod's condition reports it.
    bind_tries_silent: int = 2
    # Longer than a watch takes to resume and to deliver what it missed.
    assumed_pod_ttl_ns: int = 60 * SECOND_NS
    # The longest wait of an entity that provokes internal errors: what each error costs, a rebuilt
    # state at most, has to be little beside it.
    offender_wait_max_ns: int = 600 * SECOND_NS
    # States rebuilt in one step; with more errors, the next step goes on.
    rebuilds_per_step_max: int = 3
    # Pods and nodes of states that are built for the errors of one namespace, in a second of the
    # engine's time: a twentieth of what one CPU builds (80,000 a second with 1,000 nodes).
    rebuilt_objects_per_second: int = 4_000
    # The longest delay for one state, also of the largest clusters.
    rebuild_cost_max_ns: int = 60 * SECOND_NS
