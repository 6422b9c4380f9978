"""Groups whose pods have devices: what is known of devices as amounts."""

from typing import Any

import msgspec
import pytest

from stower.assembly import build_engine
from stower.framework.events import WriteFailed
from stower.framework.writes import PatchObject
from stower.model.kinds import Node, Pod, ResourceSlice
from tests.builders import make_node
from tests.device_builders import (
    Agreeing,
    claiming,
    device,
    device_class,
    device_slice,
    resource_claim,
)
from tests.group_builders import RACK, make_group, members


def cluster(*objects: Any) -> Agreeing:
    return Agreeing(build_engine(), *objects)


def test_that_devices_for_an_extended_resource_run_out_is_proved_at_once() -> None:
    """On one node the resource is there without devices."""
    plain = make_node("c0", labels={RACK: "c"}, example__com_gpu="1")
    api = Agreeing(
        build_engine(),
        *(make_node(f"{rack}0", labels={RACK: rack}) for rack in "ab"),
        plain,
        *(device_slice(f"{rack}0", device("d")) for rack in "ab"),
        device_class(extendedResourceName="example.com/gpu"),
        make_group("g", 2, key=RACK),
        *members("g", 2, requests={"example.com/gpu": "1"}),
    )
    assert {} == api.bound
    needs = "PodGroup default/g needs 2 pods in one rack, 1 fit"
    assert f"{needs}: Insufficient devices of gpu.example.com" in api.messages["g-0"]
    api.put(device_slice("b0", device("d"), device("e")))
    api.wait(10)
    assert {"b0"} == set(api.bound.values())


def fabric(name: str, *nodes: str) -> Any:
    """A pool with one channel, which reaches these nodes."""
    term = {"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [*nodes]}
    ]}  # fmt: skip
    made = device_slice("", device(f"channel-{name}"), pool=name)
    spec = msgspec.json.decode(msgspec.json.encode(made.spec))
    spec.pop("allNodes", None)
    spec["nodeSelector"] = {"nodeSelectorTerms": [term]}
    data = {"metadata": {"name": name, "uid": f"s-{name}"}, "spec": spec}
    return msgspec.convert(data, ResourceSlice)


def sharing(count: int, claim: str = "c1", of: str = "g", **fields: Any) -> list[Pod]:
    """Pods of a group that use one claim."""
    group = {"podGroupName": of}
    return [claiming(f"{of}-{i}", claim, schedulingGroup=group, **fields) for i in range(count)]


def host(name: str, cpu: str = "8") -> Node:
    return make_node(name, cpu=cpu, labels={"kubernetes.io/hostname": name})


def test_pods_of_a_gang_share_a_claim_that_nobody_has_allocated() -> None:
    """It is allocated with the first of them, and counted once: the node has one device."""
    claim = resource_claim()
    api = cluster(
        make_node("n1", cpu="8"), make_node("n2", cpu="8"), device_class(),
        device_slice("n1", device("a")), claim, make_group("g", 3), *sharing(3),
    )  # fmt: skip
    assert {"n1"} == set(api.bound.values())
    assert 3 == len(api.bound)
    status = api.get(claim).status
    assert {"g-0", "g-1", "g-2"} == {consumer.name for consumer in status.reserved_for}


def test_a_gang_that_shares_a_channel_is_where_one_channel_reaches() -> None:
    """The first fabric has the emptier nodes, and too little room for all."""
    claim = resource_claim()
    api = cluster(
        *(host(f"a{i}", "7") for i in range(2)), *(host(f"b{i}", "4") for i in range(4)),
        device_class(), fabric("a", "a0", "a1"), fabric("b", "b0", "b1", "b2", "b3"), claim,
        make_group("g", 8), *sharing(8, cpu="2500m"),
    )  # fmt: skip
    assert {} == api.bound, "four fit in each fabric"
    api.put(make_group("h", 4))
    api.put(resource_claim("c2"))
    for pod in sharing(4, "c2", "h", cpu="4"):
        api.put(pod)
    assert {"b0", "b1", "b2", "b3"} == set(api.bound.values())


def test_as_many_pods_as_a_claim_may_have_share_it() -> None:
    """None of them writes on the version that another has written on."""
    claim = resource_claim()
    api = cluster(
        make_node("n1", cpu="99", pods="300", memory="99Gi"), device_class(),
        device_slice("n1", device("a")), claim, make_group("g", 60), *sharing(60, cpu="1"),
    )  # fmt: skip
    assert 60 == len(api.bound)
    statuses = [w for w in api.writes if isinstance(w, PatchObject) and w.subresource == "status"]
    assert 60 == len([w for w in statuses if w.uid == claim.metadata.uid])


@pytest.mark.parametrize("code", [500, 403])
def test_pods_that_share_a_claim_are_placed_after_writes_that_fail(code: int) -> None:
    """The first write hangs, so that another pod writes on the same version; the first may have
    been carried out, the second was not. The claim stayed assumed for ever."""
    claim = resource_claim()
    api = Holding(
        build_engine(), make_node("n1", cpu="8"), device_class(), device_slice("n1", device("a")),
        claim, make_group("g", 2),
    )  # fmt: skip
    api.holds = lambda write: write.uid == "u-c1" and write.subresource == "status"
    for pod in sharing(2):
        api.put(pod)
    api.wait(4)
    first, second = api.held
    api.holds = lambda write: False
    api.tell(WriteFailed(first.id, 504, "timeout"))
    api.tell(WriteFailed(second.id, code, "refused"))
    for _ in range(10):
        api.wait(20)
    assert 2 == len(api.bound)
    assert api.engine.state.devices.assumed_claim("default/c1") is None


class Holding(Agreeing):
    """An API that carries out some writes later."""

    def __init__(self, *arguments: Any) -> None:
        self.holds: Any = lambda write: False
        self.held: list[Any] = []
        super().__init__(*arguments)

    def _carry_out(self, write: Any) -> None:
        if isinstance(write, PatchObject) and self.holds(write):
            self.held.append(write)
        else:
            super()._carry_out(write)
