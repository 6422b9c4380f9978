"""The example drivers, asked as their controller asks them. On a cluster: tests/contract."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

EXAMPLE = Path(__file__).parents[1]
sys.path.insert(0, str(EXAMPLE))

from fabric import Fabric  # noqa: E402
from licences import Licences  # noqa: E402
from pairs import Pairs  # noqa: E402

from stower.driver import Allocation, Driver, Entry, MemoryLedger, RefusedError  # noqa: E402
from stower.driver.executor import call  # noqa: E402
from stower.driver.messages import AllocateCall, AllocateResult, DeallocateCall, DeallocateResult  # noqa: E402
from stower.model.kinds import Node, Pod, ResourceClaim, ResourceClass  # noqa: E402


def claim(name: str, device_class: str, count: int = 1) -> ResourceClaim:
    request = {"name": "r", "exactly": {"deviceClassName": device_class, "count": count}}
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    document = {"metadata": meta, "spec": {"devices": {"requests": [request]}}}
    return msgspec.convert(document, ResourceClaim)


def pod(*claims: ResourceClaim) -> Pod:
    entries = [{"name": c.metadata.name, "resourceClaimName": c.metadata.name} for c in claims]
    meta = {"name": "p", "namespace": "default", "uid": "uid-p"}
    return msgspec.convert({"metadata": meta, "spec": {"resourceClaims": entries}}, Pod)


def node(name: str, **labels: str) -> Node:
    return msgspec.convert({"metadata": {"name": name, "uid": name, "labels": labels}}, Node)


class Kept:
    """A driver and its ledger."""

    def __init__(self, driver: Driver, ledger: MemoryLedger | None = None) -> None:
        self.driver = driver
        self.ledger = ledger or MemoryLedger()
        driver.taken = self.ledger.entries

    def take(self, node: str, *claims: ResourceClaim) -> list[list[tuple[str, str, str]]] | str:
        """The devices of each claim, or why there are none."""
        entries = tuple(
            Entry(c.metadata.uid, c.metadata.namespace, c.metadata.name, node) for c in claims
        )
        answer = call(AllocateCall(1, claims, node, entries), self.driver, self.ledger)
        assert isinstance(answer, AllocateResult)
        return answer.error or [entry.devices for entry in answer.entries]

    def free(self, *claims: ResourceClaim) -> None:
        for one in claims:
            entry = self.ledger.entries[one.metadata.uid]
            assert DeallocateResult(1) == call(DeallocateCall(1, entry), self.driver, self.ledger)


def devices(*names: tuple[str, str]) -> list[list[tuple[str, str, str]]]:
    return [[("r", pool, name)] for pool, name in names]


def licences(**seats: int) -> Kept:
    driver = Licences()
    driver.classes = {
        name: msgspec.convert(
            {"metadata": {"name": name}, "driverName": "l", "parameters": {"seats": count}},
            ResourceClass,
        )
        for name, count in seats.items()
    }
    return Kept(driver)


def test_seats_are_counted_for_each_product() -> None:
    found = licences(cad=2, sim=1)
    a, b, c, s = claim("a", "cad"), claim("b", "cad"), claim("c", "cad"), claim("s", "sim")
    assert devices(("cad", "seat-0")) == found.take("n1", a)
    assert "no seat is left" == found.take("n2", b, c), "both or none"
    assert devices(("cad", "seat-1"), ("sim", "seat-0")) == found.take("n2", b, s)
    assert ["n1", "n2"] == [*found.driver.unsuitable_nodes(pod(c), [c], ["n1", "n2"])]
    found.free(a)
    assert [] == [*found.driver.unsuitable_nodes(pod(c), [c], ["n1", "n2"])]
    assert devices(("cad", "seat-0")) == found.take("", c)


def test_a_claim_has_as_many_as_it_asks_for_or_none(tmp_path: Path) -> None:
    found, some = licences(cad=3), claim("a", "cad", 2)
    both = [("r", "cad", "seat-0"), ("r", "cad", "seat-1")]
    assert [both] == found.take("n1", some) == found.take("n1", some)
    assert "no seat is left" == found.take("n1", claim("b", "cad", 2))
    made, some = fabric(tmp_path, a=3), claim("a", "acc", 2)
    assert [[("r", "a", "acc-0"), ("r", "a", "acc-1")]] == made.take("a-1", some)
    assert "1 accelerators left in rack 'a', want 2" == made.take("a-1", claim("b", "acc", 2))
    made.free(some)
    assert {} == attached(tmp_path)


def test_a_seat_that_is_asked_for_again_stays_the_same() -> None:
    found = licences(cad=3)
    a, b, c = claim("a", "cad"), claim("b", "cad"), claim("c", "cad")
    found.take("n1", a)
    found.take("n1", b)
    found.free(a)
    assert devices(("cad", "seat-1"), ("cad", "seat-0")) == found.take("n1", b, c)


def fabric(folder: Path, **racks: int) -> Kept:
    file = folder / "fabric.json"
    if racks:
        file.write_text(json.dumps({"racks": racks}))
    driver = Fabric(file, 0.0)
    driver.nodes = {
        "a-1": node("a-1", rack="a"),
        "b-1": node("b-1", rack="b"),
        "plain": node("plain"),
    }
    return Kept(driver)


def attached(folder: Path) -> Any:
    return json.loads((folder / "fabric.json").read_text()).get("attached", {})


def test_the_fabric_attaches_what_the_rack_of_a_node_has(tmp_path: Path) -> None:
    found = fabric(tmp_path, a=1, b=2)
    one, two = claim("one", "acc"), claim("two", "acc")
    names = ["a-1", "b-1", "plain", "gone"]
    unsuitable = found.driver.unsuitable_nodes(pod(one, two), [one, two], names)
    assert ["a-1", "plain", "gone"] == [*unsuitable]
    assert "1 accelerators left in rack 'a', want 2" == found.take("a-1", one, two)
    assert {} == attached(tmp_path)
    assert devices(("b", "acc-0"), ("b", "acc-1")) == found.take("b-1", one, two)
    assert [] == [*found.driver.unsuitable_nodes(pod(one), [one], ["b-1"])], "it has it already"
    found.free(one, two)
    assert {} == attached(tmp_path)
    assert devices(("b", "acc-0")) == found.take("", one), "for no pod: where most is left"


def test_an_attachment_that_was_cut_short_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = fabric(tmp_path, a=2)
    one, two = claim("one", "acc"), claim("two", "acc")
    keep, driver = Fabric.keep, found.driver

    def once(self: Fabric) -> None:
        keep(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(Fabric, "keep", once)
    with pytest.raises(KeyboardInterrupt):
        driver.allocate([one, two], "a-1")
    monkeypatch.setattr(Fabric, "keep", keep)
    assert {"uid-one/0": ["a", "acc-0"]} == attached(tmp_path)
    assert devices(("a", "acc-0"), ("a", "acc-1")) == fabric(tmp_path).take("a-1", one, two)


def test_nodes_of_the_rack_reach_what_is_attached(tmp_path: Path) -> None:
    given = fabric(tmp_path, a=1).driver.allocate([claim("one", "acc")], "a-1")
    assert [Allocation([("r", "a", "acc-0")], {"rack": "a"})] == given


SWITCHES: Mapping[str, Any] = json.loads((EXAMPLE / "pairs.json").read_text())


def test_a_pair_is_on_one_switch_or_nowhere() -> None:
    found = Kept(Pairs(dict(SWITCHES)))
    gpu, nic = claim("gpu", "gpu.pairs"), claim("nic", "nic.pairs")
    both = pod(gpu, nic)
    assert ["a-1", "none"] == [
        *found.driver.unsuitable_nodes(both, [gpu, nic], ["a-1", "b-1", "none"])
    ]
    assert "no switch has all of it" == found.take("a-1", gpu, nic)
    assert devices(("b-1/left", "gpu-0"), ("b-1/left", "nic-0")) == found.take("b-1", gpu, nic)
    other = [claim("gpu-2", "gpu.pairs"), claim("nic-2", "nic.pairs")]
    assert ["b-1"] == [*found.driver.unsuitable_nodes(pod(*other), other, ["b-1"])]
    with pytest.raises(RefusedError):
        found.driver.allocate(other, "")
    assert {"uid-gpu", "uid-nic"} == set(found.ledger.entries)


def test_a_claim_that_is_allocated_anew_is_put_beside_the_other_of_its_pod() -> None:
    """Also by a driver that was started in between."""
    switches = {"n": {s: {"gpu": 2, "nic": 2} for s in ("left", "right")}}
    found = Kept(Pairs(switches))
    gpu, nic = claim("gpu", "gpu.pairs"), claim("nic", "nic.pairs")
    filler = [claim(f"gpu-{n}", "gpu.pairs") for n in range(2)]
    found.take("n", *filler)
    found.take("n", gpu, nic)
    found.free(nic, *filler)
    again = Kept(Pairs(switches), found.ledger)
    assert [] == [*again.driver.unsuitable_nodes(pod(gpu, nic), [nic], ["n"])]
    assert devices(("n/right", "nic-0")) == again.take("n", nic)


@pytest.mark.parametrize("name", ["licences", "fabric", "pairs"])
def test_manifests_name_their_driver(name: str) -> None:
    documents = list(yaml.safe_load_all((EXAMPLE / f"{name}.yaml").read_text()))
    names = {d["driverName"] for d in documents if d["kind"] == "ResourceClass"}
    assert {f"{name}.example.com"} == names
    classes = {d["metadata"]["name"] for d in documents if d["kind"] == "ResourceClass"}
    asked = {
        request["exactly"]["deviceClassName"]
        for d in documents
        if d["kind"] == "ResourceClaimTemplate"
        for request in d["spec"]["spec"]["devices"]["requests"]
    }
    assert classes == asked


def test_what_the_page_shows_is_the_example() -> None:
    page = (EXAMPLE.parents[1] / "docs" / "drivers.md").read_text()
    blocks = [block.split("```")[0] for block in page.split("```python\n")[1:]]
    source = (EXAMPLE / "licences.py").read_text()
    assert [source] == blocks[:1]
    assert all(block in source for block in blocks)
