"""Handler: authentication, targets, formats of bodies and answers, the audit log, durability."""

import json
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stower.api.requests import Request, Response
from stower.apiserver.database import FILE, Database
from stower.apiserver.handler import (
    ASIDE_BYTES,
    PIECES_MAX,
    WARNING_MAX,
    WARNINGS_MAX,
)
from stower.apiserver.targets import QUERY_FIELDS_MAX
from tests.unit.apiserver.memory import client_of
from tests.unit.apiserver.memory_api import CONFIG_MAPS, NOW_NS, MemoryApi, config_map, locked
from tests.wire import Wire

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW_BODY = b'{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}'
YAML = {"Content-Type": "application/yaml"}


@pytest.fixture
def server() -> Iterator[MemoryApi]:
    made = MemoryApi()
    yield made
    made.end()


def user_of(server: MemoryApi) -> Any:
    """Returns name and groups of the user that the server has authenticated."""
    status, answer = server.call("POST", REVIEW, REVIEW_BODY)
    assert 201 == status, answer
    info = answer["status"]["userInfo"]
    return info["username"], info["groups"]


# Users


def test_the_token_of_the_server_authenticates_its_administrator(server: MemoryApi) -> None:
    assert ("admin", ["system:masters", "system:authenticated"]) == user_of(server)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", "Basic secret-token", "Bearer é"])
def test_a_request_without_a_valid_token_is_unauthorized(server: MemoryApi, header: str) -> None:
    wire = server.connect()
    head = f"GET {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: {header}\r\n\r\n"
    wire.connection.sendall(head.encode())
    status, _, body = wire.answer()
    assert (401, "Unauthorized") == (status, json.loads(body)["reason"])
    assert 200 == server.raw("GET", CONFIG_MAPS)[0], "other connections are not affected"


def test_a_connection_that_changes_its_token_is_checked_again(server: MemoryApi) -> None:
    assert 200 == server.raw("GET", CONFIG_MAPS)[0]
    server.wire.authority = "Host: x\r\nAuthorization: Bearer other\r\n"
    assert 401 == server.raw("GET", CONFIG_MAPS)[0]


def test_a_client_certificate_names_the_user_and_the_groups(server: MemoryApi) -> None:
    names = ((("commonName", "eve"),), (("organizationName", "dev"),))
    server.wire = server.connect({"subject": names})
    server.wire.authority = "Host: x\r\n"
    assert ("eve", ["dev", "system:authenticated"]) == user_of(server)


def test_a_client_certificate_without_a_name_is_no_user(server: MemoryApi) -> None:
    server.wire = server.connect({"subject": ((("organizationName", "dev"),),)})
    server.wire.authority = "Host: x\r\n"
    assert 401 == server.raw("GET", CONFIG_MAPS)[0]


def test_the_token_of_a_service_account_is_valid_until_it_expires() -> None:
    server = MemoryApi(by_roles=True)
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    assert 201 == server.call("POST", accounts, b'{"metadata": {"name": "robot"}}')[0]
    body = b'{"spec": {"expirationSeconds": 600, "audiences": []}}'
    status, answer = server.call("POST", f"{accounts}/robot/token", body)
    assert 201 == status, answer
    server.wire.authority = f"Host: x\r\nAuthorization: Bearer {answer['status']['token']}\r\n"
    assert "system:serviceaccount:default:robot" == user_of(server)[0]
    assert 403 == server.raw("GET", CONFIG_MAPS)[0], "no role allows it"
    server.now_ns += 601 * 10**9
    assert 401 == server.raw("GET", CONFIG_MAPS)[0]
    server.end()


# Targets


@pytest.mark.parametrize(
    "target",
    ["/api/v1/a%2fb", "/api/v1/a%00b", "/api/%ff", "/api?x=%ff", "/api?" + "a=1&" * 65],
)
def test_a_malformed_target_is_a_bad_request(server: MemoryApi, target: str) -> None:
    assert target.count("&") in (0, QUERY_FIELDS_MAX + 1)
    status, _, body = server.raw("GET", target)
    assert (400, "BadRequest") == (status, json.loads(body)["reason"])


@pytest.mark.parametrize("target", ["https://x:1/healthz", "/healthz", "/h%65althz?a=&b"])
def test_a_target_may_be_a_url_or_contain_escapes(server: MemoryApi, target: str) -> None:
    assert (200, b"ok") == server.raw("GET", target)[::2]


@pytest.mark.parametrize(
    "target", ["*", "*/healthz", "*api/v1/secrets", "ftp://x:1/healthz", "healthz", "x:443"]
)
def test_a_target_that_is_no_path_is_a_bad_request(server: MemoryApi, target: str) -> None:
    status, _, body = server.raw("GET", target)
    assert (400, "BadRequest") == (status, json.loads(body)["reason"])


@pytest.mark.parametrize("method", ["TRACE", "CONNECT"])
def test_a_method_that_is_not_for_a_server_is_refused(server: MemoryApi, method: str) -> None:
    assert 405 == server.raw(method, "/healthz" if method == "TRACE" else "x:443")[0]


def test_two_host_headers_are_a_bad_request(server: MemoryApi) -> None:
    assert 400 == server.raw("GET", "/healthz", headers={"HOST": "y"})[0]


def test_discovery_returns_the_host_that_the_client_has_used(server: MemoryApi) -> None:
    _, answer = server.call("GET", "/api")
    assert "x" == answer["serverAddressByClientCIDRs"][0]["serverAddress"]


def test_malformed_http_is_answered_with_a_status_object(server: MemoryApi) -> None:
    wire = server.connect()
    wire.connection.sendall(b"GET / HTTP/9.9\r\n\r\n")
    status, _, body = wire.answer()
    assert (400, "Status", "BadRequest") == (
        status, json.loads(body)["kind"], json.loads(body)["reason"]
    )  # fmt: skip


# Bodies and answers


@pytest.mark.parametrize("filler", ["", f"# {'x' * ASIDE_BYTES}\n"])
def test_a_body_may_be_yaml_of_any_length(server: MemoryApi, filler: str) -> None:
    body = f"{filler}metadata: {{name: m}}\ndata: {{k: 'on'}}\n".encode()
    status, answered, _ = server.raw("POST", CONFIG_MAPS, body, YAML)
    assert (201, "application/json") == (status, answered["content-type"])
    assert {"k": "on"} == server.call("GET", f"{CONFIG_MAPS}/m")[1]["data"]


@pytest.mark.parametrize("filler", ["", f"# {'x' * ASIDE_BYTES}\n"])
def test_malformed_yaml_of_any_length_is_a_bad_request(server: MemoryApi, filler: str) -> None:
    status, _, body = server.raw("POST", CONFIG_MAPS, f"{filler}a: [".encode(), YAML)
    assert (400, True) == (status, "yaml: line " in json.loads(body)["message"])


def test_malformed_yaml_is_refused_in_the_words_of_the_reader_of_the_kind(
    server: MemoryApi,
) -> None:
    status, _, body = server.raw("POST", CONFIG_MAPS, b"a:\n- b\nc", YAML)
    want = (
        "the object provided is unrecognized (must be of type ConfigMap): yaml: line 4: could not "
        "find expected ':' (613a0a2d20620a63)"
    )
    assert (400, want) == (status, json.loads(body)["message"])
    path = f"{CONFIG_MAPS}/m?fieldManager=t"
    form = {"Content-Type": "application/apply-patch+yaml"}
    status, _, body = server.raw("PATCH", path, b"a: [", form)
    want = "error decoding YAML: error converting YAML to JSON: yaml: line 1: "
    assert 400 == status
    assert json.loads(body)["message"].startswith(want)


def test_a_key_that_yaml_has_twice_is_warned_of_or_refused(server: MemoryApi) -> None:
    body = b"metadata:\n  name: t\ndata:\n  a: b\n  a: c\n"
    _, headers, _ = server.raw("POST", CONFIG_MAPS, body, YAML)
    assert '299 - "line 5: key \\"a\\" already set in map"' == headers["warning"]
    status, _, answer = server.raw("POST", f"{CONFIG_MAPS}?fieldValidation=Strict", body, YAML)
    assert 400 == status
    fault = 'strict decoding error: yaml: unmarshal errors:\n  line 5: key "a" already set in map'
    assert json.loads(answer)["message"].endswith(fault)


def test_an_applied_key_that_json_has_twice_is_warned_of_after_conflicts(
    server: MemoryApi,
) -> None:
    kind = b'"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "t"}'
    body = b"{" + kind + b',\n"data": {"a": "b",\n"a": "c"}}'
    form = {"Content-Type": "application/apply-patch+yaml"}
    path = f"{CONFIG_MAPS}/t?fieldManager="
    status, headers, _ = server.raw("PATCH", f"{path}one", body, form)
    assert (201, '299 - "line 3: key \\"a\\" already set in map"') == (status, headers["warning"])
    strict = "&fieldValidation=Strict"
    status, _, answer = server.raw("PATCH", f"{path}one{strict}", body, form)
    fault = 'yaml: unmarshal errors:\n  line 3: key "a" already set in map'
    want = f"error strict decoding YAML: error converting YAML to JSON: {fault}"
    assert (400, want) == (status, json.loads(answer)["message"])
    other = body.replace(b'"c"', b'"d"')
    assert 409 == server.raw("PATCH", f"{path}two{strict}", other, form)[0]


def test_words_of_yaml_are_keys_of_their_value(server: MemoryApi) -> None:
    body = b'metadata:\n  name: w\ndata:\n  y: a\n  off: b\n  "n": c\n  1.50: d\n  2026-01-01: e\n'
    assert 201 == server.raw("POST", CONFIG_MAPS, body, YAML)[0]
    found = server.call("GET", f"{CONFIG_MAPS}/w")[1]["data"]
    assert {"true": "a", "false": "b", "n": "c", "1.5": "d", "2026-01-01": "e"} == found
    status, _, answer = server.raw(
        "POST", CONFIG_MAPS, b"metadata: {name: v}\ndata: {a: no}\n", YAML
    )
    assert 400 == status
    assert "cannot unmarshal bool into Go struct field" in json.loads(answer)["message"]


@pytest.mark.parametrize("filler", ["", f"# {'x' * ASIDE_BYTES}\n"])
def test_an_apply_patch_may_be_yaml(server: MemoryApi, filler: str) -> None:
    body = f"{filler}apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m}}\ndata: {{a: b}}\n"
    path = f"{CONFIG_MAPS}/m?fieldManager=t"
    status, answer = server.call("PATCH", path, body.encode(), "application/apply-patch+yaml")
    assert (201, {"a": "b"}) == (status, answer["data"])


def test_long_yaml_is_parsed_and_written_in_a_thread(server: MemoryApi) -> None:
    def threads(*arguments: Any) -> int:
        before = server.loop.threaded
        assert server.raw(*arguments)[0] in (200, 201)
        return server.loop.threaded - before

    comment = b"\n#" + b"x" * ASIDE_BYTES
    assert 0 == threads("POST", CONFIG_MAPS, config_map("short"), YAML)
    assert 1 == threads("POST", CONFIG_MAPS, config_map("long") + comment, YAML)
    assert 0 == threads("POST", CONFIG_MAPS, config_map("json", k="x" * ASIDE_BYTES))
    accept = {"Accept": "application/yaml"}
    assert 0 == threads("GET", f"{CONFIG_MAPS}/short", b"", accept)
    assert 1 == threads("GET", f"{CONFIG_MAPS}/json", b"", accept)
    assert 0 == threads("GET", f"{CONFIG_MAPS}/json")


def test_a_long_body_is_not_parsed_for_an_unauthorized_client(server: MemoryApi) -> None:
    server.wire.authority = "Host: x\r\n"
    assert 401 == server.raw("POST", CONFIG_MAPS, b"a: [" + b" " * ASIDE_BYTES, YAML)[0]


@pytest.mark.parametrize("size", [1, ASIDE_BYTES])
def test_an_answer_is_yaml_if_yaml_is_the_first_accepted_type(server: MemoryApi, size: int) -> None:
    server.call("POST", CONFIG_MAPS, config_map("m", k="x" * size))
    for accept in ("application/yaml", "application/yaml;q=1, application/json"):
        headers = {"Accept": accept}
        status, answered, body = server.raw("GET", f"{CONFIG_MAPS}/m", headers=headers)
        assert (200, "application/yaml") == (status, answered["content-type"])
        assert {"k": "x" * size} == yaml.safe_load(body)["data"]
    _, answered, _ = server.raw("GET", CONFIG_MAPS, headers={"Accept": "*/*, application/yaml"})
    assert "application/json" == answered["content-type"]


def test_a_body_may_be_protobuf(server: MemoryApi) -> None:
    kind = {"Content-Type": "application/vnd.kubernetes.protobuf"}
    meta = b"\x0a\x0f\x0a\x02v1\x12\x09Namespace"  # typeMeta: v1, Namespace
    raw = b"\x12\x06\x0a\x04\x0a\x02ns"  # raw: metadata: name: ns
    assert 201 == server.raw("POST", "/api/v1/namespaces", b"k8s\0" + meta + raw, kind)[0]
    assert 200 == server.raw("GET", "/api/v1/namespaces/ns")[0]
    status, _, body = server.raw("POST", "/api/v1/namespaces", b"k8s\0\xff", kind)
    assert (400, True) == (status, "protobuf" in json.loads(body)["message"])


def test_a_long_list_is_sent_in_pieces_with_a_content_length(server: MemoryApi) -> None:
    names = [f"m{n:03}" for n in range(64 * PIECES_MAX)]
    for name in names:
        server.wire.send(
            f"POST {CONFIG_MAPS} HTTP/1.1\r\nContent-Length: {len(config_map(name))}\r\n",
            config_map(name),
        )
        assert 201 == server.wire.answer()[0]
    status, headers, body = server.raw("GET", CONFIG_MAPS)
    assert (200, str(len(body))) == (status, headers["content-length"])
    assert names == [item["metadata"]["name"] for item in json.loads(body)["items"]]


def test_a_client_may_disconnect_during_a_long_list(
    server: MemoryApi, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(64 * PIECES_MAX):
        server.call("POST", CONFIG_MAPS, config_map(f"m{number:03}", k="x" * 1000))
    wire = server.connect()
    client_of(wire).transport.is_taken = False
    wire.send(f"GET {CONFIG_MAPS} HTTP/1.1\r\n")
    with caplog.at_level(logging.ERROR):
        client_of(wire).leave()
    assert "" == caplog.text
    assert 200 == server.raw("GET", "/healthz")[0]


def test_an_error_may_have_headers(server: MemoryApi) -> None:
    status, headers, _ = server.raw("GET", f"{CONFIG_MAPS}?resourceVersion=999")
    assert (504, "1") == (status, headers["retry-after"])


def test_warning_headers_are_printable(server: MemoryApi) -> None:
    body = json.dumps({"metadata": {"name": "a"}, 'b"\\\n': 1}).encode()
    server.wire.send(
        f"POST {CONFIG_MAPS} HTTP/1.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n",
        body,
    )
    assert 201 == (answer := server.wire.answer())[0]
    assert answer[1]["warning"].startswith('299 - "unknown field')
    assert all(character.isprintable() for character in answer[1]["warning"])
    assert '\\"' in answer[1]["warning"]


def test_many_warnings_are_truncated_and_the_rest_omitted(server: MemoryApi) -> None:
    fields = {f"f{n:04}{'x' * 300}": 1 for n in range(200)}
    body = json.dumps({"metadata": {"name": "a"}, **fields}).encode()
    head = f"POST {CONFIG_MAPS} HTTP/1.1\r\nContent-Type: application/json\r\n"
    server.wire.send(f"{head}Content-Length: {len(body)}\r\n", body)
    raw = bytes(client_of(server.wire).transport.sent)
    lines = [line for line in raw.split(b"\r\n") if line.startswith(b"Warning: ")]
    texts = [line[len(b'Warning: 299 - "') : -1].replace(b"\\", b"") for line in lines]
    assert {WARNING_MAX} == {len(text) for text in texts}
    assert WARNINGS_MAX // WARNING_MAX == len(texts)
    assert 201 == server.wire.answer()[0]


def test_an_unexpected_exception_is_an_internal_error_and_logged(
    server: MemoryApi, caplog: pytest.LogCaptureFixture
) -> None:
    server.call("POST", CONFIG_MAPS, config_map("m"))
    server.api.store.collection(("", "configmaps")).records["default/m"].raw = b"no JSON"
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    with caplog.at_level(logging.ERROR):
        status, _, body = server.raw("GET", CONFIG_MAPS, headers=table)
    assert (500, "InternalError") == (status, json.loads(body)["reason"])
    assert f"GET {CONFIG_MAPS}" in caplog.text
    assert 200 == server.raw("GET", "/healthz")[0], "the connection stays open"


def test_an_exception_during_a_watch_closes_the_connection(
    server: MemoryApi, caplog: pytest.LogCaptureFixture
) -> None:
    server.call("POST", CONFIG_MAPS, config_map("m"))
    server.api.store.collection(("", "configmaps")).records["default/m"].raw = b"no JSON"
    wire = server.connect()
    table = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n"
    with caplog.at_level(logging.ERROR):
        wire.send(f"GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\n{table}")
    assert 200 == wire.answer()[0]
    assert wire.ended()
    assert "cannot send the rest of a response" in caplog.text


# The audit log


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_each_request_is_one_line_of_the_audit_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.ndjson"
    path.write_bytes(b'{"verb": "before"}\n')
    server = MemoryApi(by_roles=True, audit=path)
    agent = {"User-Agent": "tester/1"}
    server.raw("GET", f"{CONFIG_MAPS}?limit=5", headers=agent)
    server.raw("PUT", "/api/v1/nodes/n1/status", b"{}", agent)
    server.raw("GET", "/version", headers=agent)
    server.wire = server.connect({"subject": ((("commonName", "eve"),),)})
    server.wire.authority = "Host: x\r\n"
    server.raw("POST", "/apis/apps/v1/namespaces/default/deployments", b"{}", agent)
    server.watch()
    server.wire = server.connect()
    server.wire.authority = "Host: x\r\nAuthorization: Bearer wrong\r\n"
    server.raw("GET", f"{CONFIG_MAPS}/m?pretty=1", headers=agent)
    server.end()
    before, listed, put, version, forbidden, watch, unknown = lines_of(path)
    assert "before" == before["verb"], "the file is appended to"
    assert ("Event", "audit.k8s.io/v1", "Metadata", "ResponseComplete") == (
        listed["kind"], listed["apiVersion"], listed["level"], listed["stage"]
    )  # fmt: skip
    assert ("list", f"{CONFIG_MAPS}?limit=5", "tester/1", 200) == (
        listed["verb"], listed["requestURI"], listed["userAgent"],
        listed["responseStatus"]["code"],
    )  # fmt: skip
    assert {"resource": "configmaps", "namespace": "default", "apiVersion": "v1"} == listed[
        "objectRef"
    ]
    groups = ["system:masters", "system:authenticated"]
    assert {"username": "admin", "uid": "admin-uid", "groups": groups} == listed["user"]
    assert "2026-09-21T14:13:20.000000Z" == listed["requestReceivedTimestamp"]
    assert ("update", {"resource": "nodes", "name": "n1", "apiVersion": "v1",
                       "subresource": "status"}) == (put["verb"], put["objectRef"])  # fmt: skip
    assert "objectRef" not in version
    assert ("eve", "forbid", 403, "apps") == (
        forbidden["user"]["username"],
        forbidden["annotations"]["authorization.k8s.io/decision"],
        forbidden["responseStatus"]["code"], forbidden["objectRef"]["apiGroup"],
    )  # fmt: skip
    assert ("watch", 200) == (watch["verb"], watch["responseStatus"]["code"])
    assert (401, {}, f"{CONFIG_MAPS}/m?pretty=1", "get", "m") == (
        unknown["responseStatus"]["code"], unknown["user"], unknown["requestURI"],
        unknown["verb"], unknown["objectRef"]["name"],
    )  # fmt: skip
    assert "annotations" not in unknown
    assert 6 == len({line["auditID"] for line in lines_of(path)[1:]})


def test_impersonation_is_read_from_all_headers_and_logged(tmp_path: Path) -> None:
    path = tmp_path / "audit.ndjson"
    server = MemoryApi(by_roles=True, audit=path)
    server.wire.authority += (
        "Impersonate-User: eve\r\nimpersonate-group: dev\r\nImpersonate-Group: ops\r\n"
        "Impersonate-Extra-example.com%2Fscope: a\r\n"
    )
    status, answer = server.call("POST", REVIEW, REVIEW_BODY)
    assert 201 == status
    info = answer["status"]["userInfo"]
    assert ("eve", ["dev", "ops", "system:authenticated"]) == (info["username"], info["groups"])
    assert {"example.com/scope": ["a"]} == info["extra"]
    assert 403 == server.raw("GET", CONFIG_MAPS)[0]
    known = server.wire.authority
    server.wire.authority += "Impersonate-%75ser: x\r\n"
    assert 400 == server.raw("GET", CONFIG_MAPS)[0]
    server.wire.authority = known
    assert 403 == server.raw("POST", CONFIG_MAPS, config_map("m"))[0], "by its headers alone"
    server.end()
    first, second, third, written = lines_of(path)
    for line in (second, written):
        assert ("admin", "eve") == (line["user"]["username"], line["impersonatedUser"]["username"])
    assert ("admin", "eve") == (first["user"]["username"], first["impersonatedUser"]["username"])
    decision = "authorization.k8s.io/decision"
    assert "allow" == first["annotations"][decision]
    assert ("forbid", 403) == (
        second["annotations"][decision], second["responseStatus"]["code"]
    )  # fmt: skip
    assert ("forbid", 400) == (third["annotations"][decision], third["responseStatus"]["code"])
    assert "impersonatedUser" not in third


def test_the_audit_log_has_the_decision_of_the_authorizer_and_the_answer(tmp_path: Path) -> None:
    path = tmp_path / "audit.ndjson"
    server = MemoryApi(by_roles=True, audit=path, database=Database(tmp_path))
    assert 403 == server.raw("DELETE", "/api/v1/namespaces/default")[0], "by admission"
    with locked(tmp_path):
        assert 500 == server.raw("POST", CONFIG_MAPS, config_map("m"))[0]
    server.end()
    protected, lost = lines_of(path)
    decision = "authorization.k8s.io/decision"
    assert ("allow", 403) == (
        protected["annotations"][decision], protected["responseStatus"]["code"]
    )  # fmt: skip
    assert ("allow", 500) == (lost["annotations"][decision], lost["responseStatus"]["code"])


def test_an_audit_log_that_cannot_be_written_takes_no_answer_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = MemoryApi(audit=Path("/dev/full"))
    with caplog.at_level(logging.ERROR):
        assert 201 == server.raw("POST", CONFIG_MAPS, config_map("m"))[0]
    assert "cannot write the audit log: No space left on device" in caplog.text
    assert 200 == server.raw("GET", f"{CONFIG_MAPS}/m")[0]
    server.end()


# Writes on disk


def test_a_write_is_answered_when_it_is_on_disk(tmp_path: Path) -> None:
    database = Database(tmp_path)
    server = MemoryApi(database=database)
    body = config_map("m", k="v")
    server.wire.send(f"POST {CONFIG_MAPS} HTTP/1.1\r\nContent-Length: {len(body)}\r\n", body)
    server.flush()
    assert 201 == server.wire.answer()[0]
    query = "SELECT key FROM obj WHERE key LIKE '%configmaps%'"
    with sqlite3.connect(tmp_path / FILE) as other:
        assert [("/configmaps/default/m",)] == other.execute(query).fetchall()
    server.end()
    database.close()


def test_a_write_that_cannot_be_committed_is_an_error_and_is_undone(tmp_path: Path) -> None:
    database = Database(tmp_path)
    server = MemoryApi(database=database)
    with locked(tmp_path):
        status, answer = server.call("POST", CONFIG_MAPS, config_map("m"))
    assert (500, "InternalError") == (status, answer["reason"])
    assert "rolled back: the database cannot commit it: database is locked" in answer["message"]
    assert 404 == server.call("GET", f"{CONFIG_MAPS}/m")[0]
    assert 201 == server.call("POST", CONFIG_MAPS, config_map("m"))[0]
    server.end()
    database.close()


def test_requests_have_the_time_of_the_handlers_clock(server: MemoryApi) -> None:
    server.call("POST", CONFIG_MAPS, config_map("m"))
    answer = server.api.handle(Request("GET", f"{CONFIG_MAPS}/m", NOW_NS))
    assert isinstance(answer, Response)
    created = json.loads(answer.body)["metadata"]["creationTimestamp"]
    assert "2026-09-21T14:13:20Z" == created


# What a controller is about to make

PODS = "/api/v1/namespaces/default/pods"
POD = b'{"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "c:1"}]}}'


def post_pod(server: MemoryApi) -> Wire:
    """A connection on which a pod is posted while its namespace has no default account."""
    server.api.context.admission_plugins = frozenset({"ServiceAccount"})
    wire = server.connect()
    head = f"POST {PODS} HTTP/1.1\r\nContent-Type: application/json\r\n"
    wire.send(f"{head}Content-Length: {len(POD)}\r\n", POD)
    server.flush()
    return wire


def test_a_pod_waits_for_the_default_account_of_its_namespace(server: MemoryApi) -> None:
    wire = post_pod(server)
    server.loop.advance(0.2)
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    assert 404 == server.call("GET", f"{PODS}/p")[0], "others are answered meanwhile"
    assert 201 == server.call("POST", accounts, b'{"metadata": {"name": "default"}}')[0]
    server.loop.advance(0.2)
    server.flush()
    status, _, body = wire.answer()
    assert (201, "default") == (status, json.loads(body)["spec"]["serviceAccountName"])


def test_a_default_account_that_does_not_come_is_not_waited_for_long(server: MemoryApi) -> None:
    wire = post_pod(server)
    server.loop.advance(2)
    status, _, body = wire.answer()
    assert 403 == status
    assert 'serviceaccount "default" not found' in json.loads(body)["message"]


def test_a_client_that_has_gone_is_not_waited_for(server: MemoryApi) -> None:
    wire = post_pod(server)
    client_of(wire).leave()
    server.loop.advance(2)
    assert 200 == server.call("GET", CONFIG_MAPS)[0]
