"""The suite `api`: transcripts of a Kubernetes API server, replayed against ours.

Over HTTP, or (`api_memory`) against the API itself. Placeholders and what is compared: the README
beside the recordings.
"""

import contextlib
import copy
import functools
import json
import re
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from stower.api.registry import Registry
from stower.api.requests import Request
from stower.api.server import Api
from stower.api.watches import Watch
from stower.apiserver.server_process import Options
from stower.apiserver.tables import load_registry
from tests.contract.servers import in_thread

Object = dict[str, Any]
NOW_NS = 1_790_000_000_000_000_000  # a day in 2026 on which nothing was recorded
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
HEADERS = ("content-type", "warning", "retry-after", "allow", "location")
AGES = ("Age", "Last Seen", "First Seen", "AGE")


class Answer:
    """What came back: a response, or all that a watch said."""

    def __init__(self, status: int, headers: Object, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Client(Protocol):
    """Whoever carries out the steps."""

    day: str

    def send(self, step: Object, path: str, body: bytes) -> Answer: ...

    def open(self, step: Object, path: str) -> Any: ...

    def join(self, opened: Any) -> Answer: ...

    def expire(self) -> None: ...


class Clearable(Client, Protocol):
    """One that serves many scripts."""

    def clear(self) -> None: ...


class MemoryClient:
    """The API itself, with a clock that moves by a watch's timeout."""

    def __init__(self) -> None:
        self.api = Api(load_registry(native=False))
        self.now_ns = NOW_NS
        self.api.bootstrap(self.now_ns)
        self.day = "2026-09-21"

    def request(self, step: Object, path: str, body: bytes) -> Request:
        """The step as a request."""
        parts = urlsplit(path)
        headers = step.get("headers") or {}
        return Request(
            step["method"],
            unquote(parts.path),
            self.now_ns,
            tuple(parse_qsl(parts.query, keep_blank_values=True)),
            body,
            headers.get("Content-Type", "application/json" if body else ""),
            headers.get("Accept", "application/json"),
            server="<server>",
        )

    def send(self, step: Object, path: str, body: bytes) -> Answer:
        """Carry out one request; a watch to its end."""
        response = self.api.handle(self.request(step, path, body))
        if isinstance(response, Watch):
            return self.join(response)
        headers = {"content-type": response.content_type, **lowered(response.headers)}
        if response.warnings:
            text = response.warnings[-1].replace("\\", "\\\\").replace('"', '\\"')
            headers["warning"] = f'299 - "{text}"'
        return Answer(response.status, headers, response.body)

    def open(self, step: Object, path: str) -> Any:
        """Start a watch."""
        watch = self.api.handle(self.request(step, path, b""))
        assert isinstance(watch, Watch)
        return watch

    def join(self, opened: Watch) -> Answer:
        """All that a watch has to say by now."""
        frames = []
        while more := opened.poll():
            frames += more
        return Answer(200, {"content-type": "application/json"}, b"".join(frames))

    def expire(self) -> None:
        """Forget history."""
        self.api.store.forget()


def lowered(headers: Object) -> Object:
    return {name.lower(): value for name, value in headers.items()}


class Normal:
    """Replaces what differs between any two runs by placeholders."""

    def __init__(self, day: str, keep_managed: bool) -> None:
        self.generated: list[str] = []
        self.keep_managed = keep_managed
        self.times = re.compile(rf"(?:{day})T\d\d:\d\d:\d\d(?:\.\d+)?Z")

    def text(self, text: str) -> str:
        text = self.times.sub("<ts>", UUID.sub("<uid>", text))
        text = re.sub(r"current: \d+", "current: <rv>", text)
        text = re.sub(r"(too old resource version: )\d+( \()", r"\1<rv>\2", text)
        text = re.sub(r"(too old resource version: \S+ )\(\d+\)", r"\1(<rv>)", text)
        text = re.sub(r"(in record \()\d+(\))", r"\1<rv>\2", text)
        text = re.sub(r'(\\?"resourceVersion\\?":\\?")\d+(\\?")', r"\1<rv>\2", text)
        text = re.sub(r'(resourceVersion: ")\d+(")', r"\1<rv>\2", text)
        for head in self.generated:
            text = re.sub(re.escape(head) + r"[a-z0-9]{5}(?![a-z0-9])", f"{head}<gen>", text)
        return text

    def __call__(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self(v) for v in value]
        if not isinstance(value, dict):
            return value
        result: Object = {}
        for name, inner in value.items():
            if name == "managedFields" and not self.keep_managed:
                continue
            text = isinstance(inner, str) and inner
            if name == "generateName" and text:
                result[name] = inner
            elif name == "uid" and text and UUID.fullmatch(inner):
                result[name] = "<uid>"
            elif name == "resourceVersion" and text:
                result[name] = "<rv>"
            elif name == "continue" and text:
                result[name] = "<continue>"
            elif (name in ("creationTimestamp", "deletionTimestamp", "time")) and text:
                result[name] = "<ts>"
            else:
                result[name] = self(inner)
        if result.get("kind") == "Table" and isinstance(value.get("columnDefinitions"), list):
            ages = [i for i, c in enumerate(value["columnDefinitions"]) if c["name"] in AGES]
            for row in result.get("rows") or []:
                for i in ages:
                    row["cells"][i] = "<age>"
        return result


def replay(case: Object, client: Client, loose: bool = False) -> Iterator[str]:
    """Differences of one script, step by step."""
    normal = Normal(client.day, case.get("keepManagedFields", False))
    captured: dict[str, str] = {}
    opened: dict[str, Any] = {}

    def filled(text: str) -> str:
        return re.sub(r"\$\{(\w+)\}", lambda m: captured.get(m[1], m[0]), text)

    for i, step in enumerate(case["steps"]):
        if step.get("op") == "expire":
            client.expire()
            continue
        if "join" in step:
            answer = client.join(opened.pop(step["join"]))
        else:
            body = step.get("body")
            if isinstance(body, dict):
                head = (body.get("metadata") or {}).get("generateName")
                if isinstance(head, str) and head[:58] not in normal.generated:
                    normal.generated.append(head[:58])
            text = "" if "body" not in step else body if isinstance(body, str) else json.dumps(body)
            if "open" in step:
                opened[step["open"]] = client.open(step, filled(step["path"]))
                continue
            answer = client.send(step, filled(step["path"]), filled(text).encode())
        where = f"step {i} {step.get('method', 'JOIN')} {step.get('path', '')}"
        yield from (f"{where}: {d}" for d in compared(step["expect"], answer, normal, loose))
        for name, pointer in step.get("capture", {}).items():
            value = at(json.loads(answer.body or b"null"), pointer)
            if value is not None:
                captured[name] = str(value)


def at(value: Any, pointer: str) -> Any:
    """What a JSON pointer finds, or None."""
    for step in pointer.strip("/").split("/"):
        step = step.replace("~1", "/")
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (LookupError, TypeError, ValueError):
            return None
    return value


def compared(expect: Object, answer: Answer, normal: Normal, loose: bool) -> Iterator[str]:
    """Differences between a recorded answer and ours."""
    expect = copy.deepcopy(expect)
    ours: Object = {"status": answer.status}
    wanted = expect.pop("headers", {})
    names = ("content-type",) if loose else HEADERS
    for name in names:
        if wanted and (name in wanted or name in answer.headers):
            yield from differing(
                f"header {name}", answer.headers.get(name), wanted.get(name), loose
            )
    expect.pop("bodyBytes", None)
    lines = answer.body.splitlines()
    if "events" in expect:
        ours["events"] = without_bookmarks(normal([json.loads(line) for line in lines if line]))
        expect["events"] = without_bookmarks(expect["events"])
    elif "bodyKeys" in expect:
        ours["bodyKeys"] = sorted(json.loads(answer.body))
    elif "body" in expect:
        try:
            ours["body"] = normal(json.loads(answer.body))
        except ValueError:
            ours["body"] = normal([json.loads(line) for line in lines])
    elif answer.body:
        ours["bodyText"] = normal.text(answer.body.decode())[:2000]
    yield from differing("", ours, expect, loose)


def without_bookmarks(events: list[Object]) -> list[Object]:
    """Bookmarks come by the clock; only the end of initial events is promised."""
    return [
        e
        for e in events
        if e.get("type") != "BOOKMARK" or "annotations" in e["object"].get("metadata", {})
    ]


def differing(path: str, ours: Any, theirs: Any, loose: bool) -> Iterator[str]:
    """A line for each place where two values differ."""
    if loose and path.endswith("/message"):
        return
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name in sorted({*ours, *theirs}):
            if name not in ours or name not in theirs:
                mine, recorded = ours.get(name, "absent"), theirs.get(name, "absent")
                yield f"{path}/{name}: ours {short(mine)}, theirs {short(recorded)}"
            else:
                yield from differing(f"{path}/{name}", ours[name], theirs[name], loose)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for i, (mine, recorded) in enumerate(zip(ours, theirs)):
            yield from differing(f"{path}/{i}", mine, recorded, loose)
    elif ours != theirs or isinstance(ours, bool) != isinstance(theirs, bool):
        yield f"{path}: ours {short(ours)}, theirs {short(theirs)}"


def short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else text[:397] + "..."


class HttpClient:
    """A server in a thread, with an empty API for each script."""

    def __init__(self, folder: Path, registry: Registry) -> None:
        self.registry = registry
        self.stack = contextlib.ExitStack()
        options = Options(folder, memory=True)
        self.server, self.client = self.stack.enter_context(in_thread(options))
        self.day = "|".join(
            (datetime.now(UTC) + timedelta(days=d)).strftime("%Y-%m-%d") for d in (-1, 0, 1)
        )

    def clear(self) -> None:
        """Start from nothing but the built-in objects."""
        api = Api(self.registry)
        api.bootstrap(time.time_ns())
        handler = self.server.handler
        assert handler.committer is not None
        handler.committer.store = api.store
        handler.api = api

    def send(self, step: Object, path: str, body: bytes) -> Answer:
        """Carry out one request; a watch to its end."""
        headers = {"Accept": "application/json", **(step.get("headers") or {})}
        if "body" in step:
            headers.setdefault("Content-Type", "application/json")
        data = body if "body" in step else None
        status, found, answer = self.client.raw(step["method"], path, data, headers)
        host = f"{self.client.host}:{self.client.port}".encode()
        return Answer(status, found, answer.replace(host, b"<server>"))

    def open(self, step: Object, path: str) -> Any:
        """Start a watch; it is open when its headers have come."""
        connection = self.client.connect()
        headers = {"Authorization": f"Bearer {self.client.token}"}
        connection.request(step["method"], path, headers=headers)
        return connection, connection.getresponse()

    def join(self, opened: Any) -> Answer:
        """All that a watch said until its time was over."""
        connection, response = opened
        body = response.read()
        connection.close()
        return Answer(response.status, lowered(dict(response.getheaders())), body)

    def expire(self) -> None:
        """Forget history."""
        self.server.handler.api.store.forget()


@functools.cache
def http_client() -> HttpClient:
    """One server for all scripts of a run."""
    folder = Path(tempfile.mkdtemp(prefix="stower-golden-"))
    return HttpClient(folder, load_registry(native=False))


def api(case: Object) -> Iterator[str]:
    """Differences of one script, over HTTP."""
    yield from against(http_client(), case)


def against(client: Clearable, case: Object) -> Iterator[str]:
    """Differences of one script against a server that starts it with nothing."""
    client.clear()
    yield from replay(case, client)


def api_memory(case: Object) -> Iterator[str]:
    """Differences of one script, in memory."""
    yield from replay(case, MemoryClient())
