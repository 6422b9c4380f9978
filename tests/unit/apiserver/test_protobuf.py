"""Decoder: bodies in protobuf, with the field numbers of Kubernetes' generated.proto files."""

import base64
import json
import struct
from typing import Any

import pytest

from stower.apiserver.protobuf import MAGIC, BadProtobufError, Decoder
from stower.apiserver.tables import load_registry
from tests.unit.apiserver.memory_api import REGISTRY

# The fields of a message by number. A list is a repeated field, a tuple of pairs is a map.
Fields = dict[int, Any]


def varint(number: int) -> bytes:
    found = bytearray()
    number &= (1 << 64) - 1
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes((*found, number))


def message(fields: Fields) -> bytes:
    """Returns the message in the wire format of protobuf."""
    found = b""
    for number, value in fields.items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, tuple):
                found += message({number: [{1: key, 2: one} for key, one in each]})
            elif isinstance(each, int):
                found += varint(number << 3) + varint(each)
            elif isinstance(each, float):
                found += varint(number << 3 | 1) + struct.pack("<d", each)
            else:
                data = message(each) if isinstance(each, dict) else each
                data = data.encode() if isinstance(data, str) else data
                found += varint(number << 3 | 2) + varint(len(data)) + data
    return found


def body(version: str, kind: str, fields: Fields) -> bytes:
    """Returns an object as clients send it: in a runtime.Unknown, after the magic number."""
    return MAGIC + message({1: {1: version, 2: kind}, 2: message(fields)})


def decoded(version: str, kind: str, fields: Fields) -> Any:
    found = json.loads(Decoder(REGISTRY).decode(body(version, kind, fields)))
    assert (version, kind) == (found.pop("apiVersion"), found.pop("kind"))
    return found


def test_lists_maps_and_quantities_of_a_pod_are_decoded() -> None:
    ports = [{2: 80, 3: 8080, 4: "TCP"}, {3: 8081}]
    container = {1: "main", 2: "image:1", 6: ports, 8: {2: (("cpu", {1: "100m"}),)}, 18: 1}
    labels = (("app", "web"), ("tier", ""))
    meta = {1: "p", 3: "default", 11: labels, 14: ["a/b"], 8: {1: 1_790_000_000}}
    found = decoded("v1", "Pod", {1: meta, 2: {2: [container], 4: -1, 11: 1}})
    assert {
        "name": "p", "namespace": "default", "labels": {"app": "web", "tier": ""},
        "finalizers": ["a/b"], "creationTimestamp": "2026-09-21T14:13:20Z",
    } == found["metadata"]  # fmt: skip
    assert {
        "containers": [{
            "name": "main", "image": "image:1", "tty": True,
            "ports": [{"hostPort": 80, "containerPort": 8080, "protocol": "TCP"},
                      {"containerPort": 8081}],
            "resources": {"requests": {"cpu": "100m"}},
        }],
        "terminationGracePeriodSeconds": -1, "hostNetwork": True,
    } == found["spec"]  # fmt: skip


def test_the_fields_of_an_embedded_struct_become_fields_of_its_owner() -> None:
    volume = {1: "v", 2: {2: {1: "Memory"}}}  # volumeSource: emptyDir: medium
    found = decoded("v1", "Pod", {2: {1: [volume]}})
    assert [{"name": "v", "emptyDir": {"medium": "Memory"}}] == found["spec"]["volumes"]


def test_int_or_string_is_a_number_or_a_string() -> None:
    def port(value: Fields) -> Any:
        probe = {1: {2: {1: "/", 2: value}}}  # handler: httpGet: path, port
        found = decoded("v1", "Pod", {2: {2: [{1: "c", 10: probe}]}})
        return found["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"]

    assert [8080, "http"] == [port({1: 0, 2: 8080}), port({1: 1, 3: "http"})]


def test_times_have_seconds_or_microseconds_and_may_be_absent() -> None:
    found = decoded("v1", "Event", {1: {1: "e"}, 6: {1: 60}, 7: {}, 10: {1: 61, 2: 5_000}})
    assert ("1970-01-01T00:01:00Z", "1970-01-01T00:01:01.000005Z") == (
        found["firstTimestamp"], found["eventTime"]
    )  # fmt: skip
    assert "lastTimestamp" not in found
    assert "eventTime" not in decoded("v1", "Event", {10: {}})


def test_bytes_become_base64() -> None:
    found = decoded("v1", "Secret", {2: (("k", b"\xff\x00"),), 3: "Opaque"})
    assert {"data": {"k": base64.b64encode(b"\xff\x00").decode()}, "type": "Opaque"} == found


def test_a_message_that_stands_for_a_list_becomes_a_list() -> None:
    extra = (("scopes", {1: ["a", "b"]}),)
    found = decoded("authorization.k8s.io/v1", "SubjectAccessReview", {2: {3: "eve", 5: extra}})
    assert {"user": "eve", "extra": {"scopes": ["a", "b"]}} == found["spec"]


def test_raw_extensions_become_the_json_that_they_contain() -> None:
    revision = {2: {1: b'{"a": [1]}'}, 3: 7}
    assert {"data": {"a": [1]}, "revision": 7} == decoded("apps/v1", "ControllerRevision", revision)
    assert "data" not in decoded("apps/v1", "ControllerRevision", {2: {}})
    managed = [{1: "m", 7: {1: b'{"f:a": {}}'}}]
    found = decoded("v1", "ConfigMap", {1: {17: managed}})
    assert [{"manager": "m", "fieldsV1": {"f:a": {}}}] == found["metadata"]["managedFields"]


def test_one_decoder_decodes_several_kinds() -> None:
    decoder = Decoder(REGISTRY)
    for kind in ("Namespace", "ConfigMap", "Namespace"):
        found = json.loads(decoder.decode(body("v1", kind, {1: {1: "n"}})))
        assert {"apiVersion": "v1", "kind": kind, "metadata": {"name": "n"}} == found


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"{}", "does not appear to be a protobuf message"),
        (MAGIC + b"\xff", "Wire format|Error parsing"),
        (body("v1", "Nothing", {}), 'no kind "Nothing" in version "v1"'),
        (body("other/v1", "Pod", {}), 'no kind "Pod" in version "other/v1"'),
        (body("stower.dev/v1", "WarmPool", {}), 'no kind "WarmPool"'),
        (MAGIC + message({1: {1: "v1", 2: "Pod"}, 2: b"\x0a\xff"}), "Wire format|Error parsing"),
        (body("apps/v1", "ControllerRevision", {2: {1: b"{"}}), "truncated"),
        (body("apps/v1", "ControllerRevision", {2: {1: b'"\xff"'}}), "utf-8"),
    ],
)
def test_a_malformed_body_is_refused_with_a_reason(sent: bytes, why: str) -> None:
    with pytest.raises(BadProtobufError, match=why):
        Decoder(REGISTRY).decode(sent)


def test_a_kind_without_messages_is_refused() -> None:
    sent = body("scheduling.k8s.io/v1alpha3", "PodGroup", {})
    with pytest.raises(BadProtobufError, match="is not supported in protobuf; send JSON"):
        Decoder(load_registry("1.37")).decode(sent)
