"""Small groups whose pods exclude, follow or spread each other, against a search of all ways: what
is said to be impossible is."""

import random
from typing import Any

import pytest

from stower.assembly import build_engine
from stower.engine.groups.tree_cycle import assume_reserved
from stower.engine.queue.entities import QueuedPod
from tests.builders import make_node, make_pod
from tests.device_builders import Agreeing
from tests.group_builders import RACK, make_group, members

HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
EXHAUSTED = "not found yet"
CASES, ALL_CASES = 300, 6_000


def draw_pod(chance: random.Random) -> dict[str, Any]:
    """Returns the fields of a pod with some rules about others."""
    fields: dict[str, Any] = {"labels": {"app": chance.choice("ab")}, "cpu": chance.choice("112")}
    affinity: dict[str, Any] = {}
    if chance.random() < 0.35:
        affinity["podAntiAffinity"] = {REQUIRED: [draw_term(chance, (HOSTNAME, HOSTNAME, RACK))]}
    if chance.random() < 0.4:
        affinity["podAffinity"] = {REQUIRED: [draw_term(chance, (RACK, RACK, HOSTNAME))]}
    if affinity:
        fields["affinity"] = affinity
    if chance.random() < 0.35:
        least = {"minDomains": chance.choice((1, 3))} if chance.random() < 0.2 else {}
        rule = draw_term(chance, (HOSTNAME, HOSTNAME, RACK)) | least
        rule |= {"maxSkew": chance.choice((1, 1, 2)), "whenUnsatisfiable": "DoNotSchedule"}
        fields["topologySpreadConstraints"] = [rule]
    if chance.random() < 0.3:
        fields["ports"] = [80]
    return fields


def draw_term(chance: random.Random, keys: tuple[str, ...]) -> dict[str, Any]:
    selector = {"matchLabels": {"app": chance.choice("ab")}}
    return {"topologyKey": chance.choice(keys), "labelSelector": selector}


class Drawn:
    """A group of at most four pods, and at most four nodes with at most two other pods."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        names = [f"n{i}" for i in range(chance.randint(2, 4))]
        nodes = [
            make_node(
                name,
                cpu=str(chance.randint(1, 4)),
                labels={RACK: chance.choice("xy"), HOSTNAME: name},
            )
            for name in names
        ]
        others = [
            make_pod(f"o{i}", node=chance.choice(names), **draw_pod(chance) | {"cpu": "0"})
            for i in range(chance.choice((0, 0, 1, 2)))
        ]
        kinds = [draw_pod(chance) for _ in range(chance.choice((1, 1, 2)))]
        count = chance.randint(2, 4)
        pods = [
            pod for i in range(count) for pod in members("g", 1, first=i, **chance.choice(kinds))
        ]
        self.least, self.key = chance.randint(2, count), chance.choice(("", RACK, RACK, HOSTNAME))
        group = make_group("g", self.least, key=self.key)
        self.api = Agreeing(build_engine(), *nodes, *others, group, *pods)

    def is_possible(self) -> bool:
        """Whether some of the pods, as many as the minimum, fit in some order in one domain."""
        return self._fits([*self.api.engine.queue.pods()], self.least, None)

    def _fits(self, left: list[QueuedPod], lacking: int, domain: str | None) -> bool:
        if not lacking:
            return True
        state, cycle = self.api.engine.state, self.api.engine.cycle
        for queued in left:
            for row in state.present_rows():
                own = (state.node_at(row).metadata.labels or {}).get(self.key, "")
                if domain not in (None, own) or not cycle.fits(queued.profile, queued.entry, row):
                    continue
                with state.trial():
                    assume_reserved(state, queued.profile, queued.entry, row)
                    others = [other for other in left if other is not queued]
                    if self._fits(others, lacking - 1, own):
                        return True
        return False


def check(seeds: range) -> None:
    """Raises AssertionError for a group that is refused for good, or in vain too often."""
    missed = 0
    for seed in seeds:
        drawn = Drawn(seed)
        if drawn.api.bound or not drawn.is_possible():
            continue
        said = drawn.api.messages["g-0"]
        assert said.startswith(EXHAUSTED), (seed, said)
        missed += 1
    assert missed <= len(seeds) // 100


def test_what_is_called_impossible_is() -> None:
    check(range(CASES))


@pytest.mark.more
def test_what_is_called_impossible_is_in_many_cases() -> None:
    check(range(CASES, ALL_CASES))
