"""Verbs that run until they are stopped: run, actors, make-groups, apiserver and replay --port."""

import asyncio
import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stower.cli import replay_dashboard
from stower.cli.scheduler_setup import SchedulerSetup
from stower.cli.verbs import actors, apiserver, make_groups, run
from stower.engine.engine import Engine
from stower.framework.stopwatch import Stopwatch
from stower.live.rights import REVIEW
from tests.unit.cli.served import invoke, logging_restored, stop_when
from tests.unit.cli.test_cluster_inputs import node, pod
from tests.unit.live.fake_api import NODES, PODS, FakeApi, port_in_use

CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Verbs set up logging, and freeze what the garbage collector has seen."""
    with logging_restored():
        yield
    gc.unfreeze()


# stower run


def test_run_binds_pods_until_stopped(
    fake: FakeApi, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recording of the run has the binding."""
    fake.add_pod("web")
    binding = ("POST", f"{PODS}/web/binding")
    monkeypatch.setattr(run, "stop_event", stop_when(lambda: binding in fake.sent))
    recording = tmp_path / "run.ndjson"
    told = invoke("run", "--kubeconfig", kubeconfig, "--no-leader-elect", "--record", recording)
    assert (0, "n1") == (told.exit_code, fake.node_of("web"))
    assert told.stdout.startswith("Scheduling for http://127.0.0.1:")
    assert '"write":"Bind"' in recording.read_text()
    assert "byte for byte" in invoke("replay", recording).stdout


def test_run_makes_groups_for_pods_of_gangs_that_have_no_gate(
    fake: FakeApi, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first is held until its group is there, and both are placed together."""
    key = "leaderworkerset.sigs.k8s.io"
    for name in ("llm-0", "llm-0-1"):
        meta = {"labels": {f"{key}/name": "llm"}, "annotations": {f"{key}/size": "2"}}
        spec = {"containers": [{"name": "c", "image": "i"}]}
        fake.call("POST", PODS, {"metadata": {"name": name, **meta}, "spec": spec})
    bindings = [("POST", f"{PODS}/{name}/binding") for name in ("llm-0", "llm-0-1")]
    made_events = []
    stop_event = stop_when(lambda: all(one in fake.sent for one in bindings))

    def counted(with_parent: bool = False) -> asyncio.Event:
        made_events.append(stop_event(with_parent))
        return made_events[-1]

    monkeypatch.setattr(run, "stop_event", counted)
    told = invoke("run", "--kubeconfig", kubeconfig, "--no-leader-elect", "--make-groups", "all")
    assert 0 == told.exit_code, told.stderr
    assert 1 == len(made_events), "a signal ends both parts"
    made = [i for i, (method, path) in enumerate(fake.sent) if path.endswith("/podgroups")
            and method == "POST"]  # fmt: skip
    assert made, "\n".join([*map(" ".join, fake.sent), told.stdout, told.stderr])
    assert made[0] < min(fake.sent.index(one) for one in bindings)


def test_run_logs_decisions_and_serves_its_state(
    fake: FakeApi, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubeconfig is that of the configuration; a token is made."""
    config = tmp_path / "config.yaml"
    config.write_text(f"{CONFIG}clientConnection: {{kubeconfig: {kubeconfig}}}\n")
    token = tmp_path / "token"
    fake.add_pod("web")
    # The Event is written once the binding has been answered, as the line of the log is.
    monkeypatch.setattr(run, "stop_event", stop_when(lambda: "Scheduled" in fake.events()))
    told = invoke(
        "run", "--config", config, "--no-leader-elect", "--port", "0", "--token-file", token,
        "--v", "2", "--logging-format", "json",
    )  # fmt: skip
    assert (0, True) == (
        told.exit_code,
        "; dashboard and metrics on http://127.0.0.1:" in told.stdout,
    )
    lines = [json.loads(line) for line in told.stderr.splitlines()]
    (bound,) = (line for line in lines if line["msg"] == "Successfully bound pod to node")
    assert (2, "n1", {"name": "web", "namespace": "default"}) == (
        bound["v"], bound["node"], bound["pod"],
    )  # fmt: skip
    assert 0o600 == token.stat().st_mode & 0o777


def test_a_dry_run_reports_how_far_both_schedulers_agree(
    fake: FakeApi, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written. The report is JSON, so the first line goes to standard error."""
    fake.add_pod("waits", "64")
    monkeypatch.setattr("tests.unit.cli.served.has_printed", lambda text: True)
    built: list[Engine] = []
    build = SchedulerSetup.build

    def recorded(setup: SchedulerSetup, stopwatch: Stopwatch) -> Engine:
        built.append(build(setup, stopwatch))
        return built[-1]

    monkeypatch.setattr(SchedulerSetup, "build", recorded)
    monkeypatch.setattr(run, "stop_event", stop_when(lambda: built))
    told = invoke("run", "--kubeconfig", kubeconfig, "--dry-run", "-o", "json")
    found = json.loads(told.stdout)
    assert (0, 0, None) == (told.exit_code, found["decisions"], found["agreementPercent"])
    assert {REVIEW} == {path for method, path in fake.sent if method != "GET"}, (
        "which stores nothing"
    )


def test_a_server_that_refuses_the_scheduler_is_an_error(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "stop_event", stop_when(lambda: False))
    told = invoke("run", "--kubeconfig", kubeconfig.parent / "gone")
    assert (1, True) == (told.exit_code, told.stderr.startswith("stower: error: "))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--agents", "127.0.0.1:1"), "--agents 127.0.0.1:1: no profile enables AutoscaleEnforcer"),
        (("--for", "10m"), "--for: got '10m', want --dry-run too"),
        (("--for", "soon", "--dry-run"), "--for: got 'soon', want a duration such as 10m"),
        (
            ("--otlp-endpoint", "ftp://x"),
            "--otlp-endpoint: got 'ftp://x', want http:// or https://",
        ),
        (("--token-file", "t"), "--token-file t: want --port too"),
        (("--bind-address", "::"), "--bind-address ::: want --port too"),
        (("--port", "0", "--tls-cert-file", "c"), "want both or none"),
        (("--vm-config", "v.json"), "--vm-config v.json: no profile enables AutoscaleEnforcer"),
        (("--feature-gates", "DynamicResourceAllocation=maybe"), "--feature-gates: "),
        (("--record", "r", "--record-max", "1"), "--record-max: got '1', want a size of "),
        (("--leader-elect-lease-duration", "1s"), "leaseDuration"),
        (("--config", "gone.yaml"), "gone.yaml: "),
        (("--make-groups", "jobs"), "--make-groups: got 'jobs', want all or some of jobset,"),
    ],
)
def test_options_of_run_that_make_no_sense_are_refused(
    arguments: tuple[str, ...], said: str, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "stop_event", stop_when())
    monkeypatch.chdir(kubeconfig.parent)
    told = invoke("run", "--kubeconfig", kubeconfig, "--no-leader-elect", *arguments)
    assert (2, "") == (told.exit_code, told.stdout)
    assert said in told.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--agents", "10299"), "got '10299', want HOST:PORT"),
        (("--agents", "0.0.0.0:1"), "beyond loopback, want --agents-token-file, or --agents-plain"),
        (("--agents", "[::]:1"), "beyond loopback, want --agents-token-file"),
        (("--agents", "node.example.com:1"), "beyond loopback, want --agents-token-file"),
        (("--agents-plain",), "--agents-plain: want --agents too"),
        (("--agents-token-file", "t"), "--agents-token-file: want --agents too"),
        (
            ("--agents", "0.0.0.0:1", "--agents-plain", "--agents-token-file", "t"),
            "--agents-plain: cannot be used with --agents-token-file",
        ),
        (
            ("--agents", "0.0.0.0:1", "--agents-token-file", "t", "--tls-cert-file", "c"),
            "want both or none",
        ),
    ],
)
def test_an_address_for_agents_is_one_that_agents_alone_can_use(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "vms.yaml"
    profile = "profiles: [{plugins: {multiPoint: {enabled: [{name: AutoscaleEnforcer}]}}}]\n"
    config.write_text(CONFIG + profile)
    told = invoke("run", "--config", config, *arguments)
    assert 2 == told.exit_code
    assert said in told.stderr


# stower actors, stower make-groups


def test_actors_create_nodes_and_run_pods(
    fake: FakeApi, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = ("POST", NODES)
    monkeypatch.setattr(actors, "stop_event", stop_when(lambda: fake.sent.count(created) == 2))
    told = invoke("actors", "--kubeconfig", kubeconfig, "--nodes", "2", "--zones", "a,b")
    assert 0 == told.exit_code
    assert told.stdout.startswith("Simulating 2 nodes and the controllers of http://127.0.0.1:")
    zones = [
        item["metadata"].get("labels", {}).get("topology.kubernetes.io/zone")
        for item in fake.call("GET", NODES)["items"]
    ]
    assert {"a", "b", None} == set(zones)


def test_actors_take_nodes_from_options_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("apiVersion: stower.dev/v1\nkind: Cluster\npools: 3\n")
    for arguments, said in (
        (("--cluster", file, "--nodes", "2"), "the file describes the nodes; want no --nodes, "),
        (("--cluster", file), f"{file}: pools"),
        (("--cluster", tmp_path / "gone.yaml"), "gone.yaml: "),
        (("--node-cpu", "much"), "--nodes: "),
    ):
        told = invoke("actors", "--kubeconfig", tmp_path / "kubeconfig", *arguments)
        assert (2, True) == (told.exit_code, said in told.stderr), told.stderr


@pytest.mark.parametrize("verb", ["actors", "make-groups"])
def test_controllers_without_a_server_end_with_its_name(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = {"actors": actors, "make-groups": make_groups}[verb]
    monkeypatch.setattr(module, "stop_event", stop_when(lambda: False))
    told = invoke(verb, "--kubeconfig", tmp_path / "gone")
    assert (1, True) == (told.exit_code, f"{tmp_path / 'gone'}" in told.stderr)


def test_groups_are_made_for_pods_that_have_the_gate(
    fake: FakeApi, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = [{"name": make_groups.GATE}]
    labels = {"stower.dev/pod-group-name": "team"}
    container = {"name": "c", "image": "i"}
    body = {"metadata": {"name": "p", "labels": labels},
            "spec": {"containers": [container], "schedulingGates": gate}}  # fmt: skip
    fake.call("POST", PODS, body)
    monkeypatch.setattr(make_groups, "stop_event", stop_when())
    told = invoke("make-groups", "--kubeconfig", kubeconfig)
    assert 0 == told.exit_code, told.stderr
    assert told.stdout.startswith("Creating groups on http://127.0.0.1:")


# stower apiserver


def test_apiserver_serves_from_memory_until_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apiserver, "stop_event", stop_when())
    kubeconfig = tmp_path / "kubeconfig"
    told = invoke(
        "apiserver", "--memory", "--port", "0", "--kubeconfig", kubeconfig,
        "--runtime-config", "resource.k8s.io/v1beta2/devicetaintrules=true",
        "--admission", "ServiceAccount,TaintNodesByCondition",
    )  # fmt: skip
    assert 0 == told.exit_code
    assert "objects are in memory.\n" in told.stdout
    assert f"  export KUBECONFIG={kubeconfig}\n" in told.stdout
    assert "server: https://127.0.0.1:" in kubeconfig.read_text()


def test_apiserver_names_the_port_that_it_cannot_listen_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apiserver, "stop_event", stop_when())
    with port_in_use() as port:
        told = invoke("apiserver", "--state", tmp_path, "--memory", "--port", str(port))
    assert 1 == told.exit_code
    assert f"cannot serve on 127.0.0.1:{port}: " in told.stderr
    assert told.stderr.endswith("give another --port or --state\n")


def test_apiserver_refuses_a_database_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apiserver, "stop_event", stop_when())
    (tmp_path / "stower.db").write_bytes(b"no database" * 1000)
    told = invoke("apiserver", "--state", tmp_path, "--port", "0")
    assert (1, True) == (told.exit_code, "stower.db" in told.stderr)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kubernetes", "1.2"), "--kubernetes: got '1.2', want "),
        (("--admission", "Nope"), "--admission: got 'Nope', want "),
        (("--runtime-config", "x=true"), "--runtime-config: got 'x=true', want "),
        (("--event-ttl", "0s"), "--event-ttl: got '0s', want a duration of at least 1s"),
    ],
)
def test_options_of_apiserver_that_make_no_sense_are_refused(
    arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    told = invoke("apiserver", "--state", tmp_path, *arguments)
    assert (2, True) == (told.exit_code, said in told.stderr)


# stower replay --port


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path, cluster = tmp_path / "run.ndjson", tmp_path / "cluster.json"
    cluster.write_text("\n".join(map(json.dumps, (node("n1"), pod("p", "1")))))
    assert 0 == invoke("simulate", cluster, "--record", path).exit_code
    return path


def test_the_dashboard_over_a_recording_is_served_until_stopped(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_dashboard, "stop_event", stop_when())
    token = recording.parent / "token"
    told = invoke("replay", recording, "--port", "0", "--token-file", token)
    assert 0 == told.exit_code
    assert told.stdout.startswith("Dashboard: http://127.0.0.1:")
    assert f"/dashboard/#token={token.read_text().strip()}\n" in told.stdout


def test_a_recording_that_cannot_be_shown_is_told(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_dashboard, "stop_event", stop_when())
    with port_in_use() as port:
        told = invoke("replay", recording, "--port", str(port))
    assert (1, True) == (told.exit_code, told.stderr.endswith("give another --port\n"))
    told = invoke("replay", recording.parent / "gone", "--port", "0")
    assert (2, True) == (told.exit_code, "gone: No such file" in told.stderr)
    recording.write_text("{}\n")
    assert 2 == invoke("replay", recording, "--port", "0").exit_code
    told = invoke("replay", recording, "--token-file", "t")
    assert (2, True) == (told.exit_code, "want --port too" in told.stderr)


def test_a_recording_that_another_scheduler_made_is_told_at_the_first_difference(
    recording: Path,
) -> None:
    text = recording.read_text()
    assert '"node_name":"n1"' in text or '"nodeName":"n1"' in text
    recording.write_text(
        text.replace('"node_name":"n1"', '"node_name":"n9"').replace(
            '"nodeName":"n1"', '"nodeName":"n9"'
        )
    )
    told = invoke("replay", recording)
    assert (1, True) == (told.exit_code, ") differs\n" in told.stderr)
    assert "recorded: write" in told.stderr
