"""Decoder: every type of the tables, filled at random by the messages' fields."""

import base64
import json
import random
from typing import Any, Final

import pytest

from stower.apiserver.protobuf import MEDIA_TYPE, Decoder, message_name
from tests.unit.apiserver.memory_api import REGISTRY, MemoryApi
from tests.unit.apiserver.test_protobuf import Fields, body

MESSAGES: Final[dict[str, Any]] = REGISTRY.tables["protobuf"]
JSON: Final = "application/json"
META: Final = "k8s.io.apimachinery.pkg.apis.meta.v1."
SCHEMA: Final = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
DEPTH_MAX: Final = 6
# Fields of Go's embedded structs: in JSON they are those of the struct around them.
EMBEDDED: Final = {
    "deviceConfiguration", "ephemeralContainerCommon", "handler", "ingressRuleValue",
    "localObjectReference", "persistentVolumeSource", "rule", "ruleWithOperations", "volumeSource",
}  # fmt: skip
RENAMED: Final = {
    "Expression": "expression", "Name": "name", "Webhooks": "webhooks", "aPIGroup": "apiGroup",
    "uID": "uid",
    "ref": "$ref", "schema": "$schema",  # of JSONSchemaProps
    "xKubernetesEmbeddedResource": "x-kubernetes-embedded-resource",
    "xKubernetesIntOrString": "x-kubernetes-int-or-string",
    "xKubernetesListMapKeys": "x-kubernetes-list-map-keys",
    "xKubernetesListType": "x-kubernetes-list-type",
    "xKubernetesMapType": "x-kubernetes-map-type",
    "xKubernetesPreserveUnknownFields": "x-kubernetes-preserve-unknown-fields",
    "xKubernetesValidations": "x-kubernetes-validations",
}  # fmt: skip


class Filler:
    """Makes messages: what is sent, and the JSON that it stands for."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.seen: set[str] = set()

    def text(self) -> str:
        return "".join(self.rng.choices("abcé", k=self.rng.randrange(4)))

    def scalar(self, kind: str) -> tuple[Any, Any]:
        """Sent and read: bools and numbers are sent as integers, doubles as 8 bytes."""
        if kind == "string":
            text = self.text()
            return text, text
        if kind == "bytes":
            data = self.rng.randbytes(self.rng.randrange(5))
            return data, base64.b64encode(data).decode()
        if kind == "bool":
            flag = self.rng.random() < 0.5
            return int(flag), flag
        if kind == "double":
            number = self.rng.choice([-1.5, 0.0, 3.0, 1e300])
            return number, number
        bits = 31 if kind == "int32" else 63
        number = self.rng.choice([0, 1, -1, 2**bits - 1, -(2**bits)])
        return number, number

    def struct(self, name: str, depth: int) -> tuple[Fields, dict[str, Any]]:
        """A message of the tables with some of its fields."""
        self.seen.add(name)
        sent: Fields = {}
        read: dict[str, Any] = {}
        for field, number, kind in MESSAGES[name]:
            if self.rng.random() < (0.2 if depth < DEPTH_MAX else 1):
                continue
            inner = kind.removeprefix("repeated ")
            if kind.startswith("map<"):
                pairs = [
                    (key, self.value(name, inner[4:-1].partition(",")[2].strip(), depth + 1))
                    for key in self.rng.sample(["", "a", "b/c"], self.rng.randrange(1, 4))
                ]
                sent[number] = tuple((key, value[0]) for key, value in pairs)
                made: Any = {key: value[1] for key, value in pairs}
            elif inner != kind:
                count = self.rng.choice((1, 2))
                values = [self.value(name, inner, depth + 1) for _ in range(count)]
                sent[number] = [value[0] for value in values]
                made = [value[1] for value in values]
            else:
                sent[number], made = self.value(name, inner, depth + 1)
            if field in EMBEDDED and isinstance(made, dict):
                read |= made
            elif made is not None:
                named = name == SCHEMA or field not in ("schema", "ref")
                read[RENAMED.get(field, field) if named else field] = made
        return sent, read

    def value(self, owner: str, kind: str, depth: int) -> tuple[Any, Any]:
        """What a field of this type has."""
        if kind in ("string", "bytes", "bool", "double", "int32", "int64"):
            return self.scalar(kind)
        name = kind[1:] if kind[0] == "." else f"{owner.rpartition('.')[0]}.{kind}"
        short = name.rpartition(".")[2]
        if name.startswith(f"{SCHEMA}Or"):
            return self.schema_or_other(short, depth)
        special = getattr(self, short.lower(), None)
        if special is None:
            return self.struct(name, depth)
        self.seen.add(name)
        found: tuple[Any, Any] = special()
        return found

    def schema_or_other(self, short: str, depth: int) -> tuple[Any, Any]:
        self.seen.add(SCHEMA + short.removeprefix("JSONSchemaProps"))
        sent, read = self.struct(SCHEMA, depth + 1)
        if self.rng.random() < 0.5:
            return {1: 1, 2: sent} if short.endswith("Bool") else {1: sent}, read
        if short.endswith("Bool"):
            allowed = self.rng.random() < 0.5
            return {1: int(allowed)}, allowed
        if short.endswith("StringArray"):
            return {2: ["a", ""]}, ["a", ""]
        return {2: [sent, {}]}, [read, {}]

    def json(self) -> tuple[Fields, Any]:
        read = self.rng.choice([1, "", [None], {"a": {"b": False}}, "null"])
        return {1: json.dumps(read).encode()}, read

    rawextension = fieldsv1 = json

    def quantity(self) -> tuple[Fields, Any]:
        text = self.rng.choice(["0", "100m", "1.5Gi"])
        return {1: text}, text

    def time(self) -> tuple[Fields, Any]:
        found = {1: 1_790_000_000, 2: 0}, "2026-09-21T14:13:20Z"
        return self.rng.choice([found, ({}, None)])  # type: ignore[arg-type]

    def microtime(self) -> tuple[Fields, Any]:
        return {1: 1_790_000_000, 2: 5_000}, "2026-09-21T14:13:20.000005Z"

    def intorstring(self) -> tuple[Fields, Any]:
        return self.rng.choice([({1: 0, 2: 80, 3: ""}, 80), ({1: 1, 2: 0, 3: "http"}, "http")])

    def extravalue(self) -> tuple[Fields, Any]:
        return {1: ["a", ""]}, ["a", ""]

    verbs = extravalue


def roots() -> dict[str, str]:
    """A kind of each type that is a kind."""
    return {name: kind for kind, name in sorted(REGISTRY.kinds.items(), reverse=True)}


@pytest.mark.parametrize("seed", range(4))
def test_every_type_is_decoded_to_what_was_encoded(seed: int) -> None:
    filler, decoder = Filler(random.Random(seed)), Decoder(REGISTRY)
    for name, kind in roots().items():
        version, _, word = kind.rpartition("/")
        sent, read = filler.struct(message_name(name), 0)
        found = json.loads(decoder.decode(body(version.removeprefix("/"), word, sent)))
        assert {**read, "apiVersion": version.removeprefix("/"), "kind": word} == found


def test_every_definition_is_reached() -> None:
    filler = Filler(random.Random(1))
    for name in roots():
        for _ in range(20):
            filler.struct(message_name(name), 0)
    definitions = {message_name(name) for name in REGISTRY.schema.definitions}
    in_json_alone = {"k8s.io.apimachinery.pkg.version.Info", f"{META}Patch"}
    assert in_json_alone == definitions - filler.seen


def test_a_definition_is_stored_alike_from_json_and_protobuf() -> None:
    """Go's clients write every scalar that is no pointer: empty texts and false."""
    inner = {"type": "object", "properties": {"a": {"type": "integer", "default": 3}}}
    schema = {
        "type": "object",
        "properties": {
            "l": {"type": "array", "items": inner, "x-kubernetes-list-type": "atomic"},
            "m": {"type": "object", "additionalProperties": inner},
            "n": {"type": "number", "maximum": 3},
        },
    }
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    spec = {"group": "e.example", "scope": "Cluster", "names": names, "versions": [version]}
    as_json = json.dumps({"metadata": {"name": "things.e.example"}, "spec": spec}).encode()

    zeros: Fields = {1: "", 2: "", 4: "", 11: 0, 18: 0, 37: 0}
    whole = {5: "integer", 8: {1: b"3"}, **zeros}
    object_ = {5: "object", 29: (("a", whole),), **zeros}
    properties = (
        ("l", {**zeros, 5: "array", 24: {1: object_}, 42: "atomic"}),
        ("m", {5: "object", 30: {1: 1, 2: object_}, **zeros}),
        ("n", {5: "number", 9: 3.0, **zeros}),
    )
    sent_version = {1: "v1", 2: 1, 3: 1, 4: {1: {5: "object", 29: properties, **zeros}}}
    sent_names = {1: "things", 2: "thing", 4: "Thing", 5: "ThingList"}
    sent_spec = {1: "e.example", 3: sent_names, 4: "Cluster", 7: [sent_version], 10: 0}
    sent = {1: {1: "things.e.example"}, 2: sent_spec}
    as_protobuf = body("apiextensions.k8s.io/v1", "CustomResourceDefinition", sent)

    path, found = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", []
    for text, media in ((as_json, JSON), (as_protobuf, MEDIA_TYPE)):
        server = MemoryApi()
        status, _, raw = server.raw("POST", path, text, {"Content-Type": media})
        server.end()
        assert 201 == status, raw
        found.append(json.loads(raw)["spec"])
    assert found[0] == found[1]
    assert inner == found[1]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["l"]["items"]
