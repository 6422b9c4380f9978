"""Dry runs of InterPodAffinity: the filter's code of one row after pods are added or removed.

Source: kube-scheduler plugins/interpodaffinity/filtering.go AddPod, RemovePod.
"""

from collections.abc import Iterable
from typing import Final

from stower.framework.dry_run import DryRun
from stower.model.kinds import Pod
from stower.model.kinds.pod import PodAffinityTerm
from stower.state.arrays import Ints
from stower.state.carried_terms import CarriedTerm, TermKind, namespaces_of
from stower.state.cluster import ClusterState
from stower.state.matcher import Matcher
from stower.state.pod_entry import PodEntry
from stower.state.pod_selectors import PodSelectors
from stower.state.tallies import Condition, meets

# Codes of InterPodAffinity.
AFFINITY_NOT_MATCHED: Final = 1
ANTI_AFFINITY_NOT_MATCHED: Final = 2
EXISTING_ANTI_AFFINITY_NOT_MATCHED: Final = 3


def condition(term: PodAffinityTerm, pod: Pod, related: PodSelectors) -> Condition:
    """Returns the namespaces and the selector of a term of the pod; a namespaceSelector is replaced
    by the names that it matches now."""
    namespaces = namespaces_of(term, pod.metadata.namespace)
    selector = term.namespace_selector
    if selector is None:
        return namespaces, term.label_selector
    if not selector.match_labels and not selector.match_expressions:
        return None, term.label_selector
    return namespaces | related.matching_namespaces(selector), term.label_selector


def counts_by_key(pairs: Iterable[tuple[str, Ints]]) -> dict[str, Ints]:
    """Returns the sum of domain counts (int64[value codes]) by key."""
    result: dict[str, Ints] = {}
    for key, counts in pairs:
        previous = result.get(key)
        result[key] = counts if previous is None else previous + counts
    return result


class DryRunCounts:
    """The counts that the dry runs of all rows share, for one pod."""

    def __init__(
        self,
        pod: Pod,
        state: ClusterState,
        affinity_terms: tuple[PodAffinityTerm, ...],
        anti_affinity_terms: tuple[PodAffinityTerm, ...],
        existing_anti_affinity_counts: dict[str, Ints],
    ) -> None:
        """`existing_anti_affinity_counts`: by key, how many pods of each domain carry an
        anti-affinity term that matches the pod."""
        self.pod = pod
        self.state = state
        self.affinity_keys = tuple(term.topology_key for term in affinity_terms)
        self.affinity_terms = tuple(
            condition(term, pod, state.pod_selectors) for term in affinity_terms
        )
        self.anti_affinity_terms = tuple(
            (t.topology_key, condition(t, pod, state.pod_selectors)) for t in anti_affinity_terms
        )
        self.existing_anti_affinity_counts = existing_anti_affinity_counts
        self._labels = state.pod_selectors.labels_of(pod.metadata.namespace)
        self._anti_affinity_matches: dict[CarriedTerm, bool] = {}
        tally = state.tally(*self.affinity_terms) if affinity_terms else None
        counts = [(key, state.tally(value)) for key, value in self.anti_affinity_terms]
        # The conditions of the anti-affinity terms by index, then that of all affinity terms.
        self.matcher = Matcher(
            [*(value for _, value in counts), *([tally] if tally is not None else [])],
            state.tallies,
        )
        self.affinity_counts = (
            [] if tally is None else [tally.domain_counts(k) for k in self.affinity_keys]
        )
        # Matching pods, counted per key on nodes with the key; 0 if no pod matches anywhere.
        self.matching_pod_count = sum(int(counts.sum()) for counts in self.affinity_counts)
        self.is_self_matching = bool(affinity_terms) and meets(pod, self.affinity_terms)
        self.anti_affinity_counts = counts_by_key(
            (key, value.domain_counts(key)) for key, value in counts
        )

    def is_anti_affinity_match(self, term: CarriedTerm) -> bool:
        """Returns whether the term is an anti-affinity term that matches the pod."""
        is_match = self._anti_affinity_matches.get(term)
        if is_match is None:
            is_match = term.kind is TermKind.REQUIRED_ANTI_AFFINITY and term.matches(
                self.pod, self._labels
            )
            self._anti_affinity_matches[term] = is_match
        return is_match

    def dry_run(self, row: int) -> DryRun:
        """Returns the dry run of one row."""
        return AffinityDryRun(self, row)


class AffinityDryRun:
    """Counts of matching pods in one row's domains, while a dry run adds and removes pods."""

    def __init__(self, prefilter: DryRunCounts, row: int) -> None:
        self._prefilter = prefilter
        columns = prefilter.state.labels.columns

        def code_of(key: str) -> int:
            column = columns.get(key)
            return 0 if column is None else int(column.codes[row])

        self._values = [code_of(key) for key in prefilter.affinity_keys]
        self._affinity_counts = [
            int(counts[v]) if v else 0
            for counts, v in zip(prefilter.affinity_counts, self._values, strict=True)
        ]
        self._matching_pod_count = prefilter.matching_pod_count
        self._anti_affinity_counts = {
            k: int(c[v]) for k, c in prefilter.anti_affinity_counts.items() if (v := code_of(k))
        }
        self._existing_anti_affinity_counts = {
            k: int(c[v])
            for k, c in prefilter.existing_anti_affinity_counts.items()
            if (v := code_of(k))
        }
        # Also for keys that no placed pod uses, but an added pod may.
        self._code_of = code_of

    def add(self, entry: PodEntry) -> None:
        self._count(entry.pod, 1)

    def remove(self, entry: PodEntry) -> None:
        self._count(entry.pod, -1)

    def _count(self, other: Pod, delta: int) -> None:
        prefilter = self._prefilter
        for index in prefilter.matcher.matching_conditions(other):
            if index == len(prefilter.anti_affinity_terms):
                for i, value in enumerate(self._values):
                    if value:
                        self._affinity_counts[i] += delta
                        self._matching_pod_count += delta
            elif (key := prefilter.anti_affinity_terms[index][0]) in self._anti_affinity_counts:
                self._anti_affinity_counts[key] += delta
        for term in prefilter.state.carried_terms.terms_of(other):
            if prefilter.is_anti_affinity_match(term) and self._code_of(term.topology_key):
                self._existing_anti_affinity_counts[term.topology_key] = (
                    self._existing_anti_affinity_counts.get(term.topology_key, 0) + delta
                )

    def code(self) -> int:
        if self._affinity_counts:
            if not all(self._values):
                return AFFINITY_NOT_MATCHED
            is_first_of_group = self._prefilter.is_self_matching and not self._matching_pod_count
            if not is_first_of_group and min(self._affinity_counts) <= 0:
                return AFFINITY_NOT_MATCHED
        if any(count > 0 for count in self._anti_affinity_counts.values()):
            return ANTI_AFFINITY_NOT_MATCHED
        if any(count > 0 for count in self._existing_anti_affinity_counts.values()):
            return EXISTING_ANTI_AFFINITY_NOT_MATCHED
        return 0
