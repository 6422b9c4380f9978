"""InterPodAffinity: near some pods, away from others, as both the pod and those there want it.

Source: kube-scheduler plugins/interpodaffinity; KEP-2249 (namespaceSelector). matchLabelKeys and
mismatchLabelKeys (KEP-3633) are merged into the selector by the API server.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import and_
from typing import Any, Final

import msgspec
import numpy as np

from stower.framework.args import Args, convert_args, invalid
from stower.framework.cluster_events import Change, Happened
from stower.framework.dry_run import DryRun
from stower.framework.fixes import NODE, Fix, names, said, with_labels, with_spec
from stower.framework.plugin import MAX_NODE_SCORE, Features, Plugin, Scope
from stower.framework.reasons import Rejection
from stower.model.kinds import Pod
from stower.model.kinds.pod import PodAffinity, PodAffinityTerm
from stower.plugins.bounds import TERMS_MAX, check_count
from stower.state.arrays import Bools, Ints
from stower.state.carried_terms import CarriedTerm, Role, namespaces_of
from stower.state.cluster import ClusterState, PodEntry
from stower.state.matcher import Matcher
from stower.state.pod_selectors import Related
from stower.state.row_counts import RowCounts
from stower.state.shapes import Shape
from stower.state.tallies import Condition, meets

NOT_NEAR: Final = 1
NOT_AWAY: Final = 2
NOT_WELCOME: Final = 3
WEIGHT_MAX: Final = 100
TERMS: Final = "terms about other pods"


class InterPodAffinityArgs(Args, frozen=True, rename="camel"):
    """Arguments of the plugin in a KubeSchedulerConfiguration."""

    hard_pod_affinity_weight: int = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class InterPodAffinity(Plugin):
    """Refuse nodes whose domains have the wrong pods, or not the right ones; score by the rest.

    What pods are where is in tallies, and what the pods there want in state.carried; both know
    their sums per domain, so that each term costs one look-up per node.
    """

    name = "InterPodAffinity"
    scope = Scope.PODS
    wakes_on = (
        Change.NODE_ADDED | Change.NODE_LABELS | Change.PLACED_POD_ADDED
        | Change.PLACED_POD_DELETED | Change.PLACED_POD_LABELS | Change.OWN_LABELS
    )  # fmt: skip

    def __init__(self, hard_weight: int = 1, ignores_preferred: bool = False) -> None:
        """`hard_weight` of what pods there require; `ignores_preferred`: what they prefer does not
        count for a pod that prefers nothing itself."""
        self.hard_weight = hard_weight
        self.ignores_preferred = ignores_preferred

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "InterPodAffinity":
        """InterPodAffinityArgs: hardPodAffinityWeight, ignorePreferredTermsOfExistingPods."""
        read = convert_args(args, InterPodAffinityArgs, path)
        if not 0 <= read.hard_pod_affinity_weight <= WEIGHT_MAX:
            at, weight = f"{path}.hardPodAffinityWeight", read.hard_pod_affinity_weight
            raise invalid(at, weight, f"not in valid range [0, {WEIGHT_MAX}]")
        return cls(read.hard_pod_affinity_weight, read.ignore_preferred_terms_of_existing_pods)

    # Filter

    def filter_pod(self, pod: Pod, shape: Shape, state: ClusterState) -> Ints | None:
        """1 where required pods are not near, 2 where avoided ones are, 3 where it is avoided."""
        if pod.spec.affinity is None and not state.carried:
            return None
        near, away = _required(pod)
        unwelcome = self._unwelcome(pod, state)
        if not near and not away and unwelcome is None:
            return None
        codes = np.zeros(state.row_limit, np.int64)
        # The first reason is the one that is told: it is written last.
        if unwelcome is not None:
            np.copyto(codes, NOT_WELCOME, where=unwelcome)
        for term in away:
            tally = state.tally(condition(term, pod, state.related))
            np.copyto(codes, NOT_AWAY, where=_company(tally, term.topology_key, state))
        if near:
            np.copyto(codes, NOT_NEAR, where=~self._near(pod, state, near))
        return codes

    def _near(self, pod: Pod, state: ClusterState, terms: tuple[PodAffinityTerm, ...]) -> Bools:
        """bool[row_limit]: nodes with all keys in whose domains are pods that all terms take."""
        conditions = tuple(condition(term, pod, state.related) for term in terms)
        tally = state.tally(*conditions)
        found = [_company(tally, term.topology_key, state) for term in terms]
        if not any(rows.any() for rows in found) and meets(pod, conditions):
            # The first of a series that want to be together.
            codes = (state.labels.codes(term.topology_key, state.all_rows) for term in terms)
            return reduce(and_, (values > 0 for values in codes))
        return reduce(and_, found)

    def _unwelcome(self, pod: Pod, state: ClusterState) -> Bools | None:
        """bool[row_limit]: nodes in domains of pods that avoid this one; None: there are none."""
        if not state.carried:
            return None
        found: Bools | None = None
        labels = state.related.labels_of(pod.metadata.namespace)
        for term in state.carried.about(pod, labels):
            if term.role is not Role.AVOIDS or not term.users:
                continue
            hit = _company(term, term.key, state)
            found = hit if found is None else found | hit
        return found

    def lasts(self, codes: Ints) -> Bools:
        """Company may come."""
        return codes > NOT_NEAR

    def rejection(self, shape: Shape, code: int) -> Rejection:
        """Only pods that are avoided can be made to leave."""
        if code == NOT_NEAR:
            return Rejection(("node(s) didn't match pod affinity rules",))
        if code == NOT_AWAY:
            return Rejection(("node(s) didn't match pod anti-affinity rules",), True)
        return Rejection(("node(s) didn't satisfy existing pods anti-affinity rules",), True)

    def fixes(self, pod: Pod, shape: Shape, state: ClusterState, row: int) -> Iterable[Fix]:
        """Pods that are in the way leave; the pod does without company that is not there."""
        near, away = _required(pod)
        if near and not self._near(pod, state, near)[row]:
            yield self._alone(pod, state, row, near)
            return
        for term in away:
            asked = condition(term, pod, state.related)
            found = tuple(
                e for e in _in_domain(state, term.topology_key, row) if meets(e.pod, (asked,))
            )
            if found:
                text = f"{names(found)} with {_wanted(term)} near {NODE} (podAntiAffinity)"
                yield Fix(text, 1.0 + len(found), gone=found)
                text = f"the podAntiAffinity wants nobody with {_wanted(term)} near {NODE}"
                yield Fix(f"{text}: {names(found)} are", 3.0, pod=_without(pod, [term]))
                return
        labels = state.related.labels_of(pod.metadata.namespace)
        keys = {t.key for t in state.carried.about(pod, labels) if t.role is Role.AVOIDS}
        found = tuple(
            {
                entry.uid: entry
                for key in sorted(keys)
                for entry in _in_domain(state, key, row)
                if any(
                    t.topology_key == key and meets(pod, (condition(t, entry.pod, state.related),))
                    for t in _required(entry.pod)[1]
                )
            }.values()
        )
        if found:
            text = f"{names(found)} near {NODE} will not have the pod (its podAntiAffinity)"
            yield Fix(text, 1.0 + len(found), gone=found)

    def _alone(
        self, pod: Pod, state: ClusterState, row: int, near: tuple[PodAffinityTerm, ...]
    ) -> Fix:
        """For a pod whose company is not there."""
        node = state.node_at(row)
        labels = node.metadata.labels or {}
        lacking = [term.topology_key for term in near if term.topology_key not in labels]
        conditions = tuple(condition(term, pod, state.related) for term in near)
        anybody = state.tally(*conditions).counts[state.all_rows].any()
        if lacking and not anybody and meets(pod, conditions):
            # The first of a series that want to be together: any node will do that has the keys.
            more = with_labels(node, {**labels, **dict.fromkeys(lacking, "a")})
            return Fix(
                f"{NODE} lacks the label {', '.join(lacking)}", float(len(lacking)), node=more
            )
        missed = [t for t in near if not self._near(pod, state, (t,))[row]]
        if not missed:  # each is there, but not in one and the same pod
            for i, term in enumerate(near):
                if self._near(pod, state, (*near[:i], *near[i + 1 :]))[row]:
                    missed = [term]
                    break
        missed = missed or [*near]
        company = ", ".join(f"{_wanted(t)} by {t.topology_key}" for t in missed)
        text = f"no pod with {company} is near {NODE}, as the podAffinity wants"
        return Fix(text, 1.0 + len(missed), pod=_without(pod, missed))

    def dry_runs(
        self, pod: Pod, shape: Shape, state: ClusterState
    ) -> Callable[[int], DryRun] | None:
        """Who is in a row's domains."""
        if pod.spec.affinity is None and not state.carried:
            return None
        near, away = _required(pod)
        terms = state.carried.about(pod, state.related.labels_of(pod.metadata.namespace))
        avoiding = _counts_by_key(
            (term.key, term.domain_counts(term.key))
            for term in terms
            if term.role is Role.AVOIDS and term.domain_counts(term.key).any()
        )
        if not near and not away and not avoiding:
            return None
        return _World(pod, state, near, away, avoiding).at

    # Score

    def speaks(self, pod: Pod, state: ClusterState) -> bool:
        """Where somebody wants or is wanted."""
        return bool(state.carried) or pod.spec.affinity is not None

    def score_pod(
        self, pod: Pod, shape: Shape, state: ClusterState, feasible: Bools
    ) -> Ints | None:
        """Weights of the terms that are met, the pod's and those of the pods there."""
        own = list(_preferred(pod))
        check_count(len(own), TERMS_MAX, TERMS)
        if self.ignores_preferred and not own:
            return None
        points = _Points(state)
        for term, weight in own:
            tally = state.tally(condition(term, pod, state.related))
            points.add(tally, weight, term.topology_key)
        if state.carried:
            labels = state.related.labels_of(pod.metadata.namespace)
            for carried in state.carried.about(pod, labels):
                if not carried.users or carried.role is Role.AVOIDS:
                    continue
                weight = self.hard_weight if carried.role is Role.NEEDS else 1
                points.add(carried, weight, carried.key)
        total = points.total()
        if total is None:
            return None
        among = total if feasible.all() else total[feasible]
        if not len(among):
            return None
        lowest = int(among.min())
        span = int(among.max()) - lowest
        if not span:
            return np.zeros(state.row_limit, np.int64)
        return points.scaled(total, lowest, span)

    # Hints

    def hint_pod(self, pod: Pod, shape: Shape, happened: Happened) -> bool:
        """Nodes that come to or leave a domain, pods that are wanted or no longer avoided."""
        near, away = _required(pod)
        node = happened.node
        if node is not None:
            labels = node.metadata.labels or {}
            if happened.old_node is None:
                # Without terms of its own it is some other pod that keeps it off.
                return not near or bool(away) or any(t.topology_key in labels for t in near)
            before = happened.old_node.metadata.labels or {}
            came = (t.topology_key in labels and labels[t.topology_key] != before.get(
                t.topology_key) for t in near)  # fmt: skip
            left = (t.topology_key in before and labels.get(t.topology_key) != before[
                t.topology_key] for t in away)  # fmt: skip
            return any(came) or any(left)
        if happened.change & Change.OWN_LABELS:
            return True
        old, new = happened.old_pod, happened.pod
        if near and new is not None and _all_take(near, pod, new):
            if old is None or not _all_take(near, pod, old):
                return True
        if old is None:
            return False
        # One of several terms may be all that keeps it off; upstream asks for all of them.
        if any(
            _may_take(t, pod, old) and (new is None or not _may_take(t, pod, new)) for t in away
        ):
            return True
        return new is None and any(_may_take(t, old, pod) for t in _required(old)[1])


def condition(term: PodAffinityTerm, pod: Pod, related: Related) -> Condition:
    """Whom a term of the pod is about, namespaces of its selector by name."""
    namespaces = namespaces_of(term, pod.metadata.namespace)
    selector = term.namespace_selector
    if selector is None:
        return namespaces, term.label_selector
    if not selector.match_labels and not selector.match_expressions:
        return None, term.label_selector
    return namespaces | related.selected(selector), term.label_selector


def _required(pod: Pod) -> tuple[tuple[PodAffinityTerm, ...], tuple[PodAffinityTerm, ...]]:
    affinity = pod.spec.affinity
    if affinity is None:
        return (), ()

    def of(part: PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
        return (part.required if part is not None else None) or ()

    near, away = of(affinity.pod_affinity), of(affinity.pod_anti_affinity)
    check_count(len(near) + len(away), TERMS_MAX, TERMS)
    return near, away


def _in_domain(state: ClusterState, key: str, row: int) -> list[PodEntry]:
    """The pods of all nodes in the row's domain."""
    codes = state.labels.codes(key, state.all_rows)
    rows = np.flatnonzero((codes == codes[row]) & (codes > 0)).tolist()
    return [entry for each in rows for entry in state.pods_on(each)]


def _without(pod: Pod, terms: list[PodAffinityTerm]) -> Pod:
    """The pod without these required terms."""
    affinity = pod.spec.affinity
    assert affinity is not None

    def less(part: PodAffinity | None) -> PodAffinity | None:
        if part is None:
            return None
        kept = tuple(term for term in part.required or () if term not in terms)
        return msgspec.structs.replace(part, required=kept or None)

    return with_spec(
        pod,
        affinity=msgspec.structs.replace(
            affinity,
            pod_affinity=less(affinity.pod_affinity),
            pod_anti_affinity=less(affinity.pod_anti_affinity),
        ),
    )


def _wanted(term: PodAffinityTerm) -> str:
    """Its selector in words."""
    selector = term.label_selector
    if selector is None:
        return "no labels at all"
    pairs = [f"{k}={v}" for k, v in sorted((selector.match_labels or {}).items())]
    pairs += map(said, selector.match_expressions or ())
    return " and ".join(pairs) or "any labels"


def _preferred(pod: Pod) -> Iterable[tuple[PodAffinityTerm, int]]:
    affinity = pod.spec.affinity
    if affinity is None:
        return
    for part, sign in ((affinity.pod_affinity, 1), (affinity.pod_anti_affinity, -1)):
        for weighted in (part.preferred if part is not None else None) or ():
            yield weighted.pod_affinity_term, sign * weighted.weight


def _company(counts: RowCounts, key: str, state: ClusterState) -> Bools:
    """bool[row_limit]: nodes in domains of the key in which somebody is counted."""
    rows = state.all_rows
    if state.labels.is_of_node(key, state.node_count):
        return (counts.counts[rows] > 0) & state.present[rows]
    found: Bools = counts.domain_counts(key) > 0
    return found[state.labels.codes(key, rows)]


class _Points:
    """What terms give to nodes: for each domain of a key, or at once for each row."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._by_key: dict[str, Ints] = {}
        self._by_row: Ints | None = None

    def add(self, counts: RowCounts, weight: int, key: str) -> None:
        """A term's points, if some domain has some."""
        if not weight:
            return
        state = self._state
        of_node = state.labels.is_of_node(key, state.node_count)
        sums = counts.counts[state.all_rows] if of_node else counts.domain_counts(key)
        if not sums.any():
            return
        part = sums if weight == 1 else sums * weight
        known = self._by_row if of_node else self._by_key.get(key)
        part = part if known is None else known + part
        if of_node:
            self._by_row = part
        else:
            self._by_key[key] = part

    def total(self) -> Ints | None:
        """int64[row_limit]: the sums; None where there are no points."""
        state, total = self._state, self._by_row
        for key, table in self._by_key.items():
            part = table[state.labels.codes(key, state.all_rows)]
            total = part if total is None else total + part
        return total

    def scaled(self, total: Ints, lowest: int, span: int) -> Ints:
        """int64[row_limit]: the total as 0 to 100."""
        if self._by_row is None and len(self._by_key) == 1:
            # There are fewer domains than rows, as a rule.
            ((key, table),) = self._by_key.items()
            return _scaled(table, lowest, span)[self._state.labels.codes(key, self._state.all_rows)]
        return _scaled(total, lowest, span)


def _scaled(points: Ints, lowest: int, span: int) -> Ints:
    # In float64 and cut off, as upstream: 100 * (share), not (100 * part) / whole.
    return (MAX_NODE_SCORE * ((points - lowest) / span)).astype(np.int64)


def _may_take(term: PodAffinityTerm, owner: Pod, pod: Pod) -> bool:
    """Whether a term of the owner takes the pod, as far as can be said without namespaces."""
    return (
        (
            term.namespace_selector is not None
            or pod.metadata.namespace in namespaces_of(term, owner.metadata.namespace)
        )
        and term.label_selector is not None
        and term.label_selector.matches(pod.metadata.labels or {})
    )


def _all_take(terms: tuple[PodAffinityTerm, ...], owner: Pod, pod: Pod) -> bool:
    return all(_may_take(term, owner, pod) for term in terms)


def _counts_by_key(found: Iterable[tuple[str, Ints]]) -> dict[str, Ints]:
    """Sums of domain counts (int64[value codes]) per key."""
    result: dict[str, Ints] = {}
    for key, counts in found:
        known = result.get(key)
        result[key] = counts if known is None else known + counts
    return result


class _World:
    """What a dry run of any row starts from, for one pod."""

    def __init__(
        self,
        pod: Pod,
        state: ClusterState,
        near: tuple[PodAffinityTerm, ...],
        away: tuple[PodAffinityTerm, ...],
        avoiding: dict[str, Ints],
    ) -> None:
        """`avoiding`: by key, how many pods of each domain carry a term that keeps the pod away."""
        self.pod = pod
        self.state = state
        self.near_keys = tuple(term.topology_key for term in near)
        self.near = tuple(condition(term, pod, state.related) for term in near)
        self.away = tuple((t.topology_key, condition(t, pod, state.related)) for t in away)
        self.avoiding = avoiding
        self._labels = state.related.labels_of(pod.metadata.namespace)
        self._kept_away: dict[CarriedTerm, bool] = {}
        tally = state.tally(*self.near) if near else None
        counts = [(key, state.tally(of)) for key, of in self.away]
        # Those on others, by the numbers of their keys, then the one on company.
        self.matcher = Matcher(
            [*(of for _, of in counts), *([tally] if tally is not None else [])], state.tallies
        )
        self.near_counts = [] if tally is None else [tally.domain_counts(k) for k in self.near_keys]
        # Matching pods on nodes that have one of the keys: whether there is any company at all.
        self.company = sum(int(counts.sum()) for counts in self.near_counts)
        self.first = bool(near) and meets(pod, self.near)
        self.away_counts = _counts_by_key((key, of.domain_counts(key)) for key, of in counts)

    def is_kept_away(self, term: CarriedTerm) -> bool:
        """Whether the pod must not meet who carries the term."""
        found = self._kept_away.get(term)
        if found is None:
            found = term.role is Role.AVOIDS and term.takes(self.pod, self._labels)
            self._kept_away[term] = found
        return found

    def at(self, row: int) -> DryRun:
        """The dry run of one row."""
        return _AffinityRun(self, row)


class _AffinityRun:
    """One row's domains while pods come and go in thought."""

    def __init__(self, world: _World, row: int) -> None:
        self._world = world
        columns = world.state.labels.columns

        def code_of(key: str) -> int:
            column = columns.get(key)
            return 0 if column is None else int(column.codes[row])

        self._values = [code_of(key) for key in world.near_keys]
        self._near = [
            int(counts[v]) if v else 0
            for counts, v in zip(world.near_counts, self._values, strict=True)
        ]
        self._company = world.company
        self._away = {k: int(c[v]) for k, c in world.away_counts.items() if (v := code_of(k))}
        self._avoiding = {k: int(c[v]) for k, c in world.avoiding.items() if (v := code_of(k))}
        # Keys that only pods to come may bring.
        self._code_of = code_of

    def add(self, entry: PodEntry) -> None:
        self._count(entry.pod, 1)

    def remove(self, entry: PodEntry) -> None:
        self._count(entry.pod, -1)

    def _count(self, other: Pod, by: int) -> None:
        world = self._world
        for number in world.matcher.met_by(other):
            if number == len(world.away):
                for i, value in enumerate(self._values):
                    if value:
                        self._near[i] += by
                        self._company += by
            elif (key := world.away[number][0]) in self._away:
                self._away[key] += by
        for term in world.state.carried.terms_of(other):
            if world.is_kept_away(term) and self._code_of(term.key):
                self._avoiding[term.key] = self._avoiding.get(term.key, 0) + by

    def code(self) -> int:
        if self._near:
            if not all(self._values):
                return NOT_NEAR
            together = self._world.first and not self._company
            if not together and min(self._near) <= 0:
                return NOT_NEAR
        if any(count > 0 for count in self._away.values()):
            return NOT_AWAY
        if any(count > 0 for count in self._avoiding.values()):
            return NOT_WELCOME
        return 0
