"""stower run with extenders that are asked over HTTP, on loopback."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.contract.servers import Client
from tests.contract.test_live import (
    PODS,
    add_nodes,
    add_pods,
    bound,
    condition,
    condition_false,
    scheduler,
    served,
    until,
)

__all__ = ["served"]
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


class Extender:
    """Keeps what it was asked, and says what it was told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, Any] = {}
        self.url = ""


@contextmanager
def extender() -> Iterator[Extender]:
    own = Extender()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            verb = self.path.rpartition("/")[2]
            own.asked.append((verb, body))
            answer = own.answers[verb]
            data = json.dumps(answer(body) if callable(answer) else answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    own.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield own
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def config(path: Path, extenders: str) -> str:
    path.write_text(HEAD + f"extenders: {extenders}\n")
    return str(path)


@pytest.mark.parametrize("cached", [False, True])
def test_nodes_and_pods_go_out_whole_and_the_answer_counts(
    served: Client, tmp_path: Path, cached: bool
) -> None:
    add_nodes(served, 3)
    add_pods(served, ["a"])
    with extender() as other:
        other.answers = {
            "filter": lambda body: (
                {"NodeNames": ["n1", "n2"]}
                if cached
                else {"Nodes": {"items": body["Nodes"]["items"][1:]}}
            ),
            "score": [{"Host": "n2", "Score": 9}],
        }
        file = config(
            tmp_path / "c.yaml",
            f"[{{urlPrefix: '{other.url}/x', filterVerb: filter, prioritizeVerb: score, weight: 7, "
            f"nodeCacheCapable: {str(cached).lower()}}}]",
        )
        with scheduler(served.kubeconfig, "--no-leader-elect", "--config", file):
            pods = until(served, PODS, lambda o: "a" in bound(o))
    assert "n2" == bound(pods)["a"]
    assert ["filter", "score"] == [verb for verb, _ in other.asked]
    body = other.asked[0][1]
    assert ("a", "Pod") == (body["Pod"]["metadata"]["name"], body["Pod"]["kind"])
    assert "restartPolicy" in body["Pod"]["spec"]  # what no decision depends on is there too
    if cached:
        assert ["n0", "n1", "n2"] == body["NodeNames"]
    else:
        assert ["n0", "n1", "n2"] == [n["metadata"]["name"] for n in body["Nodes"]["items"]]


def test_an_extender_that_is_not_there_is_told(served: Client, tmp_path: Path) -> None:
    add_nodes(served, 1)
    add_pods(served, ["a"])
    with extender() as gone:
        url = gone.url
    file = config(tmp_path / "c.yaml", f"[{{urlPrefix: '{url}', filterVerb: filter}}]")
    with scheduler(served.kubeconfig, "--no-leader-elect", "--config", file):
        pods = until(served, PODS, lambda o: any(map(condition_false, o.values())))
    told = condition(pods["a"])
    assert "SchedulerError" == told["reason"]
    assert told["message"].startswith(f'extender "{url}": filter: Cannot connect to host')


def test_an_extender_that_takes_too_long_is_given_up(served: Client, tmp_path: Path) -> None:
    add_nodes(served, 1)
    add_pods(served, ["a"])
    with extender() as slow:
        hurry = threading.Event()
        slow.answers = {"filter": lambda body: hurry.wait(10) and {}}
        file = config(
            tmp_path / "c.yaml",
            f"[{{urlPrefix: '{slow.url}', filterVerb: filter, httpTimeout: 100ms}}]",
        )
        with scheduler(served.kubeconfig, "--no-leader-elect", "--config", file):
            pods = until(served, PODS, lambda o: any(map(condition_false, o.values())))
            hurry.set()
    assert condition(pods["a"])["message"].endswith("filter: no answer within 0.1 s")


def test_an_extender_binds(served: Client, tmp_path: Path) -> None:
    add_nodes(served, 1)
    add_pods(served, ["a"])

    def bind(body: dict[str, Any]) -> dict[str, str]:
        target = {"kind": "Node", "name": body["Node"]}
        binding = {"metadata": {"name": body["PodName"], "uid": body["PodUID"]}, "target": target}
        served.call("POST", f"{PODS}/{body['PodName']}/binding", binding)
        return {}

    with extender() as other:
        other.answers = {"bind": bind}
        file = config(tmp_path / "c.yaml", f"[{{urlPrefix: '{other.url}', bindVerb: bind}}]")
        with scheduler(served.kubeconfig, "--no-leader-elect", "--config", file):
            pods = until(served, PODS, lambda o: "a" in bound(o))
    assert "n0" == bound(pods)["a"]
