"""stower pack: packing policies over a GPU trace, from files to figures."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from stower.cli.main import app

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn-0,8000,8192,0,\nn-1,8000,8192,2,T4\n"
NODES += "n-2,16000,16384,4,V100\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
PODS += "p-0,1000,1024,1,600,\np-1,1000,1024,1,1000,T4\np-2,500,512,0,0,\np-3,2000,512,1,300,\n"


def stower(*arguments: str | Path) -> Result:
    """A run of the verb over the trace."""
    return CliRunner().invoke(app, ["pack", *map(str, arguments)])


def refusal(*arguments: str | Path) -> str:
    """The error of a run that must end with 2."""
    run = stower(*arguments)
    assert (2, "") == (run.exit_code, run.stdout)
    return run.stderr.removeprefix("stower: error: ").rstrip("\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as it is published, with other lists beside those that are taken."""
    (tmp_path / "openb_node_list_all_node.csv").write_text(NODES)
    (tmp_path / "openb_pod_list_default.csv").write_text(PODS)
    (tmp_path / "openb_pod_list_other.csv").write_text("not read")
    return tmp_path


def report(*arguments: str | Path) -> Any:
    """What a run says as JSON."""
    run = stower(*arguments, "-o", "json")
    assert 0 == run.exit_code, run.stderr
    return json.loads(run.stdout)


def test_policies_are_compared_in_a_table(folder: Path) -> None:
    """A row each, in the order in which they were named."""
    run = stower(
        folder, "--policy", "best-fit", "--policy", "random", "--seeds", "2", "--jobs", "1"
    )
    assert 0 == run.exit_code, run.stderr
    rows = [line.split() for line in run.stdout.splitlines()]
    head = "policy 90 % sd 100 % sd 130 % sd frag ratio 80 % frag ratio 90 %"
    assert head.split() == rows[1]
    assert ["best-fit", "random"] == [row[0] for row in rows[2:4]]
    assert "2 nodes, 6 GPUs, 4 pods, 2 seeds" in run.stdout


def test_json_has_the_curve_of_each_seed_and_their_mean(folder: Path) -> None:
    """One figure for each whole percent from 0 to 130; yaml says the same."""
    found = report(folder, "--policy", "best-fit", "--seeds", "3", "--seed", "5", "--jobs", "1")
    assert (2, 6, 4, [5, 7]) == tuple(found[key] for key in ("nodes", "gpus", "pods", "seeds"))
    (policy,) = found["policies"]
    assert [5, 6, 7] == [run["seed"] for run in policy["runs"]]
    curves = [policy["curve"], *(run["curve"] for run in policy["runs"])]
    assert {131} == set(map(len, curves))
    assert all(curve == sorted(curve) and 0 < curve[-1] <= 100 for curve in curves)
    for load, figures in policy["at"].items():
        values = [run["curve"][int(load)] for run in policy["runs"]]
        assert pytest.approx(sum(values) / 3, abs=1e-3) == figures["mean"]
        assert figures["mean"] == policy["curve"][int(load)]
    arguments = (folder, "--policy", "best-fit", "--seeds", "3", "--seed", "5", "--jobs", "1")
    assert found == yaml.safe_load(stower(*arguments, "-o", "yaml").stdout)


def test_csv_files_are_as_the_published_ones(folder: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    arguments = (folder, "--policy", "best-fit", "--policy", "random", "--seeds", "2")
    found = report(*arguments, "--csv", results)
    names = [f"analysis_{kind}_discrete.csv" for kind in ("allo", "frag", "frag_ratio")]
    assert {*names, "placements.csv"} == {path.name for path in results.iterdir()}
    for name, key in (("allo", "curve"), ("frag", "fragments"), ("frag_ratio", "fragmentRatio")):
        with (results / f"analysis_{name}_discrete.csv").open() as file:
            rows = [*csv.reader(file)]
        assert rows[0] == ["workload", "sc_policy", "tune", "seed", "total_gpus",
                           *map(str, range(131))]  # fmt: skip
        runs = [(policy["policy"], run) for policy in found["policies"] for run in policy["runs"]]
        assert len(rows) == 1 + len(runs)
        for row, (policy, run) in zip(rows[1:], runs, strict=True):
            assert row[:5] == ["openb_pod_list_default", policy, "1.3", str(run["seed"]), "6"]
            assert [float(v) for v in row[5:]] == pytest.approx(run[key], abs=0.006)
    with (results / "placements.csv").open() as file:
        placed = [*csv.DictReader(file)]
    assert len(placed) == sum(run["arrived"] for _, run in runs)
    assert {"n-1", "n-2", ""} == {row["node"] for row in placed}
    assert all(len(row["gpus"].split("|")) == int(row["num_gpu"])
               for row in placed if row["node"] and row["num_gpu"] != "0")  # fmt: skip
    assert "want a folder that exists" in refusal(folder, "--csv", tmp_path / "none")


def test_processes_change_nothing(folder: Path) -> None:
    """Runs end in any order, and are told in one."""
    arguments = (folder, "--policy", "first-fit", "--policy", "dot-product", "--seeds", "2")
    assert report(*arguments, "--jobs", "1") == report(*arguments, "--jobs", "2")


def test_lists_are_named_one_by_one_and_ten_seeds_are_usual(folder: Path) -> None:
    """In any order."""
    lists = (folder / "openb_pod_list_default.csv", folder / "openb_node_list_all_node.csv")
    arguments = ("--policy", "best-fit", "--jobs", "1")
    found = report(*lists, *arguments)
    assert found == report(folder, *arguments)
    assert [0, 9] == found["seeds"]


def test_plot_draws_a_line_for_each_policy(folder: Path, tmp_path: Path) -> None:
    """The same curves give the same bytes."""
    pytest.importorskip("matplotlib")
    pictures = []
    for name in ("a.svg", "b.svg"):
        arguments = ("--policy", "best-fit", "--seeds", "1", "--plot", tmp_path / name)
        assert 0 == stower(folder, *arguments).exit_code
        pictures.append((tmp_path / name).read_bytes())
    assert pictures[0] == pictures[1]
    assert b"best-fit" in pictures[0]


def test_what_is_missing_or_unknown_is_said(folder: Path, tmp_path: Path) -> None:
    """Before anything runs."""
    known = "random, first-fit, best-fit, dot-product, fgd, dgf"
    assert f"--policy: got 'x', want one of {known}" == refusal(folder, "--policy", "x")
    assert refusal(folder, "--policy", "bestfit").endswith("; did you mean best-fit?")
    assert "INPUT: want the folder of an OpenB trace, or its node list and pod list" == refusal()
    pods = folder / "openb_pod_list_default.csv"
    said = "nodes: got 0, want a node list with at least one node that has GPUs"
    assert f"{pods}: {said}" == refusal(pods)
    assert "No such file or directory" in refusal(folder / "none.csv")
    assert "name that ends in .svg or .png" in refusal(folder, "--plot", tmp_path / "a.gif")
    pods.unlink()
    assert f"{folder}: want openb_pod_list_default.csv (or .gz) in this folder" == refusal(folder)
