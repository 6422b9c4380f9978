"""A scheduler with the shipped roles, on servers that have its optional kinds, get them later, or
do not show them: nothing that is forbidden is asked for, and the log stays quiet."""

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from stower.api.users import UserInfo
from stower.assembly import build_engine
from stower.framework.election import LeaderElectionConfig
from stower.live import availability
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


def start(loop: VirtualLoop, fake: FakeApi, options: Options = ALL, wait_s: float = 2) -> Scheduler:
    """A scheduler that runs until the loop ends."""
    client: Any = fake
    made = Scheduler(client, build_engine, options)
    loop.create_task(made.run(asyncio.Event()))
    loop.advance(wait_s)
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
    loop.advance(availability.RETRY_SECONDS)
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


def forbidding(paths: Sequence[str]) -> Callable[[str, str], Response | None]:
    """A fault that forbids these paths, whatever reviews of rights say."""

    def fault(method: str, path: str) -> Response | None:
        is_forbidden = path.partition("?")[0] in paths
        return Response(403, b'{"message": "not you"}') if is_forbidden else None

    return fault


def test_what_is_refused_all_the_same_is_empty_until_discovery_is_read_again(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """Reviews of rights may be wrong: it is tried a few times, and told once."""
    forbidden = [POOLS]
    fake = FakeApi(forbidding(forbidden), is_plain=True)
    install(fake, "warm/crds")
    start(loop, fake, wait_s=10)
    loop.advance(90)
    tries = sum(path == POOLS for _, path in fake.sent)
    assert availability.CONTRADICTIONS_MAX == tries
    forbidden.clear()
    loop.advance(availability.REFRESH_SECONDS)
    assert POOLS in fake.watched
    warnings = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
    assert [f"cannot list {POOLS}: 403 not you"] == warnings


def test_a_server_that_refuses_for_a_moment_costs_no_objects(loop: VirtualLoop) -> None:
    """As servers do that have not read their roles yet."""
    forbidden: list[str] = []
    fake = FakeApi(forbidding(forbidden), is_plain=True)
    install(fake, "warm/crds")
    made = start(loop, fake)
    pool = {"apiVersion": "stower.dev/v1", "kind": "WarmPool", "metadata": {"name": "p"},
            "spec": {"users": {"matchLabels": {"a": "b"}}}}  # fmt: skip
    fake.call("POST", "/apis/stower.dev/v1/namespaces/default/warmpools", pool)
    loop.advance(2)
    forbidden.append(POOLS)
    fake.inject(POOLS, {"type": "ERROR", "object": {"code": 410}})
    for _ in range(20):
        loop.advance(0.1)
        assert 1 == sum(isinstance(obj, WarmPool) for obj in made.objects())
    forbidden.clear()
    before = fake.watched.count(POOLS)
    loop.advance(30)
    assert before < fake.watched.count(POOLS)
    assert 1 == sum(isinstance(obj, WarmPool) for obj in made.objects())


def test_an_outage_changes_nothing_of_what_was_known_and_is_told_each_time(
    loop: VirtualLoop, caplog: pytest.LogCaptureFixture
) -> None:
    is_down = False
    fake = FakeApi(
        lambda method, path: Response(0, b"Connection refused") if is_down else None,
        user=ACCOUNT, is_plain=True,
    )  # fmt: skip
    install(fake, "scheduler")
    start(loop, fake)
    for count in (1, 2):
        is_down = True
        fake.inject("/api/v1/pods", {"type": "ERROR", "object": {"code": 410}})
        loop.advance(2 * availability.REFRESH_SECONDS)
        is_down = False
        loop.advance(60)
        told = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
        assert ["cannot list /api/v1/pods: Connection refused"] * count == told
    assert [] == fake.refused
    assert not any("stower.dev" in path for _, path in fake.sent)


def test_a_right_to_watch_that_is_withdrawn_ends_in_no_more_requests(loop: VirtualLoop) -> None:
    fake = FakeApi(user=ACCOUNT, is_plain=True)
    install(fake, "scheduler", "warm", "warm/crds")
    start(loop, fake)
    roles = fake.call("GET", PATHS["ClusterRole"])["items"]
    for role in roles:
        for rule in role["rules"]:
            if "warmpools" in (rule.get("resources") or ()):
                rule["verbs"] = ["list"]
                name = role["metadata"]["name"]
                fake.call("PUT", f"{PATHS['ClusterRole']}/{name}", role)
    fake.inject(POOLS, {"type": "ERROR", "object": {"code": 410}})
    loop.advance(3_600)
    assert 1 <= len(fake.refused) <= 3


def test_a_definition_that_comes_while_definitions_are_listed_is_seen(loop: VirtualLoop) -> None:
    fake = FakeApi(user=ACCOUNT, is_plain=True)
    install(fake, "scheduler", "warm")
    fake.fault = lambda method, path: (
        install(fake, "warm/crds") or None
        if path.startswith(DEFINITIONS) and method == "WATCH" and POOLS not in seen
        and not seen.append(POOLS) else None
    )  # fmt: skip
    seen: list[str] = []
    start(loop, fake)
    loop.advance(5)
    assert POOLS in fake.watched


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
