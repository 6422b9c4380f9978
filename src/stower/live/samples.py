"""Collects the metric samples of a scheduler (metrics/catalogue.py)."""

from collections import Counter
from collections.abc import Iterator

from stower.devices.overcommits import Overcommits
from stower.engine.queue.entities import Place
from stower.engine.queue.scheduling_queue import PLACES
from stower.live.scheduler import Scheduler
from stower.metrics.catalogue import Sample

QUEUES = {place: place.name.lower() for place in PLACES} | {Place.IN_FLIGHT: "inflight"}


def collect_samples(scheduler: Scheduler) -> Iterator[Sample]:
    """Yields all samples as of now. Resets the scheduler's `max_stall_s`."""
    engine, dispatcher = scheduler.engine, scheduler.dispatcher
    counts = engine.queue.counts() if engine is not None else {}
    for place, name in QUEUES.items():
        yield "scheduler_pending_pods", (name,), counts.get(place, 0)
    yield "scheduler_cache_size", ("nodes",), len(scheduler.reflectors.nodes.objects)
    yield "scheduler_cache_size", ("pods",), len(scheduler.reflectors.pods.objects)
    if engine is not None:
        assumed = sum(entry.is_assumed for entry in engine.state.pods.values())
        yield "scheduler_cache_size", ("assumed_pods",), assumed
        for (queue, event), count in sorted(engine.queue.incoming.items()):
            yield "scheduler_queue_incoming_pods", (queue, event), count
        for part, count in sorted(engine.errors.counts.items()):
            yield "stower_internal_errors", (part,), count
        yield "stower_objects_ignored", (), engine.left_out_count
        yield "stower_claims_given_back", (), engine.binding.overcommitted.given_back_count
        overcommits = engine.state.devices.extension(Overcommits)
        yield "stower_overcommitted_devices", (), overcommits.count()
        rejections = Counter(
            (plugin, queued.profile.scheduler_name)
            for queued in engine.queue.pods()
            if queued.place is Place.UNSCHEDULABLE
            for plugin in sorted(queued.refused_by)
        )
        for labels, count in sorted(rejections.items()):
            yield "scheduler_unschedulable_pods", labels, count
    for call, count in sorted(dispatcher.pending_by_call().items()):
        yield "scheduler_pending_async_api_calls", (call,), count
    if scheduler.lease_name:
        yield "leader_election_master_status", (scheduler.lease_name,), float(scheduler.is_leader)
    yield "stower_writes_in_flight_max", (), dispatcher.window.size
    yield "stower_writes_sent", (), dispatcher.sent_count
    yield "stower_writes_retried", (), dispatcher.retry_count
    yield "stower_events_dropped", (), dispatcher.dropped_event_count
    yield "stower_watch_cuts", (), sum(r.interruption_count for r in scheduler.reflectors)
    yield "stower_relists", (), sum(r.relist_count for r in scheduler.reflectors)
    yield "stower_inbox_events", (), scheduler.inbox_size
    max_stall_s, scheduler.max_stall_s = scheduler.max_stall_s, 0.0
    yield "stower_loop_stall_seconds_max", (), max_stall_s
