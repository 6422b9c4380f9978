"""What the fuzzer of histories has found, one test for each kind: objects that raised an error out
of a step, or an internal error, or were kept for ever."""

from typing import Any, Final

import msgspec
import pytest

from stower.devices.negotiation.claims import PodNegotiation, TreeRank
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.engine.groups.tree_preemption import TreePreemption
from stower.framework.events import Observed, Tick, WatchType
from stower.framework.writes import CreateObject
from stower.model.kinds import (
    Node,
    Pod,
    PodGroup,
    ResourceClaim,
    ResourceClass,
    ResourceSlice,
    WarmPool,
)
from stower.model.raw import decode
from stower.model.times import SECOND_NS
from stower.plugins.negotiated_trees import begin_attempt, known_of
from stower.state.tallies import TooManyVisits
from tests.builders import make_node, make_pod
from tests.device_builders import device, device_class, device_slice, request, resource_claim
from tests.fuzz.cluster import CODES, Act, Cluster
from tests.fuzz.kept import check_nothing_kept
from tests.fuzz.mutants import Change, text_of
from tests.fuzz.test_histories import check_history
from tests.group_builders import make_composite, make_group, members

BYSTANDER: Final = Act("bystander")


def shown(*objects: Any) -> Cluster:
    """A cluster to which these came, one after the other; and a bystander, who is bound at once."""
    cluster = Cluster()
    for obj in objects:
        cluster.server.put(obj)
        cluster.deliver()
    cluster.act(BYSTANDER)
    return cluster


def made(view: type[Any], name: str, **fields: Any) -> Any:
    """An object of namespace default."""
    meta = {"name": name, "namespace": "default", "uid": f"{view.__name__}-{name}"}
    meta |= fields.pop("metadata", {})
    return decode(text_of({"metadata": meta, **fields}), view)


def test_pod_group_with_two_topology_keys_under_a_composite_group() -> None:
    """Its scope is two levels below its parent's: the search raised a KeyError on each attempt."""
    group = make_group(
        "pp", parent="top", key="zone",
        annotations={"stower.dev/preferred-topology": "kubernetes.io/hostname"},
    )  # fmt: skip
    node = make_node("n1", labels={"zone": "z", "kubernetes.io/hostname": "n1"})
    cluster = shown(node, make_composite("top"), group, *members("pp", 1))
    assert "uid-of-default-pp-0" in cluster.bound


BAD: Final = ("Bogus", "", "1e", "--1")


@pytest.mark.parametrize("text", BAD)
@pytest.mark.parametrize("part", ["capacity", "policy", "counter", "consumed", "multiplier"])
def test_slice_with_an_unreadable_quantity_counts_as_none(part: str, text: str) -> None:
    """It raised an error in the state of devices, which ends the process."""
    one: Any = {"name": "d1"}
    more: dict[str, Any] = {}
    if part == "capacity":
        one["capacity"] = {"memory": {"value": text}}
    elif part == "policy":
        one["capacity"] = {"memory": {"value": "1Gi", "requestPolicy": {"default": text}}}
    elif part == "counter":
        more["sharedCounters"] = [{"name": "s", "counters": {"c": {"value": text}}}]
    elif part == "consumed":
        one["consumesCounters"] = [{"counterSet": "s", "counters": {"c": {"value": text}}}]
    else:
        one["nodeAllocatableResourceMappings"] = {"cpu": {"allocationMultiplier": text}}
    good = device_slice("n1", device("d0"), pool="zz")  # tried last
    pods = [make_pod(f"p{i}", resourceClaims=[{"name": "c", "resourceClaimName": f"c{i}"}])
            for i in range(2)]  # fmt: skip
    cluster = shown(
        make_node("n1"), device_class(), device_slice("n1", one, **more), good,
        *(resource_claim(f"c{i}", request()) for i in range(2)), *pods,
    )  # fmt: skip
    cluster.calm()
    assert [p.metadata.uid in cluster.bound for p in pods] == [True, False]


@pytest.mark.parametrize("text", BAD)
def test_claim_with_an_unreadable_quantity_counts_as_none(text: str) -> None:
    """A pod waits for it, and others have the devices."""
    claim = resource_claim("c1", request(memory=text))
    pods = [make_pod(f"p{i}", resourceClaims=[{"name": "c", "resourceClaimName": f"c{i}"}])
            for i in (1, 2)]  # fmt: skip
    cluster = shown(
        make_node("n1"), device_class(), device_slice("n1", device("d0", memory="1Gi")), claim,
        resource_claim("c2", request()), *pods,
    )  # fmt: skip
    cluster.calm()
    assert [p.metadata.uid in cluster.bound for p in pods] == [False, True]


def test_slices_that_exchange_their_pools() -> None:
    """Both were made anew, each under the name that the other had, before anybody asked."""
    claims = [resource_claim(f"c{i}", request()) for i in range(4)]
    pods = [make_pod(f"p{i}", resourceClaims=[{"name": "c", "resourceClaimName": f"c{i}"}])
            for i in range(4)]  # fmt: skip

    def slices(*pools: str) -> list[ResourceSlice]:
        return [
            msgspec.structs.replace(
                one, metadata=msgspec.structs.replace(one.metadata, name=f"s{i}")
            )
            for i, one in enumerate(device_slice("", device(f"d-{p}"), pool=p) for p in pools)
        ]

    cluster = shown(make_node("n1"), device_class(), *slices("a", "b"), *claims, pods[0])
    for one in slices("b", "a"):
        cluster.server.put(one)
    cluster.deliver()
    cluster.server.put(pods[1])
    cluster.deliver()
    for one in slices("c", "d"):
        cluster.server.put(one)
    cluster.server.put(pods[2])
    cluster.act(BYSTANDER)
    cluster.calm()
    assert all(pod.metadata.uid in cluster.bound for pod in pods[:3])


@pytest.mark.parametrize("node", ["", "n1"])
def test_pod_whose_namespace_changes_is_another_pod(node: str) -> None:
    """Groups are kept by namespace and name: the pod could not be taken out of its old one."""
    cluster = shown(make_node("n1"), make_group("g1", least=2), *members("g1", 1, node=node))
    (pod,) = members("g1", 1, namespace="b", uid="uid-of-default-g1-0", node=node)
    cluster.step(Observed(WatchType.MODIFIED, pod))
    cluster.step(Observed(WatchType.DELETED, pod))
    assert not cluster.engine.state.groups.members
    vms: Any = cluster.engine.state.companions["AutoscaleEnforcer"]
    assert not [name for name in vms._by_name if name[1].endswith("g1-0")]


def test_placeholder_whose_devices_cannot_be_judged_stays_where_it_is() -> None:
    """The plan of where placeholders would go meets the error that ends an attempt of their own."""
    node = make_node("n1")
    mapping = {"cpu": {"capacityKey": "memory"}}  # of a capacity that the device does not have
    bad = device("d0", nodeAllocatableResourceMappings=mapping)
    spec = {
        "users": {"matchLabels": {"role": "user"}},
        "placeholders": {"selector": {"matchLabels": {"role": "placeholder"}}},
    }
    placeholder = make_pod(
        "held", node="n1", labels={"role": "placeholder"}, priority=-10,
        resourceClaims=[{"name": "c", "resourceClaimName": "c1"}],
    )  # fmt: skip
    cluster = shown(
        node, make_node("n2"), device_class(), device_slice("", bad),
        resource_claim("c1", request()), make_pod("u", node="n2", labels={"role": "user"}),
        made(WarmPool, "w", spec=spec), placeholder,
    )  # fmt: skip
    for seconds in (10, 70, 70):
        cluster.now_ns += seconds * SECOND_NS
        cluster.act(Act("tick"))
    cluster.act(BYSTANDER)


def test_group_whose_pods_are_replaced_by_those_of_another_scheduler() -> None:
    """The tree went on with the profile of the first pod, whose plugins fail for the others."""
    first, *others = members("g1", 3)
    others = [
        msgspec.structs.replace(
            pod, spec=msgspec.structs.replace(pod.spec, scheduler_name="second")
        )
        for pod in others
    ]
    cluster = shown(make_node("n1"), make_group("g1", least=2), first, others[0])
    cluster.server.remove(first)
    cluster.deliver()
    cluster.now_ns += 60 * SECOND_NS
    cluster.act(Act("tick"))
    cluster.server.put(others[1])
    cluster.deliver()
    cluster.calm()
    assert all(pod.metadata.uid in cluster.bound for pod in others)


def test_group_whose_diagnosis_fails_is_refused_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What ends an attempt may come as late as in the diagnosis of one of the pods."""

    def fail(*_: Any) -> Any:
        raise TooManyVisits("too many pods to compare with")

    monkeypatch.setattr(SchedulingCycle, "diagnose", fail)
    monkeypatch.setattr(TreePreemption, "find", fail)
    pods = members("g1", 2, cpu="3", priority=5)
    group = make_group("g1", least=2, priority=5)
    cluster = shown(make_node("n1"), make_pod("low", cpu="2", node="n1"), group, *pods)
    cluster.settle()
    conditions = cluster.server.get(PodGroup, "default/g1").status.conditions
    assert "too many pods" in conditions[0].message


@pytest.mark.parametrize("volume", [{"rbd": {"monitors": ["m"], "image": "i"}},
                                    {"persistentVolumeClaim": {"claimName": "v"}}])  # fmt: skip
def test_placed_pod_whose_volumes_change(volume: Any) -> None:
    """No API server changes them; the pod could not be taken off its node any more."""
    cluster = shown(make_node("n1"))
    for name in ("a", "b"):
        one = make_pod(node="n1", volumes=[{"name": "v", **volume}])
        text = text_of(msgspec.to_builtins(one)).replace(b'"m"', f'"{name}"'.encode())
        pod = decode(text.replace(b'"v"', f'"{name}"'.encode()), Pod)
        cluster.server.put(pod)
        cluster.deliver()
    cluster.server.remove(pod)
    cluster.act(BYSTANDER)
    volumes = cluster.engine.state.volumes
    assert not volumes._disks
    assert not volumes._users


def test_placed_pod_whose_claim_is_another() -> None:
    """The claim that was made for a pod is named in its status."""

    def pod(claim: str) -> Pod:
        entry = {"name": "c", "resourceClaimName": claim}
        document = msgspec.to_builtins(
            make_pod(node="n1", resourceClaims=[{"name": "c", "resourceClaimTemplateName": "t"}])
        )
        document["status"] = {"resourceClaimStatuses": [entry]}
        return decode(text_of(document), Pod)

    cluster = shown(make_node("n1"), pod("c1"), pod("c2"))
    users = cluster.engine.state.devices._users
    assert [*users] == ["default/c2"]
    cluster.server.remove(pod("c2"))
    cluster.deliver()
    assert not users


def test_claim_of_extended_resources_whose_owner_changes() -> None:
    """The pod that it was made for does not have it any more."""
    notes = {"resource.kubernetes.io/extended-resource-claim": "true"}

    def claim(uid: str) -> ResourceClaim:
        owner = {"kind": "Pod", "name": "p", "uid": uid, "apiVersion": "v1", "controller": True}
        return made(
            ResourceClaim, "c1", metadata={"annotations": notes, "ownerReferences": [owner]}
        )

    cluster = shown(claim("u1"), claim("u2"))
    devices = cluster.engine.state.devices
    assert devices.extended_resource_claim("u1") is None
    assert devices.extended_resource_claim("u2") is not None
    cluster.server.remove(claim("u2"))
    cluster.deliver()
    assert not devices._extended_claim_by_pod


def test_label_of_the_last_pool_goes_with_it() -> None:
    """Nothing was done any more once there was no pool."""
    label = "example.com/warm"
    spec = {
        "users": {"matchLabels": {"role": "user"}}, "images": {"names": ["i"], "label": label},
    }  # fmt: skip
    pool = made(WarmPool, "w", spec=spec)
    cluster = shown(make_node("n1", labels={label: "true"}, images={"i": 1}), pool)
    cluster.server.remove(pool)
    cluster.deliver()
    for _ in range(3):
        cluster.now_ns += 10 * SECOND_NS
        cluster.act(Act("tick"))
        cluster.settle()
    assert label not in (cluster.server.get(Node, "n1").metadata.labels or {})
    warm: Any = cluster.engine.state.companions["WarmCapacity"]
    assert not warm._former
    assert warm.next_wake_ns is None


def test_images_that_no_node_has_are_not_kept() -> None:
    """Pods may name ever new ones."""
    known = [{"name": "i", "image": "example.com/i:1"}]
    pods = [make_pod(f"p{i}", image=f"example.com/i:{i}", initContainers=known) for i in range(20)]
    nodes = make_node("n1", images={"example.com/i:1": 10**9}), make_node("n2")
    cluster = shown(*nodes, *pods)
    assert [*cluster.engine.state.images._row_arrays] == ["example.com/i:1"]


def test_pod_that_another_vm_owns_now() -> None:
    """The pod of the first VM was remembered for ever."""

    def pod(vm: str) -> Pod:
        owner = {"apiVersion": "vm.neon.tech/v1", "kind": "VirtualMachine", "name": vm, "uid": vm,
                 "controller": True}  # fmt: skip
        document = msgspec.to_builtins(make_pod(node="n1"))
        document["metadata"]["ownerReferences"] = [owner]
        return decode(text_of(document), Pod)

    cluster = shown(make_node("n1"), pod("m1"), pod("m2"))
    vms: Any = cluster.engine.state.companions["AutoscaleEnforcer"]
    assert [*vms._approved._pods] == ["m2"]


def test_displaced_placeholders_are_forgotten_when_the_trial_ends() -> None:
    """A user's attempt left the rows of the placeholders, for ever and for the next trial."""
    spec = {
        "users": {"matchLabels": {"role": "user"}},
        "placeholders": {"selector": {"matchLabels": {"role": "placeholder"}}},
    }
    held = make_pod("held", node="n1", labels={"role": "placeholder"}, priority=-10)
    user = make_pod("u", labels={"role": "user"})
    cluster = shown(make_node("n1"), made(WarmPool, "w", spec=spec), held, user)
    assert user.metadata.uid in cluster.bound
    cluster.empty(by_list=False)
    check_nothing_kept(cluster.engine)


def test_pods_of_a_deleted_node_are_forgotten_when_they_are_deleted() -> None:
    """A node of the same name was begun only after pods that were gone had been seen there."""
    pod = make_pod("p", node="n1")
    cluster = shown(make_node("n1"), pod)
    vms: Any = cluster.engine.state.companions["AutoscaleEnforcer"]
    cluster.server.remove(make_node("n1"))
    cluster.deliver()
    cluster.server.put(make_node("n1"))
    cluster.deliver()
    assert pod.metadata.uid in vms.enforcer.nodes["n1"].node.pods
    cluster.server.remove(make_node("n1"))
    cluster.deliver()
    cluster.empty(by_list=True)
    check_nothing_kept(cluster.engine)


@pytest.mark.parametrize("code", [409, 404, 500])
def test_requests_of_a_negotiation_that_never_began_are_forgotten_with_the_pod(code: int) -> None:
    """Times of requests were forgotten only with a PodScheduling, which could not be created."""
    claim = resource_claim("c1", request(class_name="fabric"))
    pod = make_pod("p", resourceClaims=[{"name": "c", "resourceClaimName": "c1"}])
    resource_class = made(ResourceClass, "fabric", driverName="fabric.example.com")
    cluster = shown(make_node("n1"), resource_class, claim, pod)
    (index,) = (i for i, one in enumerate(cluster.unanswered) if isinstance(one, CreateObject))
    cluster.act(Act("answer", number=index, code=CODES.index(code)))
    cluster.empty(by_list=False)
    check_nothing_kept(cluster.engine)


def test_moves_of_placeholders_in_the_future_are_not_counted() -> None:
    """They would keep the placeholders of all pools in their places until then."""
    spec = {
        "users": {"matchLabels": {"role": "user"}},
        "placeholders": {"selector": {"matchLabels": {"role": "placeholder"}}},
    }
    moves = [{"pod": "default/p", "at": "2099-01-01T00:00:00Z", "to": "n1", "fromNode": "n2"}]
    pool = made(WarmPool, "w", spec=spec, status={"moves": moves})
    cluster = shown(make_node("n1"), pool)
    cluster.empty(by_list=False)
    check_nothing_kept(cluster.engine)


@pytest.mark.parametrize("change", ["placed by others", "deleted without its label"])
def test_pods_do_not_wait_for_a_pod_of_their_group_that_left(change: str) -> None:
    """They waited for ever for the pod to be bound with them, and held their nodes."""
    claims = [resource_claim(f"c{i}", request()) for i in range(2)]
    first, second = (
        members("g1", i + 1, resourceClaims=[{"name": "c", "resourceClaimName": f"c{i}"}])[i]
        for i in range(2)
    )
    slices = [device_slice(name, device("d")) for name in ("n1", "n2")]
    cluster = shown(
        make_node("n1"), make_node("n2"), device_class(), *slices, *claims,
        make_group("g1", least=2), first, second,
    )  # fmt: skip
    permit = cluster.engine.binding.permit
    assert len(permit.groups) == 2
    placed = cluster.server.get(Pod, first.metadata.key)
    if change == "placed by others":
        spec = msgspec.structs.replace(placed.spec, node_name="n1")
        cluster.server.put(msgspec.structs.replace(placed, spec=spec))
    else:
        document = msgspec.to_builtins(placed)
        document["metadata"]["labels"] = {}
        document["spec"].pop("schedulingGroup", None)
        cluster.server.put(decode(text_of(document), Pod))
        cluster.deliver()
        cluster.server.remove(placed)
    cluster.deliver()
    assert not permit.groups
    for _ in range(40):
        cluster.now_ns += 10 * SECOND_NS
        cluster.step(Tick())
        cluster.settle()
    assert (second.metadata.uid in cluster.bound) == (change == "placed by others")


def test_what_was_learned_about_a_group_is_not_known_of_another_of_its_name() -> None:
    """A group that was deleted and created again waited as long as the former one had to."""
    state = shown().engine.state
    first, again = (
        PodNegotiation(make_pod("p"), (), None, tree=TreeRank("PodGroup default/g", "", uid))
        for uid in ("u1", "u2")
    )
    begin_attempt([first], state, can_be_placed=True)
    assert known_of(first, state) is not None
    assert known_of(again, state) is None


def test_node_without_a_name_gives_its_row_back() -> None:
    """The names of free rows are empty, so that it was taken for one of them."""
    cluster = shown(make_node("n1"))
    for _ in range(2):
        cluster.server.put(make_node(""))
        cluster.deliver()
        cluster.server.remove(make_node(""))
        cluster.deliver()
    assert [*cluster.engine.state.row_by_name] == ["own", "n1"]


@pytest.mark.parametrize(("kind", "variant"), [(37, 98), (36, 99), (73, 276)])
def test_scenes_that_broke_a_law(kind: int, variant: int) -> None:
    """Histories as the fuzzer draws them, which begin and end with one scene."""
    check_history(Act("scene", kind, 0, variant, 0, 0), [])


def test_scenes_in_which_a_pod_of_a_group_is_placed_by_others() -> None:
    """See above; drawn by the fuzzer."""
    check_history(Act("scene"), [Act("scene", 15, 0, 3736), Act("scene", 0, 0, 2)])


def test_scene_in_which_a_migration_changes_its_namespace() -> None:
    """See above; it was kept under its old name for ever."""
    change = Change(place=29, what=0, value=0)
    check_history(Act("scene", 18), [Act("put", 57, 1, mutations=(change,))])


def test_scenes_in_which_images_are_pulled() -> None:
    """See above; the last times that a pull took are kept, PULLS_MAX of them."""
    again, other = Act("scene"), Act("scene", 0, 0, 1)
    check_history(Act("scene", 2), [again, again, other, Act("tick", 0, 0, 1), again])
