"""VMs on an API server over HTTP: kubectl's columns, agents, metrics, `stower vms`."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from stower.apiserver.server_process import Options
from stower.cli.main import app
from tests.contract.servers import Client, Command, in_thread, until
from tests.contract.test_live import scheduler
from tests.contract.test_up import stower

EXAMPLES = Path(__file__).parents[2] / "examples" / "vms"
VMS = "/apis/vm.neon.tech/v1/namespaces/default/virtualmachines"
APPROVED = "internal.autoscaling.neon.tech/resources-approved"
Object = dict[str, Any]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Client]:
    with in_thread(Options(tmp_path / "state", memory=True)) as (_, client):
        yield client


def machine(name: str) -> Object:
    documents = yaml.safe_load_all((EXAMPLES / "vms.yaml").read_text())
    vm: Object = next(document for document in documents if document)
    vm["metadata"] = {"name": name, "labels": vm["metadata"]["labels"]}
    return vm


def asked(url: str, body: Any) -> tuple[int, str]:
    """What an agent is answered."""
    try:
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.behaviour("S4.28", "S4.30")
def test_an_agent_asks_over_http_and_the_vm_grows(served: Client, tmp_path: Path) -> None:
    kubeconfig, token = str(served.kubeconfig), tmp_path / "token"
    arguments = ("--config", str(EXAMPLES / "scheduler.yaml"), "--agents", "127.0.0.1:0",
                 "--port", "0", "--token-file", str(token))  # fmt: skip
    actors = Command("actors", "--kubeconfig", kubeconfig, "--nodes", "2")
    try:
        with scheduler(served.kubeconfig, "--no-leader-elect", *arguments) as command:
            assert 201 == served.call("POST", VMS, machine("pg"))[0]
            found = until(served, VMS, lambda o: "cpus" in (o["pg"].get("status") or {}))["pg"]
            host, port = re.findall(r"autoscaler-agents on (\S+):(\d+)", command.output)[0]
            body = {
                "protoVersion": 7,
                "pod": {"namespace": "default", "name": found["status"]["podName"]},
                "computeUnit": {"vCPUs": "250m", "mem": "1Gi"},
                "resources": {"vCPUs": 1, "mem": "2Gi"},
                "lastPermit": {"vCPUs": "250m", "mem": "1Gi"},
                "metrics": None,
            }
            answer = asked(f"http://{host}:{port}/", body)
            permit = {"permit": {"vCPUs": 1, "mem": "2Gi"}}
            assert (200, permit) == (answer[0], json.loads(answer[1]))
            assert (400, "bad JSON") == asked(f"http://{host}:{port}/", [])
            code, told, error = stower("vms", "pg", "--kubeconfig", kubeconfig, "-o", "json")
            assert (0, "") == (code, error)
            (vm,) = json.loads(told)
            assert {"cpu": 1, "memory": "2Gi"} == vm["approved"] == vm["requested"]
            metrics = re.findall(r"http://127.0.0.1:(\d+)", command.output)[0]
            request = urllib.request.Request(
                f"http://127.0.0.1:{metrics}/metrics",
                headers={"Authorization": f"Bearer {token.read_text().strip()}"},
            )
            with urllib.request.urlopen(request, timeout=10) as shown:
                text = shown.read().decode()
            assert 'autoscaling_plugin_resource_requests_total{code="200"} 1.0' in text
            reserved = 'autoscaling_plugin_node_cpu_resources_current{field="Reserved"'
            assert any(line.startswith(reserved) for line in text.splitlines())
            assert "autoscaling_plugin_reconcile_queue_wait_durations_bucket" in text
    finally:
        actors.kill()


def test_columns_of_vms(served: Client) -> None:
    served.call("POST", VMS, machine("pg"))
    headers = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    shown = json.loads(served.raw("GET", VMS, None, headers)[2])
    names = [column["name"] for column in shown["columnDefinitions"] if not column["priority"]]
    assert ["Name", "Cpus", "Memory", "Pod", "ExtraIP", "Status", "Restarts", "Age"] == names


def refused(*arguments: str) -> str:
    """What `stower run` says before it starts."""
    ran = CliRunner().invoke(app, ["run", *arguments])
    assert 2 == ran.exit_code
    return ran.stderr


def test_agents_and_neons_file_want_a_profile_that_has_vms(tmp_path: Path) -> None:
    assert "no profile enables AutoscaleEnforcer" in refused("--agents", "127.0.0.1:10299")
    assert "no profile enables AutoscaleEnforcer" in refused("--vm-config", "none.json")


def test_what_is_wrong_with_neons_file_is_said_as_neon_says_it(tmp_path: Path) -> None:
    config, wrong = tmp_path / "scheduler.yaml", tmp_path / "neon.json"
    document = yaml.safe_load((EXAMPLES / "scheduler.yaml").read_text())
    del document["profiles"][1]["pluginConfig"]
    config.write_text(yaml.safe_dump(document))
    own = ("--config", str(config), "--vm-config", str(wrong))
    assert "No such file" in refused(*own)
    wrong.write_text('{"watermark": 2}')
    assert "invalid config at schedulerName: string cannot be empty" in refused(*own)
    assert "want HOST:PORT" in refused("--config", str(config), "--agents", "somewhere")
