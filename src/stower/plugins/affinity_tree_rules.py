"""Rules of InterPodAffinity between the pods of a pod group tree: required affinity and
anti-affinity, by topology key and condition.

Source: kube-scheduler plugins/interpodaffinity/filtering.go.
"""

from collections.abc import Iterator, Sequence

import msgspec

from stower.framework.tree_rules import ApartRule, NearRule
from stower.model.kinds.pod import PodAffinity, PodAffinityTerm
from stower.plugins.affinity_dry_run import condition
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from stower.state.tallies import Condition, meets


class _Query:
    """Topology keys and conditions, and the uids of the pods that have these terms."""

    def __init__(self, keys: tuple[str, ...], conditions: tuple[Condition, ...]) -> None:
        self.keys = keys
        self.conditions = conditions
        self.uids: set[str] = set()


class _Queries:
    """The distinct terms of pods."""

    def __init__(self, state: ClusterState) -> None:
        self._selectors = state.pod_selectors
        self._known: dict[bytes, _Query] = {}

    def add(self, entry: PodEntry, terms: Sequence[PodAffinityTerm]) -> None:
        """Adds what one pod requires of all these terms together."""
        keys = tuple(term.topology_key for term in terms)
        conditions = tuple(condition(term, entry.pod, self._selectors) for term in terms)
        plain = [(sorted(names) if names is not None else None, s) for names, s in conditions]
        key = msgspec.msgpack.encode((keys, plain))
        self._known.setdefault(key, _Query(keys, conditions)).uids.add(entry.uid)

    def with_matching(self, pods: Sequence[PodEntry]) -> Iterator[tuple[_Query, frozenset[str]]]:
        """Yields each that some of these pods match, with the uids of those."""
        for query in self._known.values():
            matched = frozenset(e.uid for e in pods if meets(e.pod, query.conditions))
            if matched:
                yield query, matched


def apart_rules(pods: Sequence[PodEntry], state: ClusterState) -> Iterator[ApartRule]:
    """Yields the rules of anti-affinity terms that pods of the tree match."""
    queries = _Queries(state)
    for entry in pods:
        affinity = entry.pod.spec.affinity
        for term in _required(affinity.pod_anti_affinity) if affinity is not None else ():
            queries.add(entry, (term,))
    for query, matched in queries.with_matching(pods):
        (key,) = query.keys
        is_unique = state.labels.is_unique_per_node(key, state.node_count)
        if not is_unique or matched != query.uids:  # else it is an amount of the node
            codes = state.labels.codes(key, state.all_rows)
            what = f"anti-affinity over {key}"
            yield ApartRule(codes, frozenset(query.uids), matched, what)


def near_rules(pods: Sequence[PodEntry], state: ClusterState) -> Iterator[NearRule]:
    """Yields the rules of required affinity that pods of the tree match. Where none does, only
    placed pods matter, which the filter knows."""
    queries = _Queries(state)
    for entry in pods:
        affinity = entry.pod.spec.affinity
        terms = _required(affinity.pod_affinity) if affinity is not None else ()
        if terms:
            queries.add(entry, terms)
    for query, matched in queries.with_matching(pods):
        tally = state.tally(*query.conditions)
        is_open = {key: tally.domain_counts(key) > 0 for key in query.keys}
        may_begin = not any(found.any() for found in is_open.values())
        for key, found in is_open.items():
            codes = state.labels.codes(key, state.all_rows)
            what = f"affinity over {key}"
            yield NearRule(codes, frozenset(query.uids), matched, found, may_begin, what)


def _required(part: PodAffinity | None) -> Sequence[PodAffinityTerm]:
    return (part.required if part is not None else None) or ()
