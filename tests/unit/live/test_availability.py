"""A scheduler with the shipped roles, on servers that have its optional kinds, get them later, or
do not show them: nothing that is forbidden is asked for, and the log stays quiet."""

import asyncio
import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stower.api.users import UserInfo
from stower.assembly import build_engine
from stower.framework.election import LeaderElectionConfig
from stower.live import availability, reflector
from stower.live.availability import Availability
from stower.live.client import Response
from stower.live.scheduler import Options, Scheduler
from stower.model.kinds import KIND_BY_VIEW, PodGroup, WarmPool
from tests.unit.live.fake_api import FakeApi
from tests.virtual_loop import VirtualLoop

DEPLOY = Path(__file__).parents[3] / "deploy"
ACCOUNT = UserInfo(
    "system:serviceaccount:stower-system:stower",
    ("system:serviceaccounts", "system:serviceaccounts:stower-system", "system:authenticated"),
)
RBAC = "/apis/rbac.authorization.k8s.io/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS = "/apis/stower.dev/v1/warmpools"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "CustomResourceDefinition": DEFINITIONS,
    "Role": f"{RBAC}/namespaces/{{}}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{{}}/rolebindings",
}
ALL = Options("me", groups=True, vms=True, warm=True)


def install(fake: FakeApi, *parts: str) -> None:
    """Applies what these folders have of roles and definitions."""
    paths = [path for part in parts for path in sorted((DEPLOY / part).glob("*.yaml"))]
    objects = [obj for path in paths for obj in yaml.safe_load_all(path.read_text()) if obj]
    for kind, path in PATHS.items():
        for obj in objects:
            if kind == obj.get("kind"):
                fake.call("POST", path.format(obj["metadata"].get("namespace")), obj)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    made = VirtualLoop()
    yield made
    made.end()


def start(loop: VirtualLoop, fake: FakeApi, options: Options = ALL) -> Scheduler:
    """A scheduler that runs until the loop ends."""
    client: Any = fake
    made = Scheduler(client, build_engine, options)
    loop.create_task(made.run(asyncio.Event()))
    loop.advance(2)
    assert made.is_ready
    return made


@pytest.mark.parametrize(
    "parts",
    [
        ("scheduler",),
        ("scheduler", "crds", "groups/crds", "vms/crds", "warm/crds"),
        ("scheduler", "crds", "negotiation", "groups/crds", "groups", "vms/crds", "vms",
         "warm/crds", "warm"),
    ],
)  # fmt: skip
def test_an_hour_on_a_quiet_cluster_has_no_warning_and_nothing_forbidden(
    loop: VirtualLoop, parts: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Without the optional kinds; with them, but without the rights to them; with both."""
    fake = FakeApi(user=ACCOUNT, is_plain=True)
    install(fake, *parts)
    election = LeaderElectionConfig(name="stower", namespace="stower-system")
    options = Options("me", leader_election=election, groups=True, vms=True, warm=True)
    made = start(loop, fake, options)
    loop.advance(3_600)
    assert made.is_leader
    assert [] == fake.refused
    assert [] == [r.message for r in caplog.records if r.levelno >= logging.WARNING]
    assert (parts[-1] == "warm") == (POOLS in fake.watched)


def test_the_role_of_kube_scheduler_is_enough(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeApi(user=UserInfo("system:kube-scheduler", ("system:authenticated",)))
    start(loop, fake)
    loop.advance(3_600)
    assert [] == fake.refused
    assert [] == [r.message for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_kind_is_listed_as_soon_as_its_definition_is_there(loop: VirtualLoop) -> None:
    fake = FakeApi(user=ACCOUNT, is_plain=True)
    install(fake, "scheduler", "warm")
    start(loop, fake)
    assert not any(path == POOLS for _, path in fake.sent)
    install(fake, "warm/crds")
    loop.advance(2)
    assert POOLS in fake.watched


def test_without_the_right_to_definitions_it_is_listed_some_minutes_later(
    loop: VirtualLoop,
) -> None:
    fake = FakeApi(user=ACCOUNT, is_plain=True)
    install(fake, "scheduler", "warm")
    role = fake.call("GET", f"{PATHS['ClusterRole']}/stower-scheduler")
    role["rules"] = [
        rule for rule in role["rules"] if "customresourcedefinitions" not in rule["resources"]
    ]
    fake.call("PUT", f"{PATHS['ClusterRole']}/stower-scheduler", role)
    start(loop, fake)
    install(fake, "warm/crds")
    loop.advance(60)
    assert POOLS not in fake.watched
    loop.advance(availability.REFRESH_SECONDS)
    assert POOLS in fake.watched
    assert [] == fake.refused


def test_a_right_that_is_given_later_is_used(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """A configuration that relies on the kind is told that it lacks the right, once."""
    fake = FakeApi(user=ACCOUNT, is_plain=True)
    install(fake, "scheduler", "warm/crds")
    start(loop, fake, Options("me", warm=True, required_views=(WarmPool,)))
    loop.advance(1_000)
    text = f"this account may not list {POOLS}: running without these objects"
    assert [text] == [r.message for r in caplog.records if r.levelno >= logging.WARNING]
    install(fake, "warm")
    loop.advance(availability.REFRESH_SECONDS + 1)
    assert POOLS in fake.watched
    assert [] == fake.refused


def test_a_definition_that_goes_leaves_nothing_and_may_come_back(loop: VirtualLoop) -> None:
    fake = FakeApi(user=ACCOUNT, is_plain=True)
    install(fake, "scheduler", "warm", "warm/crds")
    made = start(loop, fake)
    spec = {"users": {"matchLabels": {"a": "b"}}}
    pool = {"apiVersion": "stower.dev/v1", "kind": "WarmPool", "metadata": {"name": "p"},
            "spec": spec}  # fmt: skip
    fake.call("POST", "/apis/stower.dev/v1/namespaces/default/warmpools", pool)
    loop.advance(2)
    assert 1 == sum(isinstance(obj, WarmPool) for obj in made.objects())
    fake.call("DELETE", f"{DEFINITIONS}/warmpools.stower.dev")
    loop.advance(2)
    assert 0 == sum(isinstance(obj, WarmPool) for obj in made.objects())
    install(fake, "warm/crds")
    loop.advance(2)
    fake.call("POST", "/apis/stower.dev/v1/namespaces/default/warmpools", pool)
    loop.advance(2)
    assert 1 == sum(isinstance(obj, WarmPool) for obj in made.objects())


@pytest.mark.parametrize("answer", [Response(404, b"{}"), Response(0, b"refused")])
def test_where_nobody_knows_what_is_served_all_is_tried(
    loop: VirtualLoop, answer: Response
) -> None:
    """Without discovery; and the reviews of rights may be missing as well."""
    hidden = ("/apis", "/api", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
    fake = FakeApi(lambda method, path: answer if path in hidden else None, is_plain=True)
    install(fake, "warm/crds")
    start(loop, fake)
    assert POOLS in fake.watched


def test_what_is_refused_all_the_same_is_empty_until_discovery_is_read_again(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reviews of rights may be wrong."""
    monkeypatch.setattr(reflector, "BACKOFF_SECONDS", 0.001)
    is_refusing = True

    def fault(method: str, path: str) -> Response | None:
        refused = is_refusing and path.partition("?")[0] == POOLS
        return Response(403, b'{"message": "not you"}') if refused else None

    fake = FakeApi(fault, is_plain=True)
    install(fake, "warm/crds")
    start(loop, fake)
    loop.advance(100)
    assert 1 == sum(path == POOLS for _, path in fake.sent)
    is_refusing = False
    loop.advance(availability.REFRESH_SECONDS)
    assert POOLS in fake.watched
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_only_versions_that_are_served_are_listed(loop: VirtualLoop) -> None:
    """A group in an older version, where the server has no newer one."""
    fake: Any = FakeApi()
    kind = KIND_BY_VIEW[PodGroup]
    of_all = Availability(fake, [kind], random.Random(1))
    loop.run(of_all.look())
    paths = loop.run(of_all.of(kind).paths())
    served = {version for version, plural in of_all.served or () if plural == "podgroups"}
    assert served
    assert {path.removeprefix("/apis/").removesuffix("/podgroups") for path in paths} == served
