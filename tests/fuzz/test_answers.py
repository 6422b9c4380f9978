"""Whatever an API server or an extender answers: what can be read is known, the rest concerns
itself alone."""

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator
from typing import Any, Final

from hypothesis import strategies as st

from stower.assembly import build_engine
from stower.engine.engine import Engine
from stower.engine.limits import SECOND_NS
from stower.framework.election import LeaderElection, LeaderElectionConfig
from stower.framework.events import ExtenderAnswered, Listed, Tick
from stower.framework.writes import CallExtender
from stower.live.authorization import AuthorizationError, DelegatingAuthorizer
from stower.live.client import Response, WatchStatusError
from stower.live.discovery import check_features, get_served_resources
from stower.live.reflector import Reflector, TypedDecoder
from stower.live.shell import ShellError
from stower.live.version import check_version
from stower.model.kinds import Kind, Pod, WarmPool
from tests.builders import make_node, make_pod
from tests.fuzz.limits import fuzzed
from tests.fuzz.mutants import CHANGES, OBJECTS, Change, changed, damaged, text_of

GOOD: Final = {
    "metadata": {"name": "good", "namespace": "default", "uid": "g", "resourceVersion": "3"},
    "spec": {"containers": [{"name": "c"}]},
}
END: Final = {
    "type": "BOOKMARK",
    "object": {
        "kind": "Pod",
        "metadata": {
            "resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"},
        },
    },
}  # fmt: skip


class Done(Exception):
    """All was told."""


class Server:
    """A server that says what it is told to, once."""

    def __init__(self, lines: list[bytes], page: bytes = b"") -> None:
        self._lines = lines
        self._page = page
        self._is_asked = False

    async def request(self, *_: Any, **__: Any) -> Response:
        if self._is_asked:
            raise Done
        self._is_asked = True
        return Response(200, self._page)

    async def watch(
        self, _: str, query: dict[str, str], accept: str = ""
    ) -> AsyncIterator[list[bytes]]:
        if "sendInitialEvents" in query and self._page:
            raise WatchStatusError(Response(422, b"{}"))
        if not self._lines:
            raise Done
        lines, self._lines = self._lines, []
        yield lines


class Hasty(Reflector):
    """It never waits."""

    async def _backoff(self, min_s: float = 0.0) -> None:
        pass


def reflected(server: Server) -> dict[str, Any]:
    """What is known when the server has said all, or what cannot be read."""
    client: Any = server
    reflector = Hasty(
        client, "/api/v1/pods", TypedDecoder(Pod), random.Random(0),
        on_list=lambda: None, on_changes=lambda _: None,
    )  # fmt: skip
    with contextlib.suppress(Done):
        asyncio.run(reflector.run())
    return reflector.objects


def listed(made: list[tuple[Kind, Any]], streams: bool) -> None:
    """Objects that may not be readable, among one that is."""
    objects = [document for _, document in made]
    objects.insert(len(objects) // 2, GOOD)
    if streams:
        events = [{"type": "ADDED", "object": obj} for obj in objects]
        server = Server([text_of(event) for event in (*events, END)])
    else:
        page = {"metadata": {"resourceVersion": "9"}, "items": objects}
        server = Server([], text_of(page))
    assert "good" == reflected(server)["g"].metadata.name


test_listed, test_listed_long = fuzzed(
    listed, 5_000, made=st.lists(OBJECTS, max_size=4), streams=st.booleans()
)


def lines(changes: list[Change], text: list[Change], what: str) -> None:
    """A line that is no event, or not quite."""
    event = changed({"type": what, "object": GOOD}, changes)
    reflected(Server([text_of(END), damaged(text_of(event), text)]))


test_lines, test_lines_long = fuzzed(
    lines, 5_000, changes=CHANGES, text=CHANGES,
    what=st.sampled_from(("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "OTHER")),
)  # fmt: skip


# Answers by path: what a server says of itself, and of others.
SAID: Final[dict[str, Any]] = {
    "/version": {"major": "1", "minor": "33"},
    "/api": {"items": [{"metadata": {"name": ""}, "versions": [
        {"version": "v1", "resources": [{"resource": "pods"}]}]}]},
    "/apis": {"items": [{"metadata": {"name": "stower.dev"}, "versions": [
        {"version": "v1", "resources": [{"resource": "warmpools"}]}]}]},
    "/openapi": {"components": {"schemas": {"dev.stower.v1.WarmPool": {"properties": {
        "spec": {"properties": {"images": {"allOf": [{"$ref": "#/a"}]}}}}}}}},
    "/apis/authentication": {"status": {"authenticated": True, "user": {
        "username": "u", "groups": ["g"], "extra": {"a": ["b"]}}}},
    "/apis/authorization": {"status": {"allowed": True, "reason": "because"}},
}  # fmt: skip


class Saying:
    """A server that answers each path in a way that something went wrong with."""

    class access:
        """As of a client."""

        server = "https://it"

    def __init__(self, status: int, changes: list[Change], text: list[Change]) -> None:
        self._status, self._changes, self._text = status, changes, text

    async def request(self, _: str, path: str, *__: Any, **___: Any) -> Response:
        name = max((one for one in SAID if path.startswith(one)), key=len, default="/version")
        data = damaged(text_of(changed(SAID[name], self._changes)), self._text)
        return Response(self._status, data)

    get_with_retry = request


async def _said(client: Any) -> None:
    with contextlib.suppress(ShellError):
        await check_version(Getting(client))
    await check_features(client, await get_served_resources(client), [WarmPool])
    with contextlib.suppress(AuthorizationError):
        await DelegatingAuthorizer(client).check("Bearer x", "/metrics", "get")


class Getting:
    """What only gets."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.access = client.access

    async def get_with_retry(self, path: str) -> Response:
        """The answer."""
        found: Response = await self._client.request("GET", path)
        return found


def said(status: int, changes: list[Change], text: list[Change]) -> None:
    """What a server says of itself and its users is understood, or refused."""
    asyncio.run(_said(Saying(status, changes, text)))


test_said, test_said_long = fuzzed(
    said, 5_000, status=st.sampled_from((200, 201, 200, 403, 0, 500)), changes=CHANGES,
    text=st.one_of(st.just([]), CHANGES),
)  # fmt: skip

LEASE: Final = {
    "metadata": {"name": "l", "namespace": "n", "resourceVersion": "1"},
    "spec": {
        "holderIdentity": "other", "leaseDurationSeconds": 15, "leaseTransitions": 3,
        "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
    },
}  # fmt: skip


def leases(one: list[Change], two: list[Change]) -> None:
    """A Lease that somebody else has written."""
    election = LeaderElection("me", LeaderElectionConfig())
    for turn, changes in enumerate((one, two)):
        lease = changed(LEASE, changes)
        if isinstance(lease, dict):
            election.try_acquire_or_renew(lease, turn * 10 * SECOND_NS, 10**18 + turn)
            election.release_lease(lease, 10**18)


test_leases, test_leases_long = fuzzed(leases, 5_000, one=CHANGES, two=CHANGES)

EXTENDED: Final = {
    "extenders": [{"urlPrefix": "http://x", "filterVerb": "f", "prioritizeVerb": "p", "weight": 1,
                   "preemptVerb": "e", "nodeCacheCapable": True}]
}  # fmt: skip
OPINIONS: Final[tuple[Any, ...]] = (
    {"NodeNames": ["n1"], "FailedNodes": {"n2": "no"}, "Error": ""},
    {"NodeNames": ["n1", "n2"], "FailedAndUnresolvableNodes": {}},
    [{"Host": "n1", "Score": 10}, {"Host": "n2", "Score": 3}],
    {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "uid-of-default-p0"}]}}},
)


def opinions(answers: list[tuple[int, list[Change], list[Change]]]) -> None:
    """What an extender says of nodes."""
    engine: Engine = build_engine(EXTENDED)
    now_ns = 0
    nodes = (make_node("n1"), make_node("n2"))
    asked = engine.step(Listed((*nodes, *(make_pod(f"p{i}") for i in range(2)))), now_ns)
    for which, changes, text in answers:
        now_ns += SECOND_NS
        calls = [write for write in asked if isinstance(write, CallExtender)]
        if not calls:
            asked = engine.step(Tick(), now_ns)
            continue
        body = damaged(json.dumps(changed(OPINIONS[which], changes)).encode(), text)
        asked = engine.step(ExtenderAnswered(calls[0].id, body), now_ns)


test_opinions, test_opinions_long = fuzzed(
    opinions, 5_000,
    answers=st.lists(
        st.tuples(st.integers(0, 3), CHANGES, st.one_of(st.just([]), CHANGES)), max_size=5
    ),
)  # fmt: skip
