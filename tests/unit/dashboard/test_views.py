"""Views: each page about a part of a cluster, explanations of pods, what-if questions."""

import json
from typing import Any

import msgspec
import pytest

from stower.cli.recordings import rebuild_engine
from stower.dashboard import views
from stower.dashboard.source import Source
from stower.dashboard.views import ADDED_MAX, VIEWS, View
from stower.model.errors import InvalidObject
from tests.builders import make_node, make_pod
from tests.device_builders import claiming, device, device_class, device_slice, resource_claim
from tests.group_builders import make_group, members
from tests.negotiation.scenes import Scene
from tests.unit.dashboard.sources import Still
from tests.vms.rig import vm_pod
from tests.warm.rig import Hub


def seen(
    name: str, source: Source, details: dict[str, Any] | None = None, **query: str
) -> dict[str, Any]:
    """Returns the JSON that a page gets."""
    found = VIEWS[name](View(source, rebuild_engine, details or {}), query)
    shown: dict[str, Any] = json.loads(msgspec.json.encode(found))
    return shown


# The parts of a cluster


@pytest.mark.parametrize("name", ["groups", "negotiations", "vms", "warm"])
def test_a_view_of_absent_objects_is_empty(name: str) -> None:
    assert {"rows": [], "more": 0} == seen(name, Still(make_node(), make_pod()))


def test_the_view_of_groups_has_state_and_message_of_each_group() -> None:
    source = Still(
        make_node("n1"), make_group("placed", 2), *members("placed", 2, node="n1"),
        make_group("waits", 2), *members("waits", 1),
    )  # fmt: skip
    rows = {row["name"]: row for row in seen("groups", source)["rows"]}
    placed, waits = rows["default/placed"], rows["default/waits"]
    assert ("placed", 2, 2) == (placed["state"], placed["have"], placed["count"])
    assert ("waiting", 0, 1) == (waits["state"], waits["have"], waits["waiting"])
    assert "waiting for minCount pods" in waits["message"]


def test_a_view_has_a_maximum_of_rows_and_the_number_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(views, "ROWS_MAX", 2)
    found = seen("groups", Still(*(make_group(f"g{number}") for number in range(5))))
    assert (2, 3) == (len(found["rows"]), found["more"])


def test_the_view_of_devices_has_the_claims_and_pods_of_each_device() -> None:
    allocation = {"devices": {"results": [
        {"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "g1"},
    ]}}  # fmt: skip
    status = {"allocation": allocation, "reservedFor": [
        {"resource": "pods", "name": "p1", "uid": "uid-of-default-p1"},
    ]}  # fmt: skip
    source = Still(
        make_node("n1"), device_class(), device_slice("n1", device("g1"), device("g2")),
        resource_claim("c1", status=status), claiming("p1", "c1", node="n1"),
    )  # fmt: skip
    found = seen("devices", source)
    holders = {row["device"]: row["holders"] for row in found["rows"]}
    assert ("default/c1", ["p1"]) == (holders["g1"][0]["claim"], holders["g1"][0]["pods"])
    assert [] == holders["g2"]
    assert ["n1"] == [pool["pool"] for pool in found["pools"]]
    assert {"rows": [], "more": 0, "pools": []} == seen("devices", Still(make_node()))


def test_the_view_of_negotiations_has_the_state_of_each_claim() -> None:
    scene = Scene("n1", "n2", laws=False, fabric={"n1": 1})
    scene.drivers["fabric.example.com"].stop()
    scene.claim("c")
    scene.pod("p", "c")
    scene.settle()
    source = Still(*scene.server.list_objects(), engine=scene.engine)
    (talk,) = seen("negotiations", source)["rows"]
    assert ("default/p", 2) == (talk["pod"], talk["candidates"])
    (claim,) = talk["claims"]
    assert ("default/c", "fabric.example.com", "silent") == (
        claim["claim"], claim["driver"], claim["state"]
    )  # fmt: skip
    assert [talk] == seen("pod", source, pod="default/p")["negotiation"]


def test_the_view_of_vms_has_requested_and_approved_resources() -> None:
    pod = vm_pod("vm1", node="n1", use=(1, 2), requested=(2, 4), approved=(1, 2))
    (row,) = seen("vms", Still(make_node("n1"), pod))["rows"]
    assert ("default/vm1", "vm1-pod", "n1") == (row["vm"], row["pod"], row["node"])
    assert ({"cpu": 2, "memory": "4Gi"}, {"cpu": 1, "memory": "2Gi"}) == (
        row["requested"], row["approved"]
    )  # fmt: skip


def test_the_view_of_warm_pools_has_each_node_and_the_node_of_the_next_user() -> None:
    hub = Hub()
    hub.drawn("UP+ PP+")
    source = Still(*hub.server.list_objects(), engine=hub.engine)
    (pool,) = seen("warm", source)["rows"]
    assert ["UP+", "PP+"] == [node["drawn"] for node in pool["nodes"]]
    assert (1, 3, "n1") == (pool["users"], pool["placed"], pool["nextUser"])
    source.engine = None
    assert {"rows": [], "more": 0} == seen("warm", source), "without an engine"


# One pod


def test_an_unschedulable_pod_is_explained_with_helpful_changes() -> None:
    source = Still(make_node("n1", cpu="2"), make_pod("huge", cpu="5"))
    found = seen("pod", source, pod="default/huge")
    assert ("unschedulable", 1, ["NodeResourcesFit"]) == (
        found["place"], found["attempts"], found["refusedBy"]
    )  # fmt: skip
    explanation = found["explanation"]
    assert ("refused", 1, 0) == (
        explanation["verdict"], explanation["nodes"], explanation["feasible"]
    )  # fmt: skip
    (change,) = explanation["changes"]
    assert "n1" == change["node"]
    assert not {"pod", "objects", "gone"} & change.keys(), "whole objects are removed"
    assert ["default/huge"] == [one["pod"] for one in found["decisions"]]


def test_a_placed_pod_has_an_explanation_and_a_timeline() -> None:
    source = Still(make_node("n1"))
    source.now_ns = 1_790_000_000 * 10**9
    pod = make_pod("p")
    source.add(pod)
    details = {"metadata": {"creationTimestamp": "2026-09-21T14:13:19Z"}}
    found = seen("pod", source, details, pod="default/p")
    assert ("placed", "n1") == (found["explanation"]["verdict"], found["explanation"]["node"])
    assert ["created", "attempt 1: placed"] == [one["what"] for one in found["timeline"]]
    assert "on n1" == found["timeline"][1]["text"]


def test_an_unknown_pod_has_no_explanation() -> None:
    source = Still(make_node("n1"), make_pod("p"))
    found = seen("pod", source, pod="default/none")
    assert ("not in the queue", [], []) == (found["place"], found["decisions"], found["timeline"])
    assert "explanation" not in found
    source.engine = None
    assert "explanation" not in seen("pod", source, pod="default/p")


# What if


def cluster() -> Still:
    """Returns a source with two nodes, a pod on each, and a pod that fits on an empty node only."""
    return Still(
        make_node("a", cpu="2"), make_node("b", cpu="2"), make_pod("on-a", cpu="1", node="a"),
        make_pod("on-b", cpu="1", node="b"), make_pod("waits", cpu="2"),
        make_pod("ended", cpu="1", node="a", phase="Succeeded"),
    )  # fmt: skip


def test_what_if_adds_nodes_to_a_copy() -> None:
    source = cluster()
    found = seen("what-if", source, add="2", like="a")
    assert ((2, 2, 1), (4, 3, 0)) == tuple(
        (found[when]["nodes"], found[when]["running"], found[when]["pending"])
        for when in ("before", "after")
    )
    assert 1 == found["newlyPlaced"]["count"]
    assert "default/waits" == found["newlyPlaced"]["rows"][0]["pod"]
    assert source.engine is not None
    assert 2 == len([*source.engine.state.present_rows()]), "the source is unchanged"


def test_what_if_removes_nodes_from_a_copy() -> None:
    found = seen("what-if", cluster(), remove="a,")
    assert (2, 1) == (found["before"]["nodes"], found["after"]["nodes"])
    assert [("default/on-a", "a", "b")] == [
        (row["pod"], row["before"], row["after"]) for row in found["moved"]["rows"]
    ]


def test_what_if_places_pods_again_with_other_weights() -> None:
    source = Still(
        make_node("image", cpu="4", images={"app:1": 200 << 20}), make_node("empty", cpu="4"),
        *(make_pod(f"p{n}", cpu="1", node="image", image="app:1") for n in range(3)),
    )  # fmt: skip
    kept = seen("what-if", source, weight="ImageLocality=100")
    assert 0 == kept["moved"]["count"], "placed pods keep their node unless `anew` is set"
    anew = seen("what-if", source, weight="ImageLocality=100", anew="")
    assert (0, 1) == (anew["before"]["emptyNodes"], anew["after"]["emptyNodes"])
    assert {("empty", "image")} == {
        (row["before"], row["after"]) for row in anew["moved"]["rows"]
    }  # fmt: skip


def test_what_if_has_a_maximum_of_rows_and_the_number_of_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(views, "ROWS_MAX", 1)
    pods = [make_pod(f"p{number}", cpu="100m", node="a") for number in range(3)]
    found = seen("what-if", Still(make_node("a"), make_node("b"), *pods), remove="a")
    assert (3, 1) == (found["moved"]["count"], len(found["moved"]["rows"]))


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ({"add": "many"}, "add"),
        ({"add": "-1"}, "add"),
        ({"add": "²"}, "add"),
        ({"add": str(ADDED_MAX + 1)}, "add"),
        ({"add": "0" * 7}, "add"),
        ({"add": "1", "like": "nobody"}, "nobody"),
        ({"remove": "nobody"}, "nobody"),
        ({"weight": "Nothing=1"}, "Nothing"),
        ({"weight": "ImageLocality"}, "ImageLocality"),
    ],
)
def test_an_invalid_what_if_is_refused(query: dict[str, str], path: str) -> None:
    with pytest.raises(InvalidObject, match=path):
        seen("what-if", cluster(), **query)
