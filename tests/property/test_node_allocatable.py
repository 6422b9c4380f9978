"""Nodes whose CPUs are devices too: whoever comes and goes, none is filled twice (KEP-5517)."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from stower.framework.events import Listed
from stower.framework.writes import Bind, PatchObject, PatchPodStatus, Write
from stower.model.kinds import Node, Pod
from stower.model.resources import amounts, pod_requests
from stower.sim.checkers.checker import describe_shortage, sum_requests
from tests.builders import make_node, make_pod
from tests.device_builders import Agreeing, device_class, device_slice, resource_claim
from tests.unit.engine.test_node_allocatable import engine, mapped, using

NODES = ("n1", "n2")
FAILING = (Bind, PatchObject, PatchPodStatus)
CODES = (0, 0, 400, 409)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("claiming"), st.integers(0, 5), st.sampled_from((0, 9))),
        st.tuples(st.just("plain"), st.integers(0, 5), st.sampled_from((0, 5))),
        st.tuples(st.just("gone"), st.integers(0, 11)),
        st.tuples(st.just("failing"), st.sampled_from(FAILING), st.sampled_from(CODES)),
        st.tuples(st.just("restart")),
        st.tuples(st.just("wait")),
    ),
    max_size=20,
)


def world() -> Agreeing:
    """Two nodes with 4 CPUs, of which devices stand for 2 or need 1500m each."""
    devices = [mapped(f"d{i}", cpu=("", each)) for i, each in enumerate(("2", "1500m", "2"))]
    nodes = [make_node(name, cpu="4") for name in NODES]
    slices = [device_slice(name, *devices) for name in NODES]
    return Agreeing(engine(), device_class(), *nodes, *slices)


def restarted(api: Agreeing) -> Agreeing:
    again = Agreeing(engine())
    again.objects, again.refuses = dict(api.objects), api.refuses
    again._version, again.now_ns = api._version, api.now_ns
    again.tell(Listed(tuple(again.objects.values())))
    return again


def placed(api: Agreeing, name: str) -> list[Pod]:
    """The pods of a node, as the API has them."""
    pods = [obj for obj in api.objects.values() if isinstance(obj, Pod)]
    return [pod for pod in pods if pod.spec.node_name == name]


def check(api: Agreeing) -> None:
    """No node has less than its pods take, which say so; what the engine counts is what the objects
    say, and what was decided and is not bound yet."""
    state = api.engine.state
    for name in NODES:
        node = next(
            o for o in api.objects.values() if isinstance(o, Node) and o.metadata.name == name
        )
        assert "" == describe_shortage(node, placed(api, name))
        for pod in placed(api, name):
            told = pod.status.node_allocatable_resource_claim_statuses or ()
            claims = [ref.resource_claim_name for ref in pod.spec.resource_claims or ()]
            assert claims == [part.resource_claim_name for part in told]
        row = state.row_of(name)
        assumed = [entry for entry in state.pods_on(row) if entry.is_assumed]
        extra = sum(
            amounts(pod_requests(e.pod, claimed=e.claimed_resources)).get("cpu", 0)
            for e in assumed
            if not api.objects[e.uid].spec.node_name
        )
        assert (
            sum_requests(placed(api, name)).get("cpu", 0) + extra
            == state.column("cpu").requested_cells[row]
        )
        assert (
            state.column("cpu").requested_cells[row] <= state.column("cpu").allocatable_cells[row]
        )


def is_own(write: Write) -> bool:
    """Not what preemption writes to its victims, and writes again at once where it is refused."""
    return not isinstance(write, PatchPodStatus) or write.claimed is not msgspec.UNSET


def apply(api: Agreeing, kind: str, *args: Any) -> Agreeing:
    """One thing that happens."""
    if kind == "claiming" and f"uid-of-default-c{args[0]}" not in api.objects:
        claim = resource_claim(f"c{args[0]}")
        if claim.metadata.uid not in api.objects:
            api.put(claim)
        api.put(using(f"c{args[0]}", f"c{args[0]}", cpu="500m", priority=args[1]))
    elif kind == "plain" and f"uid-of-default-p{args[0]}" not in api.objects:
        api.put(make_pod(f"p{args[0]}", cpu="1500m", priority=args[1]))
    elif kind == "gone":
        name = f"{'cp'[args[0] % 2]}{args[0] // 2}"
        pod = api.objects.get(f"uid-of-default-{name}")
        if pod is not None:
            api.remove(pod)
    elif kind == "failing":
        failing, code = args
        api.refuses = lambda write: code if isinstance(write, failing) and is_own(write) else 0
    elif kind == "restart":
        return restarted(api)
    elif kind == "wait":
        api.wait(30)
    return api


@settings(max_examples=60, deadline=None)
@given(steps)
def test_no_node_is_filled_twice(history: list[tuple[Any, ...]]) -> None:
    """Whatever is refused, and wherever a scheduler ends."""
    api = world()
    for step in history:
        api = apply(api, *step)
        check(api)
