"""stower sweep: workloads under configurations with seeds, in processes and on Ray."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stower.cli.main import app

DAY = "generate:nodes=10,pods=150,until=2h,arrivals=daily,lifetime=fixed:20m"
PACKED = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 100}]}}
  plugins:
    multiPoint: {enabled: [{name: NodeResourcesFit, weight: 100}]}
"""
TIMES = ("seconds", "podsPerSecond")


def stower(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def configs(tmp_path: Path) -> list[str]:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    (tmp_path / "spread.yaml").write_text(head)
    (tmp_path / "packed.yaml").write_text(PACKED)
    return ["--config", str(tmp_path / "spread.yaml"), "--config", str(tmp_path / "packed.yaml")]


def rows(path: Path) -> list[dict[str, Any]]:
    with path.open() as file:
        return [{k: v for k, v in r.items() if k not in TIMES} for r in csv.DictReader(file)]


def test_every_workload_configuration_and_seed(tmp_path: Path, configs: list[str]) -> None:
    cluster = tmp_path / "cluster.ndjson"
    cluster.write_text(stower("generate", "--nodes", "8", "--pods", "60").stdout)
    out, picture = tmp_path / "s.csv", tmp_path / "s.svg"
    arguments = ["sweep", DAY, str(cluster), *configs, "--seeds", "3", "--jobs", "1"]
    run = stower(*arguments, "--results", str(out), "--plot", str(picture), "--output", "json")
    assert 0 == run.exit_code, run.stderr
    found = rows(out)
    assert [
        (w, c, str(s)) for w in (DAY, str(cluster)) for c in ("spread", "packed") for s in range(3)
    ] == [(row["workload"], row["config"], row["seed"]) for row in found]
    days = [row for row in found if row["workload"] == DAY]
    assert all(int(row["ended"]) > 50 for row in days)
    assert 3 == len({row["pods"] + row["use cpu %"] for row in days[:3]})
    told = json.loads(run.stdout)["runs"]
    assert [row["assignments"] for row in found] == [row["assignments"] for row in told]
    assert b"<svg" in picture.read_bytes()[:400]
    run = stower(*arguments)
    assert "Sweep: mean (minimum to maximum)" in run.stdout


def test_the_same_in_processes_and_as_parquet(tmp_path: Path, configs: list[str]) -> None:
    files = pytest.importorskip("pyarrow.parquet")
    one, other = tmp_path / "one.csv", tmp_path / "other.parquet"
    arguments = ["sweep", DAY, *configs, "--seeds", "2"]
    assert 0 == stower(*arguments, "--jobs", "1", "--results", str(one)).exit_code
    assert 0 == stower(*arguments, "--jobs", "2", "--results", str(other)).exit_code
    table = [
        {k: str(v) for k, v in row.items() if k not in TIMES}
        for row in files.read_table(other).to_pylist()
    ]
    assert rows(one) == table


@pytest.mark.more
def test_the_same_on_a_local_ray_cluster(tmp_path: Path, configs: list[str]) -> None:
    pytest.importorskip("ray")
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    arguments = ["sweep", DAY, *configs, "--seeds", "3"]
    assert 0 == stower(*arguments, "--jobs", "1", "--results", str(one)).exit_code
    run = stower(*arguments, "--jobs", "2", "--ray", "local", "--results", str(other))
    assert 0 == run.exit_code, run.stderr
    assert rows(one) == rows(other)
    run = stower("sweep", str(tmp_path / "none.yaml"), "--ray", "local")
    assert (1, True) == (run.exit_code, "none.yaml: cannot be read" in run.stderr)
    assert 1 == run.stderr.count("stower: error: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["-"], "-: a sweep reads its workloads more than once"),
        ([DAY, DAY], "given twice"),
        (["generate:size=3"], 'got "size=3", want KEY=VALUE'),
        (["generate:nodes=0"], 'generate:nodes: got "0"'),
        (["generate:nodes=" + "9" * 5000], "generate:nodes: got"),
        (["generate:nodes=3,nodes=4"], 'got "nodes=4"'),
        (["generate:lifetime=fixed:1h"], 'generate:lifetime: got "fixed:1h", want until'),
        (["generate:until=1h,arrivals=x"], 'generate:arrivals: got "x"'),
        (["generate:until=1h,lifetime=x"], 'lifetime: got "x"'),
        ([DAY, "--results", "x.txt"], "--results x.txt: want a name that ends in .csv or .parquet"),
        ([DAY, "--results", "no/where.csv"], "--results no/where.csv: No such file"),
        ([DAY, "--plot", "x.txt"], "--plot x.txt: want a name that ends in .svg or .png"),
        ([DAY, "--config", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], said: str) -> None:
    run = stower("sweep", *arguments)
    assert (2, True) == (run.exit_code, said in run.stderr)
    assert 1 == run.stderr.count("\n")
