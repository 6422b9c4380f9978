"""`stower run --dry-run`: nothing is written, and what another scheduler decides is judged."""

import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stower.apiserver.server_process import Options
from tests.contract.servers import Client, in_thread
from tests.contract.test_live import PODS, add_nodes, add_pods
from tests.golden.run import cases
from tests.golden.shadow_suite import shadow

CASES = Path(__file__).parents[1] / "golden" / "cases" / "sequence.ndjson.gz"
SOME = 6
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Client, Path]]:
    audit = tmp_path / "audit.ndjson"
    with in_thread(Options(tmp_path / "state", memory=True, audit=audit)) as (_, client):
        yield client, audit


def bind(client: Client, pod: str, node: str) -> None:
    target = {"kind": "Node", "apiVersion": "v1", "name": node}
    body = {"metadata": {"name": pod, "namespace": "default"}, "target": target}
    assert 201 == client.call("POST", f"{PODS}/{pod}/binding", body)[0]


def say(client: Client, pod: str, message: str) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                 "message": message}  # fmt: skip
    data = {"status": {"conditions": [condition]}}
    assert 200 == client.call("PATCH", f"{PODS}/{pod}/status", data, STRATEGIC)[0]


class Watching:
    """The command, from the moment when it watches."""

    def __init__(self, client: Client, folder: Path, *arguments: str) -> None:
        command = ["run", "--kubeconfig", str(client.kubeconfig), "--dry-run", *arguments]
        command += ["--port", "0", "--token-file", str(folder / "token")]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stower.cli.main", *command],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

        said = self.process.stderr if "-o" in arguments else self.process.stdout
        assert said is not None
        url = said.readline().partition("dashboard and metrics on ")[2].partition(". ")[0]
        while True:
            try:
                with urllib.request.urlopen(f"{url}/readyz", timeout=10) as answer:
                    assert 200 == answer.status
                    return
            except urllib.error.HTTPError as error:
                error.close()
            threading.Event().wait(0.05)

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


def decided(client: Client) -> None:
    """Another scheduler's day: right, worse, wrong, blind, and right to give up."""
    add_pods(client, ["right", "worse"], "1")
    bind(client, "right", "n0")  # all are equal
    bind(client, "worse", "n0")  # an empty one would be better
    add_pods(client, ["wrong"], "3")
    bind(client, "wrong", "n0")  # where 2 of 4 cores are left
    add_pods(client, ["blind"], "1")
    say(client, "blind", "0/3 nodes are available: 3 of them are too far away.")
    add_pods(client, ["big"], "9")
    say(client, "big", "0/3 nodes are available: 3 Insufficient cpu.")


def test_decisions_of_another_scheduler_are_judged_and_nothing_is_written(
    served: tuple[Client, Path],
) -> None:
    client, audit = served
    add_nodes(client, 3)
    watching = Watching(client, audit.parent, "--for", "6s", "-o", "json")
    add_pods(client, ["first"], "10m")  # waits, and would be placed
    decided(client)
    code, out, _ = watching.ended()
    found = json.loads(out)
    want = {"agrees": 2, "differs": 1, "refuses": 1, "places": 1, "unknown": 0, "missed": 0,
            "race": 0}  # fmt: skip
    assert (1, want, 5, 40.0) == (
        code, found["verdicts"], found["decisions"], found["agreementPercent"]
    )  # fmt: skip
    by_pod = {one["pod"].split("/")[1]: one for one in found["differences"]}
    assert ("differs", ["n1", "n2"], 3) == tuple(
        by_pod["worse"][name] for name in ("verdict", "best", "rank")
    )  # fmt: skip
    assert ["NodeResourcesFit: Insufficient cpu"] == by_pod["wrong"]["reasons"]
    assert "places" == by_pod["blind"]["verdict"]
    waiting = {one["pod"]: one.get("best") for one in found["pending"]}
    assert ["n1", "n2"] == waiting["default/first"]
    assert "default/big" in waiting
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    ours = [one for one in lines if one["userAgent"].startswith("stower-scheduler")]
    asked = {one["verb"] for one in ours if "selfsubjectaccessreviews" not in one["requestURI"]}
    assert asked == {"get", "list", "watch"}


def test_a_day_that_is_only_watched_is_recorded(served: tuple[Client, Path]) -> None:
    client, audit = served
    add_nodes(client, 3)
    path = audit.parent / "day.ndjson"
    watching = Watching(client, audit.parent, "--for", "5s", "-o", "json", "--record", str(path))
    decided(client)
    _, out, _ = watching.ended()
    assert 5 == json.loads(out)["decisions"]
    for verb in (("replay",), ("what-if", "--add-nodes", "1")):
        command = [sys.executable, "-m", "stower.cli.main", verb[0], str(path), *verb[1:]]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert 0 == ran.returncode, ran.stderr
        assert {"replay": "byte for byte", "what-if": "pods"}[verb[0]] in ran.stdout


def test_the_report_for_people(served: tuple[Client, Path]) -> None:
    client, audit = served
    add_nodes(client, 3)
    watching = Watching(client, audit.parent, "--for", "5s")
    decided(client)
    code, out, _ = watching.ended()
    assert 1 == code
    assert "default/wrong -> n0: refuses: NodeResourcesFit: Insufficient cpu" in out
    assert "default/worse -> n0: differs: n1, n2 is better (score" in out
    assert "one of the best nodes was chosen" in out


def test_agreement_is_exit_code_0(served: tuple[Client, Path]) -> None:
    client, audit = served
    add_nodes(client, 1)
    watching = Watching(client, audit.parent, "--for", "4s", "-o", "yaml")
    add_pods(client, ["a"], "1")
    bind(client, "a", "n0")
    code, out, _ = watching.ended()
    assert (0, True) == (code, "agreementPercent: 100.0" in out)


@pytest.mark.parametrize("arguments", [("--for", "5m"), ("--dry-run", "--for", "soon")])
def test_a_time_that_makes_no_sense_is_refused(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "stower.cli.main", "run", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (2, True) == (ran.returncode, "--for" in ran.stderr)


def differences(some: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {case["id"]: found for case in some if (found := [*shadow(case)])}


def test_recorded_sequences_agree() -> None:
    some = [*cases(CASES)]
    assert {} == differences(some[:: max(1, len(some) // SOME)])


@pytest.mark.more
def test_all_recorded_sequences_agree() -> None:
    assert {} == differences([*cases(CASES)])
