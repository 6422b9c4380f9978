"""Arrivals, lifetimes and traces: what is generated and what is read."""

import itertools
import json
import random
import statistics
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stower.cli.inputs import load
from stower.cli.main import app
from stower.model.errors import InvalidObject
from stower.model.times import SECOND_NS
from stower.sim.arrivals import DAY_S, PROCESSES, read_lifetime


def stower(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.mark.parametrize("name", PROCESSES)
def test_all_come_in_time_and_in_order(name: str) -> None:
    times = PROCESSES[name](1000, 500.0, random.Random(1))
    assert times == sorted(times)
    assert (1000, True) == (len(times), 0 <= times[0] <= times[-1] <= 500)
    assert times == PROCESSES[name](1000, 500.0, random.Random(1))
    assert [] == PROCESSES[name](0, 500.0, random.Random(1))


def test_processes_are_what_they_say() -> None:
    def made(name: str) -> list[float]:
        return PROCESSES[name](20_000, DAY_S, random.Random(2))

    day = made("daily")
    afternoon = sum(13 <= at / 3600 < 15 for at in day)
    night = sum(1 <= at / 3600 < 3 for at in day)
    assert 6 < afternoon / night < 12  # 1.8 to 0.2, averaged over two hours
    even = made("even")
    assert {round(DAY_S / 20_000, 6)} == {round(b - a, 6) for a, b in itertools.pairwise(even)}
    gaps = [b - a for a, b in zip(made("poisson"), made("poisson")[1:])]
    assert 0.9 < statistics.stdev(gaps) / statistics.mean(gaps) < 1.1
    assert len(set(made("bursts"))) < 20_000 / 5


def test_lifetimes_are_what_they_say() -> None:
    def drawn(text: str) -> list[Any]:
        chance = random.Random(3)
        return [read_lifetime(text)(chance) for _ in range(10_000)]

    assert {None} == set(drawn("forever"))
    assert {90.0} == set(drawn("fixed:1m30s"))
    assert 55 < statistics.mean(drawn("exponential:1m")) < 65
    lognormal = sorted(drawn("lognormal:1m"))
    assert 55 < statistics.median(lognormal) < 65
    assert 9 < lognormal[9500] / 60 < 15
    for text in ("", "sometimes:1m", "fixed", "fixed:0s", "exponential:-1m", "fixed:soon"):
        with pytest.raises(InvalidObject, match="lifetime"):
            read_lifetime(text)


def test_a_generated_day_is_simulated_at_its_own_times(tmp_path: Path) -> None:
    arguments = ["generate", "--nodes", "20", "--pods", "300", "--until", "2h"]
    made = stower(*arguments, "--lifetime", "fixed:10m", "--arrivals", "bursts")
    again = stower(*arguments, "--lifetime", "fixed:10m", "--arrivals", "bursts")
    assert made.stdout == again.stdout
    path = tmp_path / "day.ndjson"
    path.write_text(made.stdout)
    workload = load([str(path)]).workload
    assert not workload.at_once
    assert {600 * SECOND_NS} == {arrival.lasts_ns for arrival in workload.arrivals}
    assert 7200 * SECOND_NS >= max(arrival.at_ns for arrival in workload.arrivals) > 0
    run = stower("simulate", str(path), "--timed", "--output", "json")
    (report,) = json.loads(run.stdout)["reports"]
    assert report["ended"] > 200
    assert report["placed"] >= report["ended"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--until", "soon"], "--until: got 'soon'"),
        (["--until", "0s"], "--until: got '0s'"),
        (["--until", "1h", "--arrivals", "never"], "--arrivals: got 'never', want one of even"),
        (["--until", "1h", "--lifetime", "long"], '--lifetime: got "long"'),
        (["--lifetime", "fixed:1h"], "--lifetime: want --until as well"),
        (["--arrivals", "daily"], "--arrivals: want --until as well"),
    ],
)
def test_wrong_courses_are_told(options: list[str], said: str) -> None:
    run = stower("generate", *options)
    assert (2, True) == (run.exit_code, said in run.stderr)


NODES = """node,cpu,memory,nvidia.com/gpu,labels,taints
n1,4,8Gi,,zone=a;disk=ssd,
n2,8000m,16Gi,2,zone=b,dedicated=gpu:NoSchedule
"""
PODS = """pod,namespace,arrives,ends,lasts,cpu,nvidia.com/gpu,priority,nodeSelector,tolerations
web,,0,10,,500m,,,zone=a,
train,team,2.5,,30,2,1,-5,,dedicated=gpu:NoSchedule;other
"""


def check_trace(*inputs: str) -> None:
    workload = load(inputs).workload
    one, two = workload.nodes
    assert {"zone": "a", "disk": "ssd", "kubernetes.io/hostname": "n1"} == one.metadata.labels
    assert "2" == str((two.status.allocatable or {})["nvidia.com/gpu"])
    assert "dedicated" == (two.spec.taints or ())[0].key
    web, train = workload.arrivals
    assert ("default/web", 0, 10 * SECOND_NS) == (web.pod.key, web.at_ns, web.ends_ns)
    assert {"zone": "a"} == web.pod.spec.node_selector
    assert ("team/train", -5) == (train.pod.key, train.pod.priority)
    assert (2_500_000_000, None, 30 * SECOND_NS) == (train.at_ns, train.ends_ns, train.lasts_ns)
    assert [("dedicated", "Equal"), ("other", "Exists")] == [
        (t.key, t.operator) for t in train.pod.spec.tolerations or ()
    ]
    run = stower("simulate", *inputs, "--timed", "--output", "json")
    (report,) = json.loads(run.stdout)["reports"]
    assert {"pods": 2, "placed": 2, "ended": 1} == {
        k: report[k] for k in ("pods", "placed", "ended")
    }


def test_a_trace_as_csv(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "pods.csv").write_text(PODS)
    check_trace(str(tmp_path / "nodes.csv"), str(tmp_path / "pods.csv"))
    check_trace(str(tmp_path))


def test_a_trace_as_parquet(tmp_path: Path) -> None:
    tables, files = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    for name, columns in (
        ("nodes", {"node": ["n1", "n2"], "cpu": [4, 8], "memory": ["8Gi", "16Gi"],
                   "nvidia.com/gpu": [None, 2.0], "labels": ["zone=a;disk=ssd", "zone=b"],
                   "taints": ["", "dedicated=gpu:NoSchedule"]}),
        ("pods", {"pod": ["web", "train"], "namespace": [None, "team"], "arrives": [0.0, 2.5],
                  "ends": [10.0, None], "lasts": [None, 30], "cpu": ["500m", "2"],
                  "nvidia.com/gpu": [None, 1], "priority": [None, -5],
                  "nodeSelector": ["zone=a", None],
                  "tolerations": [None, "dedicated=gpu:NoSchedule;other"]}),
    ):  # fmt: skip
        files.write_table(tables.table(columns), tmp_path / f"{name}.parquet")
    check_trace(str(tmp_path / "nodes.parquet"), str(tmp_path / "pods.parquet"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes,cpu\nn1,4\n", "line 1"),
        ("node,cpus\nn1,4\n", 'line 1: got "cpus", want one of node, cpu'),
        ("node,cpu\n,4\n", "line 2, node"),
        ("node,cpu\nn1,4,5\n", "line 2, columns"),
        ("node,cpu\nn1,much\n", "status.allocatable.cpu"),
        ("node,taints\nn1,x:Never\n", 'line 2, taints: got "x:Never"'),
        ("node,labels\nn1,x\n", 'line 2, labels: got "x"'),
        ("pod,arrives\np,-1\n", 'line 2, arrives: got "-1"'),
        ("pod,arrives\np,nan\n", 'line 2, arrives: got "nan"'),
        ("pod,lasts\np,inf\n", 'line 2, lasts: got "inf"'),
        ("pod,priority\np,high\n", 'line 2, priority: got "high"'),
        ("pod,priority\np,--5\n", 'line 2, priority: got "--5"'),
        ("pod,arrives\np,1e300\n", 'line 2, arrives: got "1e300"'),
        ("pod,pod\np,p\n", 'line 1: got "pod", want each column once'),
        ("pod,tolerations\np,x:Never\n", 'line 2, tolerations: got "x:Never"'),
    ],
)
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    run = stower("simulate", str(path))
    assert 2 == run.exit_code
    assert said in run.stderr
    assert 1 == run.stderr.count("\n")


def test_what_is_no_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    path.write_bytes(b"nothing")
    run = stower("simulate", str(path))
    assert (2, True) == (run.exit_code, "want a Parquet file" in run.stderr)


def test_an_annotation_that_is_no_time_is_told(tmp_path: Path) -> None:
    meta = {"name": "p", "annotations": {"stower.dev/arrives-seconds": "1",
                                         "stower.dev/run-seconds": "long"}}  # fmt: skip
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta,
           "spec": {"containers": [{"name": "c"}]}}  # fmt: skip
    path = tmp_path / "p.json"
    path.write_text(json.dumps(pod))
    run = stower("simulate", str(path))
    assert (2, True) == (run.exit_code, "run-seconds" in run.stderr)
