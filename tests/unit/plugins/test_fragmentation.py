"""Fragmentation in a profile: nodes and devices are chosen so that others still fit."""

from typing import Any

import numpy as np
import pytest

from stower.assembly import build_engine
from stower.devices.allocator import Candidate
from stower.devices.fit_cache import FitCache, Rules
from stower.devices.packing.book import Books
from stower.devices.requests import plan_of
from stower.engine.explain.explanation import explain
from stower.framework.device_gates import DeviceGates
from stower.framework.events import Listed
from stower.model.errors import InvalidObject
from stower.plugins.fragmentation import normalize_gains
from stower.state.device_usage import UNUSED
from tests.builders import make_node, make_pod
from tests.device_builders import (
    GPU,
    Agreeing,
    claiming,
    device,
    device_class,
    device_slice,
    request,
    resource_claim,
)


def configuration(mode: str = "dgf", **dynamic: Any) -> dict[str, Any]:
    """The default profile, in which Fragmentation decides."""
    configs = [{"name": "Fragmentation", "args": {"mode": mode}}]
    if dynamic:
        configs.append({"name": "DynamicResources", "args": dynamic})
    enabled = [{"name": "Fragmentation", "weight": 1000}]
    profile = {"plugins": {"multiPoint": {"enabled": enabled}}, "pluginConfig": configs}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }


def cluster(mode: str = "dgf", nodes: int = 2, devices: int = 2, **dynamic: Any) -> Agreeing:
    """Nodes n1, n2, ... with shared devices of 80Gi each, and a class of them."""
    names = [f"n{i + 1}" for i in range(nodes)]
    slices = [
        device_slice(name, *(device(f"d{i}", "80Gi", shared=True) for i in range(devices)))
        for name in names
    ]
    engine = build_engine(configuration(mode, **dynamic))
    return Agreeing(engine, device_class(), *map(make_node, names), *slices)


def place(api: Agreeing, name: str, count: int = 1, memory: str = "80Gi", cpu: str = "100m") -> str:
    """A pod that claims so many devices, or a part of each: where it went, and their names."""
    claim = resource_claim(f"c-{name}", request(count=count, memory=memory))
    api.put(claim)
    api.put(claiming(name, f"c-{name}", cpu=cpu))
    if name not in api.bound:
        return ""
    results = api.get(claim).status.allocation.devices.results
    return " ".join([api.bound[name], *(result.device for result in results)])


@pytest.mark.parametrize("mode", ["dgf", "fgd"])
def test_parts_share_a_device_where_whole_ones_are_asked_for(mode: str) -> None:
    """A device that nobody has a part of stays so."""
    api = cluster(mode)
    first = place(api, "whole", 2)
    assert first.endswith("d0 d1")
    place(api, "part-1", memory="40Gi")
    place(api, "part-2", memory="40Gi")
    assert place(api, "whole-2") != ""


@pytest.mark.parametrize("mode", ["dgf", "fgd"])
def test_a_part_goes_where_what_is_left_is_of_use(mode: str) -> None:
    """30 of 80 go beside 50, not beside 40, where the 10 that are left are of no use to anyone."""
    api = cluster(mode, nodes=1)
    for i in range(8):
        api.put(resource_claim(f"c-{i}", request(memory="40Gi")))
        api.put(claiming(f"never-{i}", f"c-{i}", nodeSelector={"no": "where"}))
    one = place(api, "fifty", memory="50Gi")
    two = place(api, "forty", memory="40Gi")
    assert one != two
    assert place(api, "thirty", memory="30Gi") == one
    assert place(api, "forty-2", memory="40Gi") == two


def test_an_order_of_devices_that_is_asked_for_is_kept() -> None:
    """deviceOrder says which device, whatever Fragmentation would say."""
    api = cluster(nodes=1, deviceOrder="FirstFit")
    assert place(api, "a", memory="50Gi") == "n1 d0"
    assert place(api, "b", memory="40Gi") == "n1 d1"
    assert place(api, "c", memory="30Gi") == "n1 d0"


def test_pods_without_claims_leave_the_cpu_beside_devices() -> None:
    """A node with devices is worth nothing without CPU."""
    api = cluster(nodes=1)
    api.put(make_node("a-plain"))
    place(api, "gpu", cpu="2")
    api.put(make_pod("cpu", cpu="2"))
    assert api.bound["cpu"] == "a-plain"


@pytest.mark.parametrize(("mode", "node"), [("dgf", "n2"), ("fgd", "n1")])
def test_pods_that_need_no_memory_leave_it_to_those_that_do(mode: str, node: str) -> None:
    """n2 has too little of it for what is asked for most. As published, FGD does not see that."""
    api = cluster(mode, nodes=0)
    for name, memory in (("n1", "8Gi"), ("n2", "1Gi")):
        api.put(make_node(name, memory=memory))
        api.put(device_slice(name, device("d0", "80Gi", shared=True)))
    for i in range(4):
        api.put(resource_claim(f"c-{i}", request(memory="80Gi")))
        api.put(claiming(f"never-{i}", f"c-{i}", memory="4Gi", nodeSelector={"no": "where"}))
    assert place(api, "little") == f"{node} d0"


@pytest.mark.parametrize("mode", ["dgf", "fgd"])
def test_the_same_events_place_alike(mode: str) -> None:
    """Two engines that are told the same decide the same."""

    def run() -> list[str]:
        api = cluster(mode, nodes=5, devices=4)
        sizes = ("20Gi", "50Gi", "80Gi", "30Gi", "8Gi")
        return [
            place(api, f"p{i}", 1 + i % 7 // 6, sizes[i * 7 % 5], f"{1 + i % 3}00m")
            for i in range(40)
        ]

    assert run() == run()


def test_a_mode_that_is_none_is_refused() -> None:
    """The message names the field."""
    with pytest.raises(InvalidObject, match=r"pluginConfig\[0\].args.mode"):
        build_engine(configuration("best"))


def test_the_best_row_is_one() -> None:
    """Equal gains: the lowest name has 100, and all others less."""
    gains = np.array([1.0, 3.0, 3.0, 2.0, -np.inf])
    name_of = "acbde".__getitem__
    none = np.zeros(5, np.bool_)
    assert [0, 99, 100, 49, 0] == normalize_gains(gains, none, name_of).tolist()
    spared = np.array([False, True, True, False, False])
    assert [0, 0, 0, 100, 0] == normalize_gains(gains, spared, name_of).tolist()
    assert [99, 100] == normalize_gains(np.ones(2), none[:2], "ba".__getitem__).tolist()
    assert [0, 100] == normalize_gains(np.array([0.0, 1.0]), ~none[:2], "ba".__getitem__).tolist()


def test_models_that_a_request_tells_apart_are_kept_for_it() -> None:
    """The kinds of devices follow the requests: at first all are alike, then one is scarce."""
    api = cluster(nodes=0)
    for name, model in (("n1", "old"), ("n2", "new"), ("n3", "old")):
        api.put(make_node(name))
        api.put(
            device_slice(
                name,
                *(
                    device(
                        f"d{i}", "80Gi", shared=True,
                        attributes={"model": {"string": model}, "uuid": {"string": f"{name}{i}"}},
                    )
                    for i in range(2)
                ),
            )
        )  # fmt: skip
    assert place(api, "first", memory="40Gi") != ""
    only_new = f'device.attributes["{GPU}"].model == "new"'
    asks = [{"cel": {"expression": only_new}}]
    for i in range(4):
        api.put(resource_claim(f"c-{i}", request(memory="40Gi", selectors=asks)))
        api.put(claiming(f"never-{i}", f"c-{i}", nodeSelector={"no": "where"}))
    where = [place(api, f"any-{i}", memory="40Gi") for i in range(4)]
    assert not [place for place in where if place.startswith("n2")]


@pytest.mark.parametrize("mode", ["dgf", "fgd"])
def test_to_be_asked_changes_nothing(mode: str) -> None:
    """Explanations between the decisions, and the decisions are the same."""

    def run(asks: bool) -> list[str]:
        api = cluster(mode, nodes=3, devices=4)
        sizes = ("20Gi", "50Gi", "80Gi", "30Gi", "8Gi")
        found = []
        for i in range(30):
            if asks:
                for claim in ("11Gi", "50Gi"):
                    api.put(resource_claim(f"what-{i}", request(memory=claim)))
                    engine = api.engine
                    pod = claiming(f"what-{i}", f"what-{i}")
                    explain(pod, engine.state, engine.cycle, engine.queue, engine.profiles)
                    api.remove(resource_claim(f"what-{i}"))
            found.append(place(api, f"p{i}", memory=sizes[i * 7 % 5]))
        return found

    assert run(False) == run(True)


def test_after_a_restart_the_mix_is_that_of_the_pods_that_are_there() -> None:
    """An engine that finds everything in place goes on as the one before."""
    before = cluster(nodes=3, devices=4)
    for i in range(12):
        place(before, f"p{i}", memory=("20Gi", "50Gi", "30Gi")[i % 3])
    after = Agreeing(build_engine(configuration()))
    after.objects = dict(before.objects)
    after.tell(Listed(tuple(before.objects.values())))
    for i in range(12, 20):
        name, memory = f"p{i}", ("20Gi", "50Gi", "30Gi")[i % 3]
        assert place(before, name, memory=memory) == place(after, name, memory=memory)


def test_the_device_is_the_one_for_which_the_node_was_chosen() -> None:
    """What is left of the node is worth what its score said."""
    api = cluster(nodes=3, devices=3)
    state = api.engine.state
    book = state.devices.extension(Books).book("dgf", DeviceGates())
    for i in range(20):
        place(api, f"p{i}", memory=("20Gi", "50Gi", "30Gi", "8Gi")[i % 4])
        pod, claim = claiming("next", "c-next"), resource_claim("c-next", request(memory="10Gi"))
        state.devices.put(claim)
        found = book.gains(pod, state.shapes.intern(pod), state, state.present[: state.row_limit])
        state.devices.drop(claim)
        if found is None or not np.isfinite(found[1]).any():
            continue
        row = int(found[0][found[1].argmax()])
        rank = book.prefer(state.shapes.intern(pod), state, row)
        plan = plan_of(claim, 0, state.devices.classes, DeviceGates())
        (alternative,) = plan.requests[0]
        views = state.devices.extension(FitCache).views(state, row, Rules(DeviceGates(), 1, None))
        ranks = []
        for record in views[0].records:
            use = state.devices.usage(views[0].pool.id).get(record.name, UNUSED)
            ranks.append(rank(alternative, Candidate(0, 0, record, use), {}))
        assert -found[1].max() == min(ranks)


def test_devices_of_a_new_kind_are_worth_something_at_once() -> None:
    """Weights are made anew when kinds come, not a hundred pods later."""
    api = cluster(nodes=1)
    for i in range(6):
        api.put(resource_claim(f"c-{i}", request(memory="40Gi")))
        api.put(claiming(f"never-{i}", f"c-{i}", nodeSelector={"no": "where"}))
    assert place(api, "first", memory="10Gi") == "n1 d0"
    api.put(make_node("n2"))
    larger = [device(f"d{i}", "160Gi", shared=True) for i in range(2)]
    api.put(device_slice("n2", *larger))
    assert place(api, "second", memory="10Gi") != ""
    packer = api.engine.state.devices.extension(Books).book("dgf", DeviceGates())._packer
    assert len(packer.shares) == 2
    assert all(packer._mode.device_worth(kind)[1000] > 0 for kind in range(2))
