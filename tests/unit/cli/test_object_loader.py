"""The loader of `stower load`: rates, traces, and servers that cannot take an object now."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from stower.cli.inputs import RawObject
from stower.cli.kube import Kube
from stower.cli.object_loader import PATIENCE_SECONDS, Loader, discover, prepare_pod
from stower.live.client import Response
from stower.sim.workload import RUN
from tests.unit.live.fake_api import PODS, FakeApi
from tests.virtual_loop import VirtualLoop

CRD = "apiextensions.k8s.io/v1"


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.end()


def raw(
    body: dict[str, Any] | bytes, created_s: float | None = None, deleted_s: float | None = None
) -> RawObject:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return RawObject("a.json", data, created_s, deleted_s)


def pod(name: str, requests: dict[str, str] | None = None, **meta: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": requests or {}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta},
            "spec": {"containers": [container]}}  # fmt: skip


def names(fake: FakeApi) -> list[str]:
    return sorted(item["metadata"]["name"] for item in fake.call("GET", PODS)["items"])


class Loads:
    """A loader on a fake, whose clock the test advances."""

    def __init__(self, loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop, self.fake = loop, FakeApi()
        # The fake stands in for a client: it has the same methods.
        kube = Kube(self.fake)  # type: ignore[arg-type]
        self.loader = Loader(kube, "default", loop.run(discover(kube)))
        self.counts: list[int] = []
        monkeypatch.setattr("stower.cli.object_loader.time.monotonic", loop.time)

    def run(self, *objects: RawObject, rate: float = 0, speed: float = 0) -> None:
        self.task = self.loop.create_task(self.loader.run(objects, rate, speed, self.counts.append))
        self.loop.turns()

    @property
    def figures(self) -> tuple[int, int, int]:
        result = self.loader.result
        return result.created, result.already_there, result.failed


@pytest.fixture
def loads(loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch) -> Loads:
    return Loads(loop, monkeypatch)


def test_pods_are_created_at_the_rate(loads: Loads) -> None:
    loads.run(*(raw(pod(f"p{n}")) for n in range(5)), rate=2)
    assert ["p0"] == names(loads.fake)
    loads.loop.advance(1.1)
    assert ["p0", "p1", "p2"] == names(loads.fake)
    loads.loop.advance(1.0)
    assert (5, True) == (len(names(loads.fake)), loads.task.done())
    assert (2.0, 5) == (pytest.approx(loads.loader.result.seconds, abs=0.01), loads.counts[-1])


def test_pods_of_a_trace_come_at_its_times(loads: Loads) -> None:
    loads.run(raw(pod("a"), 100.0, 160.0), raw(pod("b"), 130.0), speed=10)
    assert ["a"] == names(loads.fake)
    loads.loop.advance(3.01)
    assert ["a", "b"] == names(loads.fake)
    found = loads.fake.call("GET", f"{PODS}/a")
    assert ("6.000", "Never") == (
        found["metadata"]["annotations"][RUN], found["spec"]["restartPolicy"],
    )  # fmt: skip


def test_devices_of_a_trace_get_limits_and_running_times_are_scaled() -> None:
    requests = {"cpu": "1", "nvidia.com/gpu": "2"}
    found = json.loads(prepare_pod(raw(pod("a", requests, annotations={RUN: "30"}), 0.0), 10))
    assert {"nvidia.com/gpu": "2"} == found["spec"]["containers"][0]["resources"]["limits"]
    assert "3.000" == found["metadata"]["annotations"][RUN]


@pytest.mark.parametrize(
    "answer",
    [
        Response(429, b'{"message": "too many requests"}'),
        Response(503, b'{"message": "starting"}'),
        Response(403, b'{"message": "error looking up serviceaccount default"}'),
        Response(0, b"connection reset"),
    ],
)
def test_an_object_that_is_refused_for_the_moment_is_sent_again(
    loads: Loads, answer: Response
) -> None:
    answers = [answer, answer]
    loads.fake.fault = lambda method, path: answers.pop() if answers else None
    loads.run(raw(pod("a")))
    assert (0, 0, 0) == loads.figures
    loads.loop.advance(1.0)
    assert ((1, 0, 0), ["a"]) == (loads.figures, names(loads.fake))


def test_an_object_whose_answer_was_lost_counts_as_created(loads: Loads) -> None:
    """The request has reached the server, so the second request conflicts."""
    lost = [True]

    def fault(method: str, path: str) -> Response | None:
        if not lost:
            return None
        lost.pop()
        assert 201 == loads.fake.handle("POST", PODS, raw(pod("a")).data, "application/json")[0]
        return Response(0, b"connection reset")

    loads.fake.fault = fault
    loads.run(raw(pod("a")))
    loads.loop.advance(1.0)
    assert (1, 0, 0) == loads.figures


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Response(503, b'{"message": "starting"}'), "a.json: 503 starting"),
        (Response(0, b"reset"), "a.json: cannot reach https://api.test: reset"),
    ],
)
def test_patience_with_a_server_ends(loads: Loads, answer: Response, message: str) -> None:
    loads.fake.fault = lambda method, path: answer
    loads.run(raw(pod("a")))
    loads.loop.advance(PATIENCE_SECONDS + 5)
    assert ((0, 0, 1), [message]) == (loads.figures, loads.loader.result.messages)


def test_a_namespace_that_cannot_be_created_is_the_reason(loads: Loads) -> None:
    forbidden = Response(403, b'{"message": "namespaces is forbidden"}')
    loads.fake.fault = lambda method, path: forbidden if path.endswith("/namespaces") else None
    loads.run(raw(pod("a", namespace="team")))
    assert (0, 0, 1) == loads.figures
    assert ["a.json: 403 namespaces is forbidden"] == loads.loader.result.messages


def test_objects_of_a_kind_that_was_just_defined_are_created(loads: Loads) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    definition = {
        "apiVersion": CRD, "kind": "CustomResourceDefinition",
        "metadata": {"name": "cars.x.io"},
        "spec": {"group": "x.io", "scope": "Namespaced", "versions": [version],
                 "names": {"plural": "cars", "singular": "car", "kind": "Car"}},
    }  # fmt: skip
    car = {"apiVersion": "x.io/v1", "kind": "Car", "metadata": {"name": "red"}}
    loads.run(raw(definition), raw(car), raw({**car, "kind": "Bus"}))
    loads.loop.advance(0.1)
    assert (2, 0, 1) == loads.figures
    path = "/apis/x.io/v1/namespaces/default/cars/red"
    assert "red" == loads.fake.call("GET", path)["metadata"]["name"]


def test_what_is_no_object_is_told_and_the_first_faults_are_kept(loads: Loads) -> None:
    loads.run(*(raw(b'{"kind": 3}') for _ in range(9)))
    assert ((0, 0, 9), 5) == (loads.figures, len(loads.loader.result.messages))
