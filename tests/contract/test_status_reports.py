"""What a scheduler tells of itself: to whom, over TLS, and what its pages say."""

import contextlib
import json
import signal
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stower.apiserver.server_process import Options
from stower.pki.certificates import make_self_signed
from tests.contract.servers import Client, in_thread, until
from tests.contract.test_live import PODS, add_nodes, add_pods, bound, condition_false, scheduler

Object = dict[str, Any]
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Client]:
    with in_thread(Options(tmp_path / "state", memory=True, by_roles=True)) as (_, client):
        yield client


def url_of(output: str) -> str:
    return output.partition("dashboard and metrics on ")[2].partition(". ")[0]


def get(url: str, token: str = "", context: ssl.SSLContext | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def account(client: Client, name: str, rules: list[Object]) -> str:
    """A service account with these rights; its token."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    assert 201 == client.call("POST", accounts, {"metadata": {"name": name}})[0]
    role = {"metadata": {"name": name}, "rules": rules}
    assert 201 == client.call("POST", f"{RBAC}/clusterroles", role)[0]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    binding = {"metadata": {"name": name}, "roleRef": ref, "subjects": [subject]}
    assert 201 == client.call("POST", f"{RBAC}/clusterrolebindings", binding)[0]
    body: Object = {"spec": {}}
    code, made = client.call("POST", f"{accounts}/{name}/token", body)
    assert 201 == code
    return str(made["status"]["token"])


def test_whom_the_cluster_lets_in_is_let_in(served: Client) -> None:
    """Without a token of its own, a scheduler asks the API server, as kube-scheduler does."""
    reader = account(served, "prometheus", [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])
    nobody = account(served, "nobody", [])
    add_nodes(served, 1)
    with scheduler(served.kubeconfig, "--no-leader-elect", "--port", "0") as command:
        url = url_of(command.output)
        add_pods(served, ["a"])
        until(served, PODS, lambda o: "a" in bound(o))
        assert (200, "ok") == get(f"{url}/healthz")
        code, text = get(f"{url}/readyz?verbose")
        assert (200, True) == (code, "[+]lists ok" in text)
        assert 401 == get(f"{url}/metrics")[0]
        assert 401 == get(f"{url}/metrics", "made-up")[0]
        assert (403, True) == (
            lambda found: (found[0], "cannot get path \"/metrics\"" in found[1])
        )(get(f"{url}/metrics", nobody))  # fmt: skip
        assert 403 == get(f"{url}/debug/queue", reader)[0]
        code, text = get(f"{url}/metrics", reader)
        assert 200 == code
        for name in (
            'scheduler_schedule_attempts_total{profile="default-scheduler",result="scheduled"} 1.0',
            "scheduler_scheduling_attempt_duration_seconds_count",
            "scheduler_scheduling_algorithm_duration_seconds_count 1.0",
            'scheduler_pod_scheduling_sli_duration_seconds_count{attempts="1"} 1.0',
            "scheduler_pod_scheduling_attempts_count 1.0",
            'scheduler_queue_incoming_pods_total{event="PodAdd",queue="active"} 1.0',
            'api_call_execution_total{call_type="pod_binding",result="success"} 1.0',
            'scheduler_pending_pods{queue="unschedulable"} 0.0',
            'scheduler_cache_size{type="assumed_pods"}',
            'rest_client_requests_total{code="201",method="POST"}',
            "process_resident_memory_bytes",
            "stower_loop_stall_seconds_max",
        ):
            assert name in text, name
        assert 0 == command.stop()


def test_pages_for_debugging(served: Client, tmp_path: Path) -> None:
    add_nodes(served, 2)
    token = tmp_path / "token"
    with scheduler(
        served.kubeconfig, "--no-leader-elect", "--port", "0", "--token-file", str(token)
    ) as command:
        url, shown = url_of(command.output), token.read_text().strip()

        def page(path: str) -> Any:
            code, text = get(f"{url}{path}", shown)
            assert 200 == code, text
            return json.loads(text)

        add_pods(served, ["a"])
        add_pods(served, ["big"], "9")
        until(served, PODS, lambda o: "a" in bound(o) and condition_false(o["big"]))
        waiting = page("/debug/queue")
        assert (True, 1, ["default/big"]) == (
            waiting["leads"], waiting["counts"]["unschedulable"],
            [one["pod"] for one in waiting["pods"]],
        )  # fmt: skip
        assert ["NodeResourcesFit"] == waiting["pods"][0]["refusedBy"]
        node = bound(until(served, PODS, lambda o: "a" in bound(o)))["a"]
        (cached,) = page(f"/debug/cache?node={node}")["nodes"]
        assert (4000, 100, ["default/a"]) == (
            cached["allocatable"]["cpuMilli"], cached["requested"]["cpuMilli"], cached["pods"],
        )  # fmt: skip
        assert {"placed", "unschedulable"} == {one["outcome"] for one in page("/debug/decisions")}
        assert {"equal": True} == {
            name: value for name, value in page("/debug/comparison").items() if value
        }
        assert "/debug/comparison" in page("/debug/")["paths"]
        assert 404 == get(f"{url}/debug/other", shown)[0]
        command.process.send_signal(signal.SIGUSR2)
        assert 0 == command.stop()


def test_tls_with_files_that_are_read_again(served: Client, tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def write() -> ssl.SSLContext:
        pem = make_self_signed("test", ("127.0.0.1",)).decode()
        end = "-----END CERTIFICATE-----\n"
        first, _, rest = pem.partition(end)
        key.write_text(rest)
        certificate.write_text(first + end)
        return ssl.create_default_context(cadata=first + end)

    context = write()
    files = ("--tls-cert-file", str(certificate), "--tls-private-key-file", str(key))
    token = ("--token-file", str(tmp_path / "token"))
    with scheduler(
        served.kubeconfig, "--no-leader-elect", "--secure-port", "0", *files, *token
    ) as command:
        url = url_of(command.output)
        assert url.startswith("https://")
        assert (200, "ok") == get(f"{url}/healthz", context=context)
        other = write()
        while True:  # until it shows the new one
            with contextlib.suppress(urllib.error.URLError):
                assert (200, "ok") == get(f"{url}/healthz", context=other)
                break
            threading.Event().wait(0.1)
        with pytest.raises(urllib.error.URLError):
            get(f"{url}/healthz", context=context)


def test_beyond_loopback_there_is_tls_in_any_case(served: Client, tmp_path: Path) -> None:
    token = ("--token-file", str(tmp_path / "token"))
    with scheduler(
        served.kubeconfig, "--no-leader-elect", "--port", "0", "--bind-address", "0.0.0.0", *token
    ) as command:
        url = url_of(command.output)
        assert url.startswith("https://0.0.0.0:")
        own = ssl.create_default_context()
        own.check_hostname, own.verify_mode = False, ssl.CERT_NONE
        assert (200, "ok") == get(url.replace("0.0.0.0", "127.0.0.1") + "/healthz", context=own)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_for_each_decision(served: Client, tmp_path: Path, form: str) -> None:
    """And no secret in any of them."""
    add_nodes(served, 1)
    log = tmp_path / "log"
    config = yaml.safe_load(served.kubeconfig.read_text())
    secret = config["users"][0]["user"]["token"]
    command = [sys.executable, "-m", "stower.cli.main", "run", "--no-leader-elect",
               "--kubeconfig", str(served.kubeconfig), "--v=6",
               "--logging-format", form]  # fmt: skip
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)
        try:
            add_pods(served, ["a"])
            add_pods(served, ["big"], "9")
            until(served, PODS, lambda o: "a" in bound(o) and condition_false(o["big"]))
        finally:
            process.send_signal(signal.SIGTERM)
            assert 0 == process.wait(20)
    text = log.read_text()
    assert secret not in text
    lines = text.splitlines()
    if form == "text":
        assert any('Successfully bound pod to node pod="default/a" node="n0"' in x for x in lines)
        assert any('no fit; waiting pod="default/big"' in x for x in lines)
        return
    found = [json.loads(line) for line in lines]
    told = next(one for one in found if one["msg"] == "Successfully bound pod to node")
    assert ({"name": "a", "namespace": "default"}, "n0", 2) == (
        told["pod"], told["node"], told["v"],
    )  # fmt: skip
    assert any(one.get("call") == "pod_binding" for one in found)
