"""Servers with TLS on loopback, from the state directory to the shutdown."""

import asyncio
import logging
import sqlite3
import ssl
from pathlib import Path

import pytest
import yaml

from stower.apiserver import server_process
from stower.apiserver.database import FILE, Database, StateError
from stower.apiserver.server_process import Options, RunningServer, run_server, serve
from tests.contract.servers import in_thread, until
from tests.unit.apiserver.memory_api import CONFIG_MAPS, locked

REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW_BODY = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
FIRST_WRITE = "cannot write the built-in objects: database is locked"
EVENTS = "/api/v1/namespaces/default/events"


def test_objects_and_credentials_survive_a_restart(tmp_path: Path) -> None:
    audit = tmp_path / "audit.ndjson"
    with in_thread(Options(tmp_path / "state", audit=audit)) as (server, client):
        assert 0 == server.objects
        assert server.url == client.url
        made = client.call("POST", CONFIG_MAPS, {"metadata": {"name": "m"}})[1]
        kubeconfig = server.kubeconfig.read_text()
    assert b"/configmaps" in audit.read_bytes()
    with in_thread(Options(tmp_path / "state")) as (server, client):
        assert server.objects > 1, "the built-in objects and m"
        assert (200, made) == client.call("GET", f"{CONFIG_MAPS}/m")
        assert 401 == client.raw("GET", CONFIG_MAPS, headers={"Authorization": "Bearer x"})[0]
        before, after = yaml.safe_load(kubeconfig), yaml.safe_load(server.kubeconfig.read_text())
        assert before["users"] == after["users"]
        authority = [
            config["clusters"][0]["cluster"]["certificate-authority-data"]
            for config in (before, after)
        ]
        assert authority[0] == authority[1]


def test_the_service_of_the_server_leads_to_where_it_listens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = "/api/v1/namespaces/default/services/kubernetes"
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
    made = set()
    monkeypatch.setattr(server_process, "INTERVAL_S", 0.05)
    for _ in range(2):
        with in_thread(Options(tmp_path / "state")) as (server, client):
            service = client.call("GET", services)[1]
            made.add(service["metadata"]["uid"])
            assert ("10.96.0.1", 443) == (
                service["spec"]["clusterIP"], service["spec"]["ports"][0]["port"]
            )  # fmt: skip
            found = client.call("GET", slices)[1]
            address, port = found["endpoints"][0]["addresses"][0], found["ports"][0]["port"]
            assert server.url == f"https://{address}:{port}"
            assert 200 == client.call("DELETE", slices)[0]
            until(client, slices.rpartition("/")[0], lambda found: "kubernetes" in found)
    assert 1 == len(made)


def test_a_server_in_memory_writes_its_credentials_and_no_objects(tmp_path: Path) -> None:
    state, kubeconfig = tmp_path / "state", tmp_path / "elsewhere" / "kubeconfig"
    with in_thread(Options(state, memory=True, kubeconfig=kubeconfig)) as (_, client):
        assert 201 == client.call("POST", CONFIG_MAPS, {"metadata": {"name": "m"}})[0]
        private = [kubeconfig, *(state / "pki").glob("*.key"), state / "pki" / "token"]
        assert {0o600} == {path.stat().st_mode & 0o777 for path in private}
    assert ["pki"] == [path.name for path in state.iterdir()]


def test_the_roles_of_kubernetes_exist_only_if_roles_are_on(tmp_path: Path) -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    for by_roles in (False, True):
        with in_thread(Options(tmp_path, memory=True, by_roles=by_roles)) as (_, client):
            assert by_roles == bool(client.call("GET", roles)[1]["items"])


def test_a_client_certificate_authenticates_without_a_token(tmp_path: Path) -> None:
    with in_thread(Options(tmp_path, memory=True)) as (_, client):
        client.token = "none"
        assert 401 == client.call("POST", REVIEW, REVIEW_BODY)[0]
        client.close()
        client.context.load_cert_chain(tmp_path / "pki/admin.crt", tmp_path / "pki/admin.key")
        status, answer = client.call("POST", REVIEW, REVIEW_BODY)
        assert (201, "admin") == (status, answer["status"]["userInfo"]["username"])


def test_the_server_certificate_is_for_its_host_and_signed_by_the_servers_own_authority(
    tmp_path: Path,
) -> None:
    with in_thread(Options(tmp_path, memory=True)) as (_, client):
        client.context.set_alpn_protocols(["h2", "http/1.1"])
        connection = client.connect()
        connection.connect()
        assert "http/1.1" == connection.sock.selected_alpn_protocol()
        connection.close()
    with in_thread(Options(tmp_path, memory=True, host="127.0.0.2")) as (server, client):
        assert server.url.startswith("https://127.0.0.2:")
        assert 200 == client.call("GET", "/version")[0]
        client.close()
        client.context = ssl.create_default_context()
        with pytest.raises(ssl.SSLCertVerificationError):
            client.call("GET", "/version")


def test_an_event_is_deleted_when_its_ttl_is_over(tmp_path: Path) -> None:
    event = {
        "metadata": {"name": "e"}, "reason": "Scheduled", "type": "Normal",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
    }  # fmt: skip
    with in_thread(Options(tmp_path, memory=True, event_ttl_s=0.05)) as (_, client):
        assert 201 == client.call("POST", EVENTS, event)[0]
        assert {} == until(client, EVENTS, lambda events: "e" not in events)


def test_a_state_directory_that_is_in_use_or_damaged_is_refused(tmp_path: Path) -> None:
    database = Database(tmp_path)
    with pytest.raises(StateError, match="another stower apiserver"):
        in_thread(Options(tmp_path)).__enter__()
    database.close()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("INSERT INTO obj (key, rv, data) VALUES ('x', 1, 'no JSON')")
    connection.close()
    for _ in range(2):  # the first attempt leaves no lock
        with pytest.raises(StateError, match="cannot read the objects"):
            in_thread(Options(tmp_path)).__enter__()


def test_a_server_that_cannot_write_does_not_start(tmp_path: Path) -> None:
    Database(tmp_path).close()
    server = in_thread(Options(tmp_path))
    with locked(tmp_path), pytest.raises(StateError, match=FIRST_WRITE):
        server.__enter__()
    Database(tmp_path).close()


def test_a_server_that_cannot_listen_releases_its_state_directory(tmp_path: Path) -> None:
    with in_thread(Options(tmp_path / "one", memory=True)) as (_, client):
        second = in_thread(Options(tmp_path / "two", port=int(client.port)))
        with pytest.raises(OSError, match="in use"):
            second.__enter__()
    Database(tmp_path / "two").close()


def test_a_server_that_stops_ends_its_watches_and_closes_its_port(tmp_path: Path) -> None:
    with in_thread(Options(tmp_path, memory=True)) as (_, client):
        watch = client.connect()
        headers = {"Authorization": f"Bearer {client.token}"}
        watch.request("GET", f"{CONFIG_MAPS}?watch=1", headers=headers)
        response = watch.getresponse()
        assert 200 == response.status
    assert b"" == response.read(), "the last chunk, not a broken connection"
    watch.close()
    # Refused, or taken by a server with another authority meanwhile.
    with pytest.raises((ConnectionRefusedError, ssl.SSLError)):
        client.connect().connect()


def test_serve_returns_when_the_stop_event_is_set(tmp_path: Path) -> None:
    servers: list[RunningServer] = []
    stops: list[asyncio.Event] = []

    def ready(server: RunningServer) -> None:
        servers.append(server)
        stops[0].set()

    def stop() -> asyncio.Event:
        stops.append(asyncio.Event())
        return stops[0]

    asyncio.run(serve(Options(tmp_path), ready, stop))
    assert servers[0].kubeconfig == tmp_path / "kubeconfig"
    Database(tmp_path).close()


def test_a_folder_that_others_can_write_to_is_not_served_from(tmp_path: Path) -> None:
    """Its token would be that of whoever wrote it."""
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "token").write_text("known")
    (tmp_path / "pki" / "token").chmod(0o666)

    async def main() -> None:
        async with run_server(Options(tmp_path, memory=True)):
            raise AssertionError("it is served")

    with pytest.raises(StateError, match=r"other users can write to .*token"):
        asyncio.run(main())
    assert ["token"] == [path.name for path in (tmp_path / "pki").iterdir()]


def test_a_lost_connection_is_logged_as_information_and_other_errors_as_errors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with run_server(Options(tmp_path, memory=True)):
            loop = asyncio.get_running_loop()
            for error in (ConnectionResetError("gone"), ssl.SSLError("no TLS"), KeyError("ours")):
                loop.call_exception_handler({"message": "a fault", "exception": error})

    with caplog.at_level(logging.INFO):
        asyncio.run(main())
    records = [(record.name, record.levelname) for record in caplog.records]
    assert 2 == records.count((server_process.log.name, "INFO"))
    assert [("asyncio", "ERROR")] == [each for each in records if each[0] == "asyncio"]
