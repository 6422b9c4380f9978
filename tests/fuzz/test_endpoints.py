"""Whatever is sent to the API server: an answer, in time, and a Status where it is a refusal."""

import functools
import json
import random
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from stower.api.registry import Registry, Resource
from stower.api.requests import JSON, Request, Response
from stower.api.schema import Type
from stower.api.server import Api
from stower.apiserver.tables import load_registry
from tests.fuzz.limits import fuzzed
from tests.fuzz.mutants import ASKED, CHANGES, NAMES, TIMES, WORDS, WRONG, Change, changed, damaged

REGISTRY: Final[Registry] = load_registry("1.37")
# Definitions would change what is served, for the examples that come later.
RESOURCES: Final = [r for r in REGISTRY.resources() if r.plural != "customresourcedefinitions"]
VARIANTS: Final = 4
SECOND_NS: Final = 10**9
TYPES: Final = (
    JSON, "application/merge-patch+json", "application/json-patch+json",
    "application/strategic-merge-patch+json", "application/apply-patch+yaml", "text/plain", "",
)  # fmt: skip
SCALARS: Final = {"[]byte": ("YQ==",), "[]uint8": ("YQ==",), "v1.Duration": ("1s",),
                  "intstr.IntOrString": (1, "50%")}  # fmt: skip
QUERIES: Final = (
    "limit=1", "limit=-1", "continue=e30", "continue=", "labelSelector=a in (b,", "labelSelector=a",
    "fieldSelector=metadata.name=a", "fieldSelector=spec..=", "resourceVersion=1", "watch=1",
    "resourceVersion=99999999999999999999999", "resourceVersionMatch=Exact", "dryRun=All",
    "fieldManager=m", "force=true", "fieldValidation=Strict", "fieldValidation=x", "pretty=true",
    "gracePeriodSeconds=-1", "propagationPolicy=Foreground", "sendInitialEvents=true",
    "timeoutSeconds=9e9", "allowWatchBookmarks=true", "orphanDependents=maybe",
)  # fmt: skip
ACCEPTS: Final = (
    JSON, "", "*/*", "application/json;as=Table;v=v1;g=meta.k8s.io", "application/yaml",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "text/html;q=x",
    "application/vnd.kubernetes.protobuf",
)  # fmt: skip


def made(kind: Type, name: str, chance: random.Random, depth: int = 0) -> Any:
    """Some JSON of a type of the schema."""
    if kind.form == "struct" and kind.fields:
        likely = 0.9 if depth < 2 else 0.45 if depth < 6 else 0.1
        return {
            field: made(f.type, field, chance, depth + 1)
            for field, f in kind.fields.items()
            if field in ("name", "containers", "image") or chance.random() < likely
        }
    if kind.form == "list":
        count = 0 if depth > 9 else chance.choice((0, 1, 1, 2))
        assert kind.items is not None
        return [made(kind.items, name, chance, depth + 1) for _ in range(count)]
    if kind.form == "map":
        assert kind.items is not None
        return {
            chance.choice(NAMES): made(kind.items, name, chance, depth + 1)
            for _ in range(chance.choice((0, 1, 2)))
        }
    if kind.go_name in ("int32", "int64", "int"):
        return chance.choice((0, 1, 2, 80))
    if kind.go_name == "bool":
        return chance.random() < 0.5
    if kind.go_name == "resource.Quantity":
        return chance.choice(ASKED)
    if "Time" in kind.go_name:
        return TIMES["Micro" in kind.go_name]
    if kind.form == "any":
        return {"a": chance.choice(NAMES)}
    return chance.choice(SCALARS.get(kind.go_name) or WORDS.get(name, NAMES))


@functools.cache
def corpus(resource: Resource) -> tuple[Any, ...]:
    """Objects of a resource, always the same."""
    chance = random.Random(f"{resource.group}/{resource.plural}")
    found = []
    for i in range(VARIANTS):
        obj = {} if resource.type is None else made(resource.type, "", chance)
        meta: dict[str, Any] = {"name": f"a{i}", "labels": {"a": "b"}}
        version = f"{resource.group}/{resource.version}".removeprefix("/")
        found.append({**obj, "apiVersion": version, "kind": resource.kind, "metadata": meta})
    return tuple(found)


class Ask(NamedTuple):
    """One request, as it is drawn."""

    method: str
    resource: Resource
    place: int  # of all, of one, of a subresource
    variant: int
    changes: list[Change]
    text: list[Change]  # what becomes of its bytes
    content_type: str
    accept: str
    query: list[str]


def path_of(ask: Ask) -> str:
    """Of the collection, an object, or what is below one."""
    resource = ask.resource
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else "/api/v1"
    space = "/namespaces/default" if resource.namespaced and ask.place % 7 else ""
    path = f"{root}{space}/{resource.plural}"
    below = ("", f"/a{ask.variant}", f"/a{ask.variant}", "/zz")
    found = below[ask.place % len(below)]
    subs = sorted(resource.subresources)
    if found and subs and ask.place % 3 == 0:
        return f"{path}{found}/{subs[ask.place % len(subs)]}"
    return path + found


def body_of(ask: Ask) -> bytes:
    """A document of the resource in which something went wrong, or a patch."""
    if ask.method in ("GET", "HEAD"):
        return b""
    document = changed(corpus(ask.resource)[ask.variant], ask.changes)
    if ask.content_type.endswith("json-patch+json"):
        values = [WRONG[change.value % len(WRONG)] for change in ask.changes]
        operations = ("add", "remove", "replace", "move", "copy", "test")
        document = [
            {
                "op": operations[change.what % 6],
                "path": "/spec",
                "from": "/metadata",
                "value": value,
            }
            for change, value in zip(ask.changes, values, strict=True)
        ]
    return damaged(json.dumps(document).encode(), ask.text)


def asked(asks: list[Ask]) -> None:
    """See the module."""
    api = Api(REGISTRY, seed=1)
    api.bootstrap(0)
    for at, ask in enumerate(asks):
        query = tuple((q.partition("=")[0], q.partition("=")[2]) for q in ask.query)
        response = api.handle(
            Request(
                ask.method, path_of(ask), at * SECOND_NS, query, body_of(ask), ask.content_type,
                ask.accept,
            )
        )  # fmt: skip
        if not isinstance(response, Response):
            continue
        body = b"".join(bytes(part) for part in response.parts)
        if response.status >= 400 and ask.method != "HEAD":
            said = json.loads(body)
            assert ("Status", response.status) == (said["kind"], said["code"])
            assert response.status != 500 or said["message"], said
            assert "Traceback" not in said["message"]
        elif response.content_type == JSON and body:
            json.loads(body)


# Mostly whole texts: a byte that is gone is no JSON, and nothing else is looked at.
TEXTS = st.one_of(st.just([]), st.just([]), st.just([]), CHANGES)
ASKS = st.builds(
    Ask,
    st.sampled_from(("POST", "POST", "POST", "PUT", "PATCH", "PATCH", "GET", "DELETE", "HEAD")),
    st.sampled_from(RESOURCES), st.integers(0, 40), st.integers(0, VARIANTS - 1), CHANGES, TEXTS,
    st.sampled_from(TYPES), st.sampled_from(ACCEPTS),
    st.lists(st.sampled_from(QUERIES), max_size=2),
)  # fmt: skip
# What is about one object meets it more often where all are about one resource.
test_asked, test_asked_long = fuzzed(asked, 20_000, asks=st.lists(ASKS, min_size=1, max_size=5))


def one_by_one(resource: Resource, asks: list[Ask]) -> None:
    """An object is made, and then all of these are about it."""
    first = Ask("POST", resource, 4, 0, [], [], JSON, JSON, [])
    asked([first, *(ask._replace(resource=resource, variant=0) for ask in asks)])


test_one_by_one, test_one_by_one_long = fuzzed(
    one_by_one, 20_000,
    resource=st.sampled_from(RESOURCES), asks=st.lists(ASKS, min_size=1, max_size=4),
)  # fmt: skip
