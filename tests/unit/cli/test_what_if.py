"""stower what-if: what would change, of a cluster as it stands and of a recording."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from stower.assembly import build_engine
from stower.cli.main import app
from stower.cli.recorded_workload import read_recorded_workload
from stower.framework.events import Event, Listed, Observed, Tick, WatchType, WriteOk
from stower.framework.plugin import Features
from stower.framework.writes import Bind
from stower.model.kinds import Node, Pod
from stower.model.meta import OwnerReference
from stower.model.times import SECOND_NS
from stower.record.recorder import EngineInputs, Recorder
from tests.builders import make_node, make_pod
from tests.unit.cli.test_cluster_inputs import node, pod


def stower(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def ask(path: Path, *more: str) -> Any:
    run = stower("what-if", str(path), *more, "--output", "json")
    assert 0 == run.exit_code, run.stderr
    return json.loads(run.stdout)


def pairs(found: Any, what: str) -> dict[str, tuple[str, str]]:
    return {each["pod"]: (each["before"], each["after"]) for each in found[what]}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """Two nodes that are full, and a pod that waits."""
    path = tmp_path / "cluster.json"
    objects = [
        node("n1"), node("n2"), pod("a-1", "4", on="n1"), pod("a-2", "2", on="n2"),
        pod("log-1", "100m", on="n1", owner="DaemonSet"), pod("b-1", "3"),
    ]  # fmt: skip
    path.write_text("\n".join(json.dumps(o) for o in objects))
    return path


@pytest.mark.behaviour("X6")
def test_more_nodes_place_what_waits(cluster: Path) -> None:
    found = ask(cluster, "--add-nodes", "2=n1")
    (place,) = pairs(found, "newlyPlaced").items()
    assert ("default/b-1", "") == (place[0], place[1][0])
    assert place[1][1].startswith("n1-copy-")
    assert (2, 4) == (found["before"]["nodes"], found["after"]["nodes"])
    assert (1, 0) == (found["before"]["pending"], found["after"]["pending"])
    assert [] == found["moved"] == found["newlyPending"]


@pytest.mark.behaviour("X6")
def test_without_a_node_its_pods_move_or_wait(cluster: Path) -> None:
    found = ask(cluster, "--remove-node", "n1")
    assert {"default/a-1": ("n1", "")} == pairs(found, "newlyPending")
    assert "0/1 nodes are available" in found["newlyPending"][0]["why"]
    assert {"default/log-1": ("n1", "")} == pairs(found, "removed")
    found = ask(cluster, "--remove-node", "n2", "--add-nodes", "1")
    assert {"default/a-2": ("n2", "n1-copy-1")} == pairs(found, "moved")


@pytest.mark.behaviour("X6")
def test_objects_come_and_go(cluster: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.json"
    urgent = pod("c-1", "4", priority=100)
    more.write_text("\n".join(json.dumps(o) for o in (node("n3", cpu="8"), urgent)))
    found = ask(cluster, "--add", str(more), "--delete", "pod/default/a-1")
    assert {"default/b-1": ("", "n3")} == pairs(found, "newlyPlaced")
    assert {"default/c-1": ("", "n3")} == pairs(found, "added")
    assert {"default/a-1": ("n1", "")} == pairs(found, "removed")
    only = tmp_path / "only.json"
    only.write_text(json.dumps(urgent))
    found = ask(cluster, "--add", str(only))
    assert (0, 1) == (found["before"]["evictions"], found["after"]["evictions"])
    assert 1 == len(found["evicted"])


@pytest.mark.behaviour("X6")
def test_another_configuration_places_anew(cluster: Path, tmp_path: Path) -> None:
    path = tmp_path / "spread.json"
    objects = [node("n1"), node("n2"), pod("a-1", "1", on="n1"), pod("a-2", "1", on="n2")]
    path.write_text("\n".join(json.dumps(o) for o in objects))
    config = tmp_path / "packed.yaml"
    config.write_text("""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 100}]}}
  plugins:
    multiPoint: {enabled: [{name: NodeResourcesFit, weight: 100}]}
""")
    found = ask(path, "--config", str(config))
    assert [] == found["moved"]
    found = ask(path, "--config", str(config), "--anew")
    assert 1 == len(found["moved"])
    assert (0, 1) == (found["before"]["emptyNodes"], found["after"]["emptyNodes"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--minimal", "--anew"], "--minimal and --anew"),
        (["--cost", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["--add-nodes", "many"], "--add-nodes: got 'many', want N or N=NODE"),
        (["--add-nodes", "0"], "--add-nodes: got '0'"),
        (["--add-nodes", "1=n9"], 'node: got "n9", want one of the 2 nodes given'),
        (["--remove-node", "n9"], 'node: got "n9", want one of the 2 nodes given'),
        (["--delete", "pod/default/zzz"], '--delete: got "pod/default/zzz"'),
        (["--delete", "zzz"], '--delete: got "zzz"'),
        (["--add", "CLUSTER"], "want a name that no other object has"),
        (["--add", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["--config", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
    ],
)
def test_what_cannot_be_asked_is_told(cluster: Path, options: list[str], said: str) -> None:
    run = stower("what-if", str(cluster), *(o.replace("CLUSTER", str(cluster)) for o in options))
    assert 2 == run.exit_code
    assert said in run.stderr
    assert 1 == run.stderr.count("\n")


def test_the_table_tells_what_changes(cluster: Path) -> None:
    run = stower("what-if", str(cluster), "--add-nodes", "1")
    assert 0 == run.exit_code
    assert "Newly placed: 1" in run.stdout
    run = stower("what-if", str(cluster), "--delete", "pod/default/log-1")
    assert "Only before: 1" in run.stdout


# Recordings


class Live:
    """An engine whose writes are carried out, recorded."""

    def __init__(self, path: Path, nodes: int) -> None:
        self.engine = build_engine(None)
        self.recorder = Recorder(path, EngineInputs(None, 0, 1000, Features()))
        self.recorder.record_engine("e")
        self.pods: dict[str, Pod] = {}
        self.now_ns = 5 * SECOND_NS
        first = tuple(make_node(f"n{i}", cpu="4") for i in range(nodes))
        self.tell(Listed(first))

    def tell(self, event: Event) -> None:
        writes = self.engine.step(event, self.now_ns)
        self.recorder.record_step("e", self.now_ns, event, writes)
        for write in writes:
            if isinstance(write, Bind):
                here = make_pod(write.name, cpu="2", node=write.node_name)
                self.pods[write.name] = here
                self.tell(Observed(WatchType.MODIFIED, here))
            self.tell(WriteOk(write.id))

    def add(self, name: str) -> None:
        self.now_ns += SECOND_NS
        self.tell(Observed(WatchType.ADDED, make_pod(name, cpu="2")))

    def remove(self, name: str, deleted: bool = False) -> None:
        self.now_ns += SECOND_NS
        pod = self.pods.pop(name)
        if deleted:
            gone = make_pod(name, cpu="2", node=pod.spec.node_name, deletion="2026-01-01T00:00:00Z")
            self.tell(Observed(WatchType.MODIFIED, gone))
            pod = gone
        self.tell(Observed(WatchType.DELETED, pod))


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Of 1 node for 2 pods: c waits until a has ended, d until b was deleted."""
    path = tmp_path / "r.ndjson.zst"
    live = Live(path, 1)
    for name in "abcd":
        live.add(name)
    live.remove("a")
    live.remove("b", deleted=True)
    live.tell(Observed(WatchType.ADDED, make_node("n7", cpu="4")))
    live.recorder.close()
    return path


@pytest.mark.behaviour("X6")
def test_a_recording_is_run_again_and_as_it_would_have_been(history: Path) -> None:
    found = ask(history, "--add-nodes", "1=n0")
    assert 4.0 == found["before"]["waitedSeconds"]
    assert 0 == found["after"]["waitedSeconds"]
    for run in (found["before"], found["after"]):
        assert (4, 0, 0) == (run["running"] + run["ended"], run["pending"], run["lost"])
    assert {"n0-copy-1"} == {after for _, after in pairs(found, "moved").values()}
    found = ask(history, "--remove-node", "n7")
    assert (2, 1) == (found["before"]["nodes"], found["after"]["nodes"])


def test_what_a_recording_says_of_pods(history: Path) -> None:
    found = read_recorded_workload(history)
    lives = {a.pod.metadata.name: (a.at_ns, a.ends_ns, a.lasts_ns) for a in found.history.arrivals}
    second = SECOND_NS
    assert (second, None, 4 * second) == lives["a"]  # it ended by itself
    assert (2 * second, 6 * second, None) == lives["b"]  # it was deleted
    assert (3 * second, None, None) == lives["c"]
    (leaving, come) = found.history.happened
    assert isinstance(leaving.object, Pod), "it does not count for others from here on"
    assert ("b", "", 6 * second) == (
        leaving.object.metadata.name, leaving.object.spec.node_name, leaving.at_ns
    )  # fmt: skip
    assert leaving.object.metadata.deletion_timestamp
    assert isinstance(come.object, Node)
    assert (WatchType.ADDED, 6 * second) == (come.type, come.at_ns)
    assert {"c", "d"} == {pod.metadata.name for pod in found.end.placed}
    assert {"n0", "n7"} == {each.metadata.name for each in found.end.nodes}


def test_other_questions_take_recordings_too(history: Path, tmp_path: Path) -> None:
    (tmp_path / "pod.json").write_text(json.dumps(pod("x", "1")))
    run = stower("fit", str(tmp_path / "pod.json"), str(history), "--output", "json")
    assert {"n7": 4} == json.loads(run.stdout)["byNode"]
    run = stower("drain-check", "n0", str(history), "--output", "json")
    assert {"default/c": "n7", "default/d": "n7"} == json.loads(run.stdout)["moves"]
    run = stower("simulate", str(history), "--output", "json")
    (report,) = json.loads(run.stdout)["reports"]
    assert ("recorded", 4, 0) == (report["policy"], report["placed"], report["pending"])
    run = stower("simulate", str(history), str(history))
    assert (2, True) == (run.exit_code, "cannot be combined with other inputs" in run.stderr)
    run = stower("simulate", str(history), "--objects", str(tmp_path / "o"))
    assert (2, True) == (run.exit_code, "does not contain complete objects" in run.stderr)


# What came of decisions is no part of a history


def owned(name: str, node: str = "", cpu: str = "3", priority: int = 0, **more: Any) -> Pod:
    pod = make_pod(name, cpu=cpu, node=node, priority=priority, **more)
    owners = (OwnerReference("ReplicaSet", "web", "web", "apps/v1", True),)
    meta = msgspec.structs.replace(pod.metadata, owner_references=owners)
    return msgspec.structs.replace(pod, metadata=meta)


def told(path: Path, *events: Event) -> Path:
    """A recording of an engine that was told this, a second apart; what it writes is answered."""
    engine, recorder = build_engine(None), Recorder(path, EngineInputs(None, 0, 1000, Features()))
    recorder.record_engine("e")
    for at, event in enumerate(events, 1):
        writes = engine.step(event, at * SECOND_NS)
        recorder.record_step("e", at * SECOND_NS, event, writes)
        for write in writes:
            answer = WriteOk(write.id)
            recorder.record_step("e", at * SECOND_NS, answer, engine.step(answer, at * SECOND_NS))
    recorder.close()
    return path


def seen(type: WatchType, obj: Any) -> Observed:
    return Observed(type, obj)


N1, N2 = make_node("n1", cpu="4"), make_node("n2", cpu="4")
ENDING = "2026-01-01T00:00:00Z"


def test_who_was_evicted_is_evicted_anew_or_not(tmp_path: Path) -> None:
    """And nobody else is taken for what took its place."""
    critical = make_pod("crit", cpu="3", priority=9)
    path = told(
        tmp_path / "r.ndjson",
        Listed((N1, make_pod("low", cpu="3", node="n1"))),
        seen(WatchType.ADDED, critical),
        seen(WatchType.MODIFIED, make_pod("low", cpu="3", node="n1", deletion=ENDING)),
        seen(WatchType.DELETED, make_pod("low", cpu="3", node="n1", deletion=ENDING)),
        seen(WatchType.ADDED, N2),
        seen(WatchType.ADDED, make_pod("innocent", cpu="1")),
    )
    found = ask(path, "--add-nodes", "1=n1")
    was, will = found["before"], found["after"]
    assert (3, 2, 1, 1) == (was["pods"], was["running"], was["lost"], was["evictions"])
    assert (3, 3, 0, 0) == (will["pods"], will["running"], will["lost"], will["evictions"])
    assert all(use["requested"] <= use["allocatable"] for use in was["use"])


def test_what_a_controller_made_in_its_place_is_not_counted_twice(tmp_path: Path) -> None:
    path = told(
        tmp_path / "r.ndjson",
        Listed((N1, owned("web-1", node="n1"))),
        seen(WatchType.ADDED, make_pod("crit", cpu="3", priority=9)),
        seen(WatchType.DELETED, owned("web-1", node="n1", deletion=ENDING)),
        seen(WatchType.ADDED, owned("web-2")),
        seen(WatchType.MODIFIED, owned("web-2", labels={"seen": "again"})),
    )
    found = ask(path, "--add-nodes", "1=n1")
    assert (2, 1, 1) == tuple(found["before"][k] for k in ("pods", "running", "pending"))
    assert (2, 2, 0) == tuple(found["after"][k] for k in ("pods", "running", "pending"))


def test_pods_of_a_node_that_goes_come_once(tmp_path: Path) -> None:
    path = told(
        tmp_path / "r.ndjson",
        Listed((N1, N2, owned("web-1", node="n1"))),
        seen(WatchType.DELETED, N1),
        seen(WatchType.DELETED, owned("web-1", node="n1")),
        seen(WatchType.ADDED, owned("web-2")),
        seen(WatchType.MODIFIED, owned("web-2", node="n2")),
    )
    found = ask(path, "--add-nodes", "1")
    assert (1, 1, 0) == tuple(found["before"][k] for k in ("pods", "running", "pending"))


def test_a_status_update_does_not_bring_a_pod_back_to_its_node(tmp_path: Path) -> None:
    path = told(
        tmp_path / "r.ndjson",
        Listed((N1, N2, make_pod("p", node="n1"))),
        seen(WatchType.MODIFIED, make_pod("p", node="n1", phase="Running", labels={"a": "b"})),
    )
    found = ask(path, "--remove-node", "n1")
    assert {"default/p": ("n1", "n2")} == pairs(found, "moved")


def test_edits_that_belong_together(cluster: Path, tmp_path: Path) -> None:
    def file(name: str, *objects: Any) -> str:
        (tmp_path / name).write_text("\n".join(json.dumps(o) for o in objects))
        return str(tmp_path / name)

    there = file("a.json", node("n9"), pod("x", "1", on="n9"))
    assert {"default/x": ("", "n9")} == pairs(ask(cluster, "--add", there), "added")
    run = stower("what-if", str(cluster), "--add", file("b.json", pod("x", "1", on="nowhere")))
    assert (2, True) == (run.exit_code, 'spec.nodeName: got "nowhere"' in run.stderr)
    again = file("c.json", node("n1", cpu="1"))
    found = ask(cluster, "--remove-node", "n1", "--add", again)
    assert (2, 2) == (found["before"]["nodes"], found["after"]["nodes"])
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
              "metadata": {"name": "b", "namespace": "default"}}  # fmt: skip
    assert 0 == stower("what-if", str(cluster), "--add", file("d.json", budget)).exit_code
    copy = file("e.json", node("n1-copy-1"))
    found = ask(cluster, "--add", copy, "--add-nodes", "1=n1")
    assert 4 == found["after"]["nodes"]
    run = stower("what-if", str(cluster), "--add-nodes", "1", "--kubeconfig", "x")
    assert (2, True) == (run.exit_code, "cannot be combined with INPUT" in run.stderr)


def test_what_becomes_of_pods_that_others_placed_or_made(tmp_path: Path) -> None:
    """One of another scheduler ends; so does one that was made in the place of another."""
    other = {"schedulerName": "other"}
    path = told(
        tmp_path / "r.ndjson",
        Listed((make_node("n1", cpu="2"),)),
        seen(WatchType.ADDED, make_pod("o", cpu="2", **other)),
        seen(WatchType.MODIFIED, make_pod("o", cpu="2", node="n1", **other)),
        Tick(),
        seen(WatchType.DELETED, make_pod("o", cpu="2", node="n1", **other)),
        seen(WatchType.ADDED, make_pod("p", cpu="2")),
    )
    was = ask(path, "--add-nodes", "1=n1")["before"]
    assert (1, 1, 0) == tuple(was[k] for k in ("running", "ended", "pending"))
    path = told(
        tmp_path / "s.ndjson",
        Listed((make_node("n1", cpu="2"), owned("v", node="n1", cpu="2"))),
        seen(WatchType.ADDED, make_pod("h", cpu="2", priority=100)),
        seen(WatchType.DELETED, owned("v", node="n1", cpu="2", deletion=ENDING)),
        seen(WatchType.ADDED, owned("v2", cpu="2")),
        Tick(),
        seen(WatchType.MODIFIED, make_pod("h", cpu="2", priority=100, node="n1")),
        seen(WatchType.DELETED, make_pod("h", cpu="2", priority=100, node="n1")),
        Tick(),
        seen(WatchType.MODIFIED, owned("v2", node="n1", cpu="2")),
        Tick(),
        seen(WatchType.DELETED, owned("v2", node="n1", cpu="2")),
        Tick(),
    )
    was = ask(path, "--add-nodes", "1=n1")["before"]
    assert (0, 2, 0) == tuple(was[k] for k in ("running", "ended", "pending"))


def test_a_pod_that_is_lost_is_not_said_to_wait(tmp_path: Path) -> None:
    path = told(
        tmp_path / "r.ndjson",
        Listed((N1, N2, make_pod("a", node="n1"), owned("b", node="n2"))),
        Tick(),
        seen(WatchType.DELETED, make_pod("a", node="n1")),
    )
    found = ask(path, "--remove-node", "n1", "--remove-node", "n2")
    assert ["default/b"] == [each["pod"] for each in found["newlyPending"]]
    assert [("default/a", "deleted before it had a node")] == [
        (each["pod"], each["why"]) for each in found["newlyLost"]
    ]


# What was, what it costs, what has to move


def test_pods_that_were_elsewhere_are_named(cluster: Path) -> None:
    """Of a cluster, the pods that the scheduler would place and that had no node."""
    found = ask(cluster, "--delete", "pod/default/a-1")
    assert [] == found["unlike"]
    cluster.write_text(cluster.read_text().replace('"3"', '"500m"'))
    found = ask(cluster)
    assert [("default/b-1", "", "n2")] == [
        (one["pod"], one["before"], one["after"]) for one in found["unlike"]
    ]
    run = stower("what-if", str(cluster))
    assert "Elsewhere without the change: 1" in run.stdout


def test_a_recording_is_run_as_it_was(tmp_path: Path) -> None:
    made, recording = tmp_path / "made.ndjson", tmp_path / "run.ndjson.zst"
    arguments = ("--nodes", "6", "--pods", "60", "--until", "1h", "--lifetime", "lognormal:5m")
    made.write_text(stower("generate", *arguments).stdout)
    run = stower("simulate", str(made), "--timed", "--record", str(recording))
    assert 0 == run.exit_code, run.stderr
    found = ask(recording)
    assert [] == found["unlike"]
    assert 0 < found["before"]["nodeHours"] == found["after"]["nodeHours"]
    more = ask(recording, "--add-nodes", "2")
    hours = more["before"]["nodeHours"] / more["before"]["nodes"]
    more_hours = more["after"]["nodeHours"] - more["before"]["nodeHours"]
    assert more_hours == pytest.approx(2 * hours, rel=0.01)


PRICES = """
apiVersion: stower.dev/v1
kind: Prices
labels:
- {key: kind, value: large, pricePerHour: 2.5}
resources: {cpu: 0.25}
"""


def test_a_change_has_its_price(cluster: Path, tmp_path: Path) -> None:
    """By label, else by resource: a CPU."""
    prices, more = tmp_path / "prices.yaml", tmp_path / "more.json"
    prices.write_text(PRICES)
    large = node("n3")
    large["metadata"]["labels"] = {"kind": "large"}
    more.write_text(json.dumps(large))
    found = ask(cluster, "--add", str(more), "--cost", str(prices))
    cpus = int(large["status"]["allocatable"]["cpu"])
    assert 2 * cpus * 0.25 == found["before"]["cost"]
    assert 2.5 == found["after"]["cost"] - found["before"]["cost"]
    assert (2, 3) == (found["before"]["nodeHours"], found["after"]["nodeHours"])
    prices.write_text(PRICES.replace("cpu", "nvidia.com/gpu"))
    run = stower("what-if", str(cluster), "--cost", str(prices))
    assert (2, True) == (run.exit_code, "prices of node n1" in run.stderr)
    prices.write_text(PRICES.replace("Prices", "Price"))
    run = stower("what-if", str(cluster), "--cost", str(prices))
    assert (2, True) == (run.exit_code, "kind" in run.stderr)


def test_only_what_has_to_move_moves(tmp_path: Path) -> None:
    """The pod that waited has a node in both runs, and the change moves one that had one."""
    path = tmp_path / "cluster.json"
    objects = [node("n1"), node("n2"), node("n3"), pod("a", "1", on="n1"), pod("b", "1", on="n2"),
               pod("w", "500m")]  # fmt: skip
    path.write_text("\n".join(json.dumps(o) for o in objects))
    found = ask(path, "--remove-node", "n1", "--minimal")
    moves = pairs(found, "moved")
    assert "default/a" in moves
    assert len(moves) == found["forcedMoves"]
    assert "default/b" not in moves
    assert 0 == ask(path, "--add-nodes", "3", "--minimal")["forcedMoves"]
    run = stower("what-if", str(path), "--remove-node", "n1", "--minimal")
    assert "Moved by the change, or without a node after it: " in run.stdout


def test_a_pod_that_the_change_removes_is_no_gain(cluster: Path) -> None:
    found = ask(cluster, "--delete", "pod/default/b-1")
    assert (0, 1) == (found["before"]["removed"], found["after"]["removed"])
    assert [] == found["newlyPlaced"]
    assert ["default/b-1"] == [one["pod"] for one in found["removed"]]
