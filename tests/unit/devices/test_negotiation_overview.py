"""Who waits for whom: what is said of each claim, in each situation that objects can show."""

from typing import Any

import msgspec
import pytest

from stower.devices.negotiation.overview import Negotiation, Objects, Overview, overview
from stower.model.kinds import PodScheduling, ResourceClaim, ResourceClass
from stower.model.kinds.resource_claim import RESERVED_FOR_MAX
from stower.model.times import time_ns
from tests.builders import make_node, make_pod

FABRIC, BETA = "fabric.example.com", "beta.example.com"
NODES = [make_node(name) for name in ("n1", "n2", "n3")]
CLASSES = [
    msgspec.convert({"metadata": {"name": name}, "driverName": driver}, ResourceClass)
    for name, driver in (("fabric", FABRIC), ("beta", BETA))
]
BEGAN = "2026-01-01T00:00:00Z"


def claim(
    name: str = "c0",
    class_name: str = "fabric",
    on: tuple[str, ...] | None = None,
    users: tuple[str, ...] = (),
    mode: str = "",
    flag: str = "",
    **meta: Any,
) -> ResourceClaim:
    """A claim; `on`: allocated there, () for everywhere."""
    notes = {"stower.dev/allocation-mode": mode, "stower.dev/deallocation-requested": flag}
    status: dict[str, Any] = {}
    if on is not None:
        terms = [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
            for name in on
        ]
        selector = {"nodeSelector": {"nodeSelectorTerms": terms}} if on else {}
        status = {"allocation": {"allocationTimestamp": BEGAN, **selector}}
        driver = BETA if class_name == "beta" else FABRIC
        meta = {"finalizers": [f"{driver}/allocated"], **meta}
    consumers = [{"resource": "pods", "name": user, "uid": f"uid-of-{user}"} for user in users]
    request = {"name": "r", "exactly": {"deviceClassName": class_name}}
    document = {
        "metadata": {
            "name": name, "namespace": "default", "uid": f"uid-{name}",
            "annotations": {key: value for key, value in notes.items() if value}, **meta,
        },
        "spec": {"devices": {"requests": [request]}},
        "status": {**status, "reservedFor": consumers or None},
    }  # fmt: skip
    return msgspec.convert(document, ResourceClaim)


def pod(name: str = "p", *claims: str, **changes: Any) -> Any:
    entries = [{"name": each, "resourceClaimName": each} for each in claims or ("c0",)]
    return make_pod(name, uid=f"uid-of-{name}", resourceClaims=entries, **changes)


def said(
    selected: str = "",
    asked: tuple[str, ...] = ("n1", "n2"),
    answers: dict[str, tuple[int, tuple[str, ...]]] | None = None,
    name: str = "p",
    owner: str = "",
    attempt: int = 0,
) -> PodScheduling:
    """What was said about a pod; `answers`: round and unsuitable nodes, by claim."""
    owner = owner or f"uid-of-{name}"
    round = 2 if asked else 0
    entries = [
        {"name": key, "observedRound": of, "unsuitableNodes": nodes}
        for key, (of, nodes) in (answers or {}).items()
    ]
    spec = {"selectedNode": selected, "potentialNodes": asked, "round": round, "attempt": attempt}
    meta = {"name": name, "namespace": "default", "creationTimestamp": BEGAN,
            "ownerReferences": [{"kind": "Pod", "name": name, "uid": owner}]}  # fmt: skip
    document = {"metadata": meta, "spec": spec, "status": {"resourceClaims": entries}}
    return msgspec.convert(document, PodScheduling)


def look(*objects: Any, only: str = "", seconds: int | None = None) -> Overview | None:
    """The overview of these objects, so long after the negotiation began."""
    now_ns = None if seconds is None else (time_ns(BEGAN) or 0) + seconds * 10**9
    pods = [o for o in objects if type(o).__name__ == "Pod"]
    claims = [o for o in objects if isinstance(o, ResourceClaim)]
    schedulings = [o for o in objects if isinstance(o, PodScheduling)]
    return overview(Objects(pods, claims, CLASSES, schedulings, NODES, now_ns), only)


def one(*objects: Any, **options: Any) -> Negotiation:
    """The one negotiation that there is."""
    found = look(*objects, **options)
    assert found is not None
    (negotiation,) = found.negotiations
    return negotiation


def awaited(*objects: Any) -> list[tuple[str, str]]:
    """Of the pod p: the state of each claim, and what it waits for."""
    found = look(*objects)
    assert found is not None
    (negotiation,) = (each for each in found.negotiations if each.pod == "default/p")
    return [(each.state, each.awaits) for each in negotiation.claims]


NONE: tuple[str, ...] = ()
RUNNING = make_pod("q", nodeName="n1", uid="uid-of-q")
TWO = (pod("p", "c0", "c1"), claim(), claim("c1", "beta"))


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ((pod(), claim()), [("pending", f"the scheduler to send candidate nodes to {FABRIC}")]),
        (
            (pod(schedulingGates=[{"name": "g"}]), claim()),
            [("pending", "the scheduling gates of default/p to be removed")],
        ),
        ((pod(), claim(), said()), [("silent", "the scheduler to select a node")]),
        ((pod(), claim(), said("n1")), [("silent", f"{FABRIC} to allocate default/c0 on n1")]),
        (
            (pod(), claim(), said("n1", answers={"c0": (1, ("n1",))})),
            [("silent", "the scheduler to withdraw the selected node n1")],
        ),
        (
            (pod(), claim(), said("n9")),
            [("silent", "the scheduler to withdraw the selected node n9")],
        ),
        (
            (pod(), claim(), said(answers={"c0": (2, ("n1", "n2"))})),
            [("answered", f"a node that {FABRIC} does not refuse")],
        ),
        (
            (*TWO, said(answers={"c0": (2, ("n1",)), "c1": (1, NONE)})),
            [
                ("answered", f"{BETA} to answer about round 2"),
                ("silent", f"{BETA} to answer about round 2"),
            ],
        ),
        (
            (*TWO, said(answers={"c0": (2, ("n1",)), "c1": (2, ("n2",))})),
            [("answered", "a node that no driver refuses")] * 2,
        ),
        (
            (*TWO, said(answers={"c0": (2, NONE), "c1": (2, NONE)})),
            [("answered", "the scheduler to select a node")] * 2,
        ),
        (
            (*TWO, said(answers={"c0": (2, NONE), "c1": (2, NONE)}, attempt=1),
             pod("other", "c2"), claim("c2"), said("n1", name="other", attempt=2)),
            [("answered", "default/other, which is tried first")] * 2,
        ),
        (
            (pod(), claim(), said(owner="another")),
            [("pending", "PodScheduling default/p of another pod to be deleted")],
        ),
        (
            (pod("p", "c0", "c1"), claim(on=("n1",)), claim("c1", "beta"), said("n1")),
            [("allocated", ""), ("silent", f"{BETA} to allocate default/c1 on n1")],
        ),
        (
            (pod("p", "c0", "c1"), claim(on=("n2",)), claim("c1", "beta"), said("n1")),
            [("allocated", ""), ("silent", "the scheduler to withdraw the selected node n1")],
        ),
        (
            (pod(), claim(on=())),
            [("allocated", "the scheduler to reserve default/c0 for default/p")],
        ),
        ((pod(), claim(on=(), users=("p",))), [("allocated", "the scheduler to bind default/p")]),
        ((pod(), claim(on=("n9",))), [("allocated", "a node on which default/c0 can be used")]),
        (
            (pod(), claim(on=(), users=tuple(f"u{i}" for i in range(RESERVED_FOR_MAX)))),
            [("allocated", "one of the 256 pods that use default/c0 to end")],
        ),
        (
            (pod("p", "c0", "c1"), claim(on=("n1",)), claim("c1", "beta", on=("n2",))),
            [("allocated", "the scheduler to request deallocation of one claim: no node can use "
              "default/c0, default/c1")] * 2,
        ),
        (
            (pod("p", "c0", "c1"), claim()),
            [("pending", "the scheduler to continue once all claims exist"),
             ("missing", "default/c1 to be created")],
        ),
        ((pod(), claim(mode="Immediate")), [("pending", f"{FABRIC} to allocate default/c0")]),
        (
            (pod(deletion=BEGAN), claim()),
            [("pending", "default/p, which is being deleted, to end")],
        ),
        # Claims that are to go.
        (
            (pod(), RUNNING, claim(on=("n1",), users=("q",), flag="why")),
            [("flagged", "default/q, which uses default/c0, to end")],
        ),
        (
            (pod(), claim(on=("n1",), users=("p",), flag="why")),
            [("flagged", "the scheduler to release default/c0, reserved for default/p")],
        ),
        (
            (pod(), claim(on=("n1",), users=("gone",), flag="why")),
            [("flagged", "the claim controller to release default/c0, reserved for default/gone")],
        ),
        (
            (pod(), claim(on=("n1",), flag="why")),
            [("flagged", f"{FABRIC} to deallocate default/c0")],
        ),
        (
            (pod(), claim(flag="why")),
            [("flagged", f"{FABRIC} to remove the deallocation request from default/c0")],
        ),
        (
            (pod(), claim(on=("n1",), deletionTimestamp=BEGAN)),
            [("deleting", f"{FABRIC} to deallocate default/c0")],
        ),
        ((pod(), claim(deletionTimestamp=BEGAN)), [("deleting", "default/c0 to be deleted")]),
        (
            (pod("p", "c0", "c1"), claim(on=("n1",), flag="why"), claim("c1", "beta")),
            [("flagged", f"{FABRIC} to deallocate default/c0"),
             ("pending", "the scheduler to continue once default/c0 is deallocated")],
        ),
        # Pods that were created with their node.
        (
            (pod(nodeName="n1"), claim()),
            [("pending", f"a controller to request default/c0 on n1 from {FABRIC}")],
        ),
        (
            (pod(nodeName="n1"), claim(), said("n1", asked=())),
            [("silent", f"{FABRIC} to allocate default/c0 on n1")],
        ),
        (
            (pod(nodeName="n1"), claim(on=("n1",))),
            [("allocated", "default/c0 to be reserved for default/p")],
        ),
        (
            (pod(nodeName="n1"), claim(on=("n2",))),
            [("allocated", "default/p to be deleted: default/c0 cannot be used on n1")],
        ),
    ],
)  # fmt: skip
def test_each_claim_says_what_it_waits_for(
    objects: tuple[Any, ...], expected: list[tuple[str, str]]
) -> None:
    assert expected == awaited(*objects)


def test_a_negotiation_counts_the_nodes_that_nobody_has_refused() -> None:
    found = one(pod(), claim(), said("n2", ("n1", "n2", "n9"), {"c0": (2, ("n1",))}, attempt=3))
    assert (3, 1, 2, 3, "n2", BEGAN) == (
        found.candidates, found.left, found.round, found.attempt, found.selected_node, found.since,
    )  # fmt: skip
    assert (("n1",), 2) == (found.claims[0].unsuitable, found.claims[0].observed_round)


def test_pods_that_have_all_they_need_negotiate_nothing_and_their_claims_are_told() -> None:
    found = look(pod(nodeName="n1"), claim(on=("n1",), users=("p",)), claim("free", on=()))
    assert found is not None
    assert ((), ["default/c0", "default/free"]) == (
        found.negotiations, [each.claim for each in found.claims],
    )  # fmt: skip
    used, free = found.claims
    assert (("default/p",), ("n1",), False) == (used.used_by, used.nodes, used.everywhere)
    assert ((), (), True) == (free.used_by, free.nodes, free.everywhere)


@pytest.mark.parametrize(
    ("unused", "awaits"),
    [
        (claim(), "a pod that uses it"),
        (claim(mode="Immediate"), f"{FABRIC} to allocate default/c0"),
        (claim(on=("n1",)), ""),
        (claim(on=("n1",), flag="why"), f"{FABRIC} to deallocate default/c0"),
    ],
)
def test_claims_that_no_pod_uses_are_told(unused: ResourceClaim, awaits: str) -> None:
    found = look(unused)
    assert found is not None
    assert [awaits] == [each.awaits for each in found.claims]


def test_claims_of_other_classes_are_left_out() -> None:
    assert Overview((), ()) == look(pod(), claim(class_name="published"))


def test_what_is_left_of_a_pod_that_is_gone_is_told() -> None:
    found = one(said())
    assert ("default/p", "the PodScheduling to be deleted: its pod does not exist") == (
        found.pod, found.awaits,
    )  # fmt: skip


def test_a_claim_that_is_still_to_be_made_is_told_by_its_entry() -> None:
    entries = [{"name": "gpu", "resourceClaimTemplateName": "t"}, {"name": "c0",
               "resourceClaimName": "c0"}]  # fmt: skip
    found = one(make_pod("p", uid="uid-of-p", resourceClaims=entries), claim())
    assert ("missing", "the claim of entry gpu to be created") == (
        found.claims[0].state, found.claims[0].awaits,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("only", "pods", "claims"),
    [
        ("", ["default/p", "default/r"], ["default/c9"]),
        ("p", ["default/p"], []),
        ("default/c1", ["default/r"], []),
        (BETA, ["default/r"], []),
        (FABRIC, ["default/p"], ["default/c9"]),
        ("c9", [], ["default/c9"]),
        ("run", [], ["default/c9"]),
    ],
)
def test_a_part_is_named_by_pod_claim_or_driver(
    only: str, pods: list[str], claims: list[str]
) -> None:
    found = look(
        pod(), claim(), pod("r", "c1"), claim("c1", "beta"), pod("run", "c9", nodeName="n1"),
        claim("c9", on=("n1",), users=("run",)), only=only,
    )  # fmt: skip
    assert found is not None
    assert (pods, claims) == (
        [each.pod for each in found.negotiations], [each.claim for each in found.claims],
    )  # fmt: skip


def test_what_is_not_there_is_none() -> None:
    assert look(pod(), claim(), only="nobody") is None
    assert Overview((), ()) == look(make_pod("idle"), only="idle")


# Hints


def test_a_driver_that_is_silent_for_long_may_not_run() -> None:
    objects = (*TWO, said(answers={"c0": (2, NONE)}))
    hint = f"check that {BETA} runs: no answer about default/c1 (see the Events of the claim)"
    assert ((), (hint,), (hint,)) == (
        one(*objects, seconds=5).hints, one(*objects, seconds=60).hints, one(*objects).hints,
    )  # fmt: skip
    allocates = (
        f"check that {FABRIC} runs: no answer about default/c0 (see the Events of the claim)"
    )
    assert (allocates,) == one(pod(), claim(), said("n1")).hints
    assert () == one(pod(), claim(), said("n9")).hints, "it is for the scheduler to go on"


def test_who_has_devices_of_the_driver_on_a_node_that_it_refuses_is_told() -> None:
    refused = said(answers={"c0": (2, ("n1", "n2"))})
    found = look(
        pod(), claim(), refused, RUNNING, claim("c1", on=("n1",), users=("q",)),
        claim("c2", "beta", on=("n1",)), claim("c3", on=("n2",)),
    )  # fmt: skip
    assert found is not None
    assert (
        f"delete default/q and default/c1: then {FABRIC} may allocate default/c0 on n1",
        f"delete default/c3, which no pod uses: then {FABRIC} may allocate default/c0 on n2",
    ) == found.negotiations[0].hints
    found = look(pod(), claim(), refused, RUNNING, claim("c1", on=("n1", "n2"), users=("q",)))
    assert found is not None
    (hint,) = found.negotiations[0].hints
    assert hint.endswith("default/c0 on n1 (or 1 more)"), "once, not for each node"


def test_who_keeps_a_claim_that_is_to_go_or_that_keeps_the_pod_is_told() -> None:
    flagged = claim(on=("n1",), users=("q",), flag="why")
    found = one(pod(), RUNNING, flagged)
    assert (
        "delete default/q or wait for its end: it uses default/c0, which is to be deallocated",
    ) == found.hints
    found = one(
        pod("p", "c0", "c1"), RUNNING, claim(on=("n1",), users=("q",)), claim("c1", "beta"),
        said(asked=("n1",), answers={"c1": (2, ("n1",))}),
    )  # fmt: skip
    kept = "delete default/q: then default/c0 can be allocated on another node"
    assert (kept,) == found.hints
