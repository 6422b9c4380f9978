"""Devices that stand in for extended resources: caches say what the plugins say."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stower.assembly import build_profiles
from stower.engine.cycle import reference
from stower.engine.cycle.scheduling_cycle import SchedulingCycle
from stower.framework.configuration import read_configuration
from stower.framework.plugin import Features
from stower.framework.profile import DEFAULT_SCHEDULER_NAME
from stower.model.kinds import DeviceClass
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry
from tests.builders import make_node, make_pod
from tests.device_builders import device, device_class, device_slice, resource_claim

GPU, NIC = "example.com/gpu", "example.com/nic"
PROFILE = build_profiles(read_configuration(None), Features())[DEFAULT_SCHEDULER_NAME]


def node(name: str, gpu: str | None, nic: str | None) -> Any:
    """A node that lists so much of each resource, or nothing of it."""
    listed = {"example_com__gpu": gpu, "example_com__nic": nic}
    return make_node(name, **{key: value for key, value in listed.items() if value is not None})


def stands_for(name: str, resource: str | None) -> DeviceClass:
    """A class that stands for a resource, or for none."""
    return device_class(name, **({"extendedResourceName": resource} if resource else {}))


NODES = st.sampled_from(("n1", "n2", "n3"))
AMOUNTS = st.sampled_from((None, "0", "1", "2"))
CLASSES = st.sampled_from(("a", "b"))
STEPS = st.one_of(
    st.builds(lambda *args: ("node", node(*args)), NODES, AMOUNTS, AMOUNTS),
    st.builds(lambda *args: ("put", stands_for(*args)), CLASSES, st.sampled_from((None, GPU, NIC))),
    st.builds(lambda name: ("drop", stands_for(name, None)), CLASSES),
    st.builds(
        lambda name, count: ("put", device_slice(name, *(device(f"d{i}") for i in range(count)))),
        NODES,
        st.integers(0, 3),
    ),
    st.builds(lambda name, gpus: ("place", (name, gpus)), NODES, st.integers(1, 2)),
)


def apply(state: ClusterState, number: int, what: str, value: Any) -> None:
    """One change of the world."""
    if what == "node":
        state.set_node(value)
    elif what == "put":
        state.devices.put(value)
    elif what == "drop":
        if value.metadata.name in state.devices.classes:
            state.devices.drop(value)
    else:
        name, count = value
        state.add_placed(make_pod(f"placed-{number}", node=name, requests={GPU: str(count)}))


@given(st.lists(STEPS, max_size=12), st.integers(0, 2), st.integers(0, 2), st.booleans())
def test_a_cached_cycle_chooses_among_the_same_rows(
    steps: list[tuple[str, Any]], gpus: int, nics: int, claims: bool
) -> None:
    state = ClusterState()
    cycle = SchedulingCycle(state, 0)
    named = [{"name": "d", "resourceClaimName": "c1"}] if claims else []
    pod = make_pod(requests={GPU: str(gpus), NIC: str(nics)}, resourceClaims=named)
    state.devices.put(resource_claim())
    state.devices.put(device_class())
    entry = PodEntry(pod, state.shapes.intern(pod))
    for number, (what, value) in enumerate(steps):
        apply(state, number, what, value)
        verdict = reference.judge(PROFILE, state, entry.shape, pod)
        assert verdict.feasible.tolist() == (cycle.scores_of(PROFILE, entry) >= 0).tolist()
        for row in state.present_rows():
            runs = [
                run(row).code()
                for plugin in PROFILE.filters
                if plugin.is_relevant(entry.shape)
                and (run := plugin.dry_runs(pod, entry.shape, state)) is not None
            ]
            if verdict.pre_filter is None and not any(runs):
                assert verdict.feasible[row]
