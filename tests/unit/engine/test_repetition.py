"""Attempts and evictions that are not repeated while nothing has changed."""

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.framework.events import Listed, Observed, WatchType
from stower.framework.writes import DeletePod, PatchPodStatus
from stower.model.kinds import Pod
from tests.builders import make_node, make_pod
from tests.device_builders import Agreeing, claiming, device, device_class, device_slice
from tests.device_builders import resource_claim as claim

MODIFIED = WatchType.MODIFIED


def attempts_of(engine: Engine, pod: Pod) -> int:
    """How often a pod that waits was tried."""
    queued = engine.queue.get(pod.metadata.uid)
    assert queued is not None
    return queued.attempts


def test_a_pod_that_gives_up_its_nomination_and_preempts_elsewhere_is_tried_once() -> None:
    low = make_pod("low", cpu="2", node="n2")
    engine = build_engine()
    engine.step(Listed((make_node("n1", cpu="1"), make_node("n2", cpu="2"), low)), 0)
    preemptor = make_pod("high", cpu="2", priority=10, nominated="n1")
    writes = engine.step(Observed(WatchType.ADDED, preemptor), 0)
    evicted = [w.name for w in writes if isinstance(w, PatchPodStatus) and w.name == "low"]
    assert (["low"], 1) == (evicted, attempts_of(engine, preemptor))


def test_an_object_that_is_shown_twice_wakes_no_pod() -> None:
    few = device_slice("n1", device("gpu-0", "1Gi"))
    more = device_slice("n1", device("gpu-0", "2Gi"))
    waiting = claiming("p1", "c1")
    engine = build_engine()
    engine.step(Listed((make_node(), device_class(expression="false"), few, claim(), waiting)), 0)
    engine.step(Observed(MODIFIED, more), 20_000_000_000)
    assert 2 == attempts_of(engine, waiting)
    engine.step(Observed(MODIFIED, more), 60_000_000_000)
    assert 2 == attempts_of(engine, waiting)


def test_a_preemptor_evicts_no_more_while_the_devices_of_its_victim_are_released() -> None:
    """The victim's claim is allocated until the resource claim controller has seen its deletion."""
    victims = [claiming(f"low-{n}", f"c-{n}") for n in ("n1", "n2")]
    slices = [device_slice(n, device(f"gpu-{n}")) for n in ("n1", "n2")]
    claims = [claim("c-n1"), claim("c-n2"), claim("c-high")]
    nodes = (make_node("n1"), make_node("n2"))
    api = Agreeing(build_engine(), *nodes, device_class(), *slices, *claims, *victims)
    assert {"n1", "n2"} == set(api.bound.values())
    preemptor = claiming("high", "c-high", priority=10)
    api.put(preemptor)
    (name,) = [w.name for w in api.writes if isinstance(w, DeletePod)]
    (victim,) = [pod for pod in victims if pod.metadata.name == name]
    api.remove(victim)
    api.wait(30)
    assert [name] == [w.name for w in api.writes if isinstance(w, DeletePod)]
    assert "high" not in api.bound
    (own,) = [each for each in claims if name.endswith(each.metadata.name.removeprefix("c-"))]
    api.put(own)  # not allocated any more
    api.wait(30)
    assert {"low-n1": "n1", "low-n2": "n2", "high": api.bound[name]} == api.bound
