"""How scheduler and drivers agree on a node, and what is written when."""

import pytest

from stower.framework.writes import CreateObject, PatchObject, patch_of
from stower.model.kinds import Pod, PodScheduling
from stower.model.kinds.resource_claim import DEALLOCATION_REQUESTED, IMMEDIATE
from tests.builders import make_node
from tests.device_builders import device, device_class, device_slice, request, resource_claim
from tests.negotiation.scenes import Scene, configured, merged, select

FABRIC = "fabric.example.com"


# Who allocates what


@pytest.mark.behaviour("S0.1", "S0.2")
def test_each_claim_is_allocated_by_its_driver_or_by_the_scheduler() -> None:
    scene = Scene("n1", "n2", laws=False, fabric={"n1": 1, "n2": 1}, nic={"n2": 1})
    scene.server.put(device_class())
    scene.server.put(device_slice("n1", device("g1")))
    scene.server.put(device_slice("n2", device("g2")))
    scene.server.put(resource_claim("c", request()))
    scene.claim("f")
    scene.claim("n", "nic")
    scene.pod("p", "c", "f", "n")
    scene.settle()
    assert "n2" == scene.node_of("p")
    drivers = {}
    for name in ("c", "f", "n"):
        results = scene.has(name).status.allocation.devices.results  # type: ignore[union-attr]
        drivers[name] = [result.driver for result in results or ()]
    assert {"c": ["gpu.example.com"], "f": [FABRIC], "n": ["nic.example.com"]} == drivers
    ledgers = {name: [*p.ledger.entries] for name, p in scene.drivers.items()}
    assert {FABRIC: ["uid-f"], "nic.example.com": ["uid-n"]} == ledgers
    mine = [w.name for w in scene.writes if isinstance(w, PatchObject) and "allocation" in str(w)]
    assert {"c"} == {*mine}


@pytest.mark.behaviour("S0.3")
def test_delayed_claims_wait_for_a_pod_and_immediate_ones_do_not() -> None:
    scene = Scene("n1", fabric={"n1": 2})
    scene.claim("now", allocation_mode=IMMEDIATE)
    scene.claim("later")
    scene.advance(60)
    assert ["now"] == scene.allocated()
    scene.pod("p", "later", "now")
    scene.settle()
    assert ["later", "now"] == scene.allocated()
    assert "n1" == scene.node_of("p")


@pytest.mark.behaviour("S0.4")
def test_a_pod_waits_for_its_immediate_claim() -> None:
    scene = Scene("n1", "n2", fabric={"n2": 1})
    scene.drivers[FABRIC].stop()
    scene.claim("now", allocation_mode=IMMEDIATE)
    scene.pod("p", "now")
    scene.advance(60)
    waits = f"waiting for resource driver to allocate resource: default/now of {FABRIC}"
    assert waits in scene.message("p")
    assert scene.said("p") is None, "there is nothing to agree on"
    scene.drivers[FABRIC].start()
    scene.settle()
    assert "n2" == scene.node_of("p")


# What is asked


SUITABLE = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a"]}]}
    ]
}


@pytest.mark.behaviour("S0.6")
def test_the_class_narrows_the_candidates_of_claims_that_are_not_allocated() -> None:
    scene = Scene(laws=False)
    for name, rack in (("n1", "a"), ("n2", "b"), ("n3", "a")):
        scene.server.put(make_node(name, labels={"rack": rack}))
    scene.class_of("fabric", suitableNodes=SUITABLE)
    scene.claim("c")
    scene.pod("p", "c")
    scene.settle()
    said = scene.said("p")
    assert said is not None
    assert {"n1", "n3"} == {*(said.spec.potential_nodes or ())}
    # An allocated claim may be used wherever it reaches.
    scene.claim("other")
    scene.allocate("other", "n2")
    scene.pod("q", "other")
    scene.settle()
    assert "n2" == scene.node_of("q")


@pytest.mark.behaviour("S0.7", "S0.18")
def test_a_pod_that_fits_nowhere_is_not_negotiated_about() -> None:
    scene = Scene("n1", fabric={"n1": 1})
    scene.claim("c")
    scene.pod("p", "c", nodeSelector={"rack": "a"})
    scene.settle()
    assert scene.said("p") is None
    scene.drivers[FABRIC].stop()
    scene.server.put(make_node("n2", labels={"rack": "a"}))
    scene.settle()
    said = scene.said("p")
    assert said is not None
    assert ("default", "p") == (said.metadata.namespace, said.metadata.name)
    (owner,) = said.metadata.owner_references or ()
    assert ("Pod", "p", "uid-of-default-p") == (owner.kind, owner.name, owner.uid)
    assert (("n2",), "n2") == (said.spec.potential_nodes, said.spec.selected_node)


@pytest.mark.behaviour("S0.8")
def test_at_most_128_candidates_with_the_best_first() -> None:
    scene = Scene(laws=False)
    for i in range(150):
        scene.server.put(make_node(f"n{i}", labels={"good": str(i == 77)}))
    scene.class_of("fabric")
    scene.claim("c")
    wish = {"matchExpressions": [{"key": "good", "operator": "In", "values": ["True"]}]}
    wishes = [{"weight": 100, "preference": wish}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}
    scene.pod("p", "c", affinity=affinity)
    scene.settle()
    said = scene.said("p")
    assert said is not None
    asked = said.spec.potential_nodes or ()
    assert (128, 128, "n77") == (len(asked), len({*asked}), asked[0])


@pytest.mark.behaviour("S0.9", "S0.10", "S0.11")
def test_what_is_said_has_no_parties_and_each_driver_answers_for_its_claims() -> None:
    scene = Scene("n1", "n2", "n3", fabric={"n1": 1, "n3": 1}, nic={"n1": 1, "n2": 1, "n3": 1})
    scene.scheduler.stop()
    scene.claim("c", "fabric")
    scene.claim("d", "nic")
    scene.claim("e", "nic")
    scene.pod("p", "d", "c")
    select(scene, "p", potentialNodes=["n1", "n2"], round=7)
    scene.settle()
    said = scene.said("p")
    assert said is not None
    assert ("selected_node", "potential_nodes", "round", "attempt") == said.spec.__struct_fields__
    answers = {a.name: a for a in said.status.resource_claims or ()}
    assert {"c": ("n2",), "d": None} == {n: a.unsuitable_nodes for n, a in answers.items()}
    assert {"c": "uid-c", "d": "uid-d"} == {n: a.claim_uid for n, a in answers.items()}
    assert {7} == {a.observed_round for a in answers.values()}
    assert [] == scene.allocated(), "nothing was selected"


@pytest.mark.behaviour("S0.12")
def test_for_one_claim_a_node_is_selected_while_asking() -> None:
    scene = Scene("n1", "n2", laws=False)
    scene.class_of("fabric")
    scene.claim("c")
    scene.pod("p", "c")
    scene.settle()
    (made,) = scene.spec_writes("p")
    assert isinstance(made, CreateObject)
    assert made.body["spec"]["selectedNode"] == made.body["spec"]["potentialNodes"][0]


@pytest.mark.behaviour("S0.13")
@pytest.mark.parametrize(("timeout", "seconds"), [("", 30), ("10s", 10)])
def test_for_several_claims_all_answers_are_waited_for(timeout: str, seconds: int) -> None:
    given = configured(answerTimeout=timeout) if timeout else None
    scene = Scene("n1", "n2", laws=False, configuration=given)
    scene.class_of("fabric")
    scene.class_of("nic")
    scene.claim("c", "fabric")
    scene.claim("d", "nic")
    scene.pod("p", "c", "d")
    scene.settle()
    scene.answer("p", "c", "n1")
    scene.answer("p", "d", round=0)  # about earlier candidates
    scene.advance(seconds - 1)
    said = scene.said("p")
    assert said is not None
    assert "" == said.spec.selected_node
    waits = "waiting for resource driver to provide information"
    assert scene.message("p").startswith(waits)
    scene.advance(1)
    said = scene.said("p")
    assert said is not None
    assert "" == said.spec.selected_node, "nothing is selected past a driver that is silent"
    since = "default/d of nic.example.com (no answer since "
    assert scene.message("p").startswith(f"{waits}: {since}")
    scene.advance(600)
    scene.answer("p", "d")
    scene.settle()
    said = scene.said("p")
    assert said is not None
    assert "n2" == said.spec.selected_node


@pytest.mark.behaviour("S0.13")
def test_what_one_driver_has_allocated_is_given_back_while_another_is_silent() -> None:
    """It was allocated in another round, for the same pod."""
    scene = Scene("n1", "n2", laws=False)
    scene.class_of("fabric")
    scene.class_of("nic")
    scene.class_of("disk")
    scene.pod("p", own=["fabric", "nic", "disk"])
    scene.settle()
    scene.allocate("p-own0", "n1", "p")
    scene.settle()
    scene.answer("p", "own1")
    scene.advance(29)
    assert [] == scene.flagged()
    scene.advance(2)
    assert ["p-own0"] == scene.flagged()
    why = scene.has("p-own0").metadata.annotations[DEALLOCATION_REQUESTED]
    assert "p-own2 of disk.example.com" in why


@pytest.mark.behaviour("S0.13", "S0.14")
def test_the_node_is_selected_as_soon_as_all_have_answered_and_nobody_refuses_it() -> None:
    scene = Scene("n1", "n2", "n3", laws=False)
    scene.class_of("fabric")
    scene.class_of("nic")
    scene.claim("c", "fabric")
    scene.claim("d", "nic")
    scene.pod("p", "c", "d")
    scene.settle()
    scene.answer("p", "c", "n1")
    scene.settle()
    scene.answer("p", "d", "n3")
    scene.settle()
    assert [{"selectedNode": "n2"}] == merged(scene.spec_writes("p"))


@pytest.mark.behaviour("S0.15")
def test_where_drivers_have_no_node_in_common_others_are_proposed() -> None:
    names = [f"n{i:03}" for i in range(200)]
    scene = Scene(*names, fabric=dict.fromkeys(names[:190], 1), nic=dict.fromkeys(names[189:], 1))
    scene.pod("p", own=["fabric", "nic"])
    scene.advance(1)
    assert names[189] == scene.node_of("p")
    # Where no node is left, that is said; all are asked about, a part of them at a time, less and
    # less often.
    scene.pod("q", own=["fabric", "nic"])
    scene.advance(10)
    assert "no suitable node" in scene.message("q")
    rounds = scene.said("q").spec.round  # type: ignore[union-attr]
    counts = []
    for _ in range(6):
        scene.advance(600)
        counts.append(scene.said("q").spec.round - rounds - sum(counts))  # type: ignore[union-attr]
    assert (counts, 2) == (sorted(counts, reverse=True), counts[-1])
    scene.driver("nic").devices[names[3]] = 1
    scene.advance(631)
    assert names[3] == scene.node_of("q")


# What is answered


@pytest.mark.behaviour("S0.16")
def test_an_old_answer_does_not_block_a_pod() -> None:
    scene = Scene("n1", fabric={"n1": 1})
    scene.pod("first", own=["fabric"])
    scene.settle()
    scene.pod("second", own=["fabric"])
    scene.advance(100)
    said = scene.said("second")
    assert said is not None
    assert ("n1",) == (said.status.resource_claims or ())[0].unsuitable_nodes
    scene.delete(Pod, "first")
    scene.advance(2)
    assert "n1" == scene.node_of("second")


@pytest.mark.behaviour("S0.16")
def test_nodes_that_were_refused_before_are_looked_at_again_though_nobody_asks() -> None:
    scene = Scene("n1", "n2", fabric={"n2": 1})
    scene.scheduler.stop()
    scene.claim("c")
    scene.pod("p", "c")
    said = select(scene, "p", potentialNodes=["n1"], round=1)
    scene.settle()
    said = scene.server.get(PodScheduling, "default/p")
    assert ("n1",) == said.status.resource_claims[0].unsuitable_nodes
    scene.write(patch_of(said, {"spec": {"potentialNodes": ["n2"], "round": 2}}))
    scene.settle()
    said = scene.server.get(PodScheduling, "default/p")
    assert ("n1",) == said.status.resource_claims[0].unsuitable_nodes
    scene.driver().devices["n1"] = 1
    scene.advance(31)
    said = scene.server.get(PodScheduling, "default/p")
    assert (None, 2) == (
        said.status.resource_claims[0].unsuitable_nodes,
        said.status.resource_claims[0].observed_round,
    )


@pytest.mark.behaviour("S0.17")
def test_a_driver_looks_again_every_30_seconds() -> None:
    scene = Scene("n1", fabric={})
    scene.pod("p", own=["fabric"])
    scene.advance(100)
    asked = scene.driver().asked
    scene.advance(300)
    assert asked + 10 == scene.driver().asked
    scene.driver().devices["n1"] = 1  # somebody has plugged it in: no event says so
    scene.advance(31)
    assert "n1" == scene.node_of("p")
    asked = scene.driver().asked
    scene.advance(300)
    assert asked == scene.driver().asked, "nobody wants to know any more"
