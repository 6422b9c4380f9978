"""What a scheduler knows of itself, as samples for metrics (metrics/catalogue.py)."""

from collections import Counter
from collections.abc import Iterator

from stower.engine.queue.entities import Place
from stower.engine.queue.scheduling_queue import PLACES
from stower.live.scheduler import Scheduler
from stower.metrics.catalogue import Sample

QUEUES = {place: place.name.lower() for place in PLACES} | {Place.IN_FLIGHT: "inflight"}


def samples_of(scheduler: Scheduler) -> Iterator[Sample]:
    """All of them, counted now."""
    engine, dispatch = scheduler.engine, scheduler.dispatch
    counts = engine.queue.counts() if engine is not None else {}
    for place, name in QUEUES.items():
        yield "scheduler_pending_pods", (name,), counts.get(place, 0)
    yield "scheduler_cache_size", ("nodes",), len(scheduler.nodes.objects)
    yield "scheduler_cache_size", ("pods",), len(scheduler.pods.objects)
    if engine is not None:
        assumed = sum(entry.assumed for entry in engine.state.pods.values())
        yield "scheduler_cache_size", ("assumed_pods",), assumed
        for (queue, event), count in sorted(engine.queue.incoming.items()):
            yield "scheduler_queue_incoming_pods", (queue, event), count
        refusing = Counter(
            (plugin, queued.profile.scheduler_name)
            for queued in engine.queue.pods()
            if queued.place is Place.UNSCHEDULABLE
            for plugin in sorted(queued.refused_by)
        )
        for labels, count in sorted(refusing.items()):
            yield "scheduler_unschedulable_pods", labels, count
    for call, count in sorted(dispatch.pending().items()):
        yield "scheduler_pending_async_api_calls", (call,), count
    if scheduler.lease_name:
        yield "leader_election_master_status", (scheduler.lease_name,), float(scheduler.leads)
    yield "stower_writes_in_flight_max", (), dispatch.window.size
    yield "stower_writes_sent", (), dispatch.sent
    yield "stower_writes_retried", (), dispatch.retried
    yield "stower_events_dropped", (), dispatch.dropped_events
    reflectors = (scheduler.nodes, scheduler.pods, *scheduler.related)
    yield "stower_watch_cuts", (), sum(r.cuts for r in reflectors)
    yield "stower_relists", (), sum(r.relists for r in reflectors)
    yield "stower_inbox_events", (), scheduler.inbox_size
    stalled_s, scheduler.stalled_s = scheduler.stalled_s, 0.0
    yield "stower_loop_stall_seconds_max", (), stalled_s
