"""stower fit, stower drain-check: what there is room for."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stower.cli.main import app

ROOM = {"cpu": "4", "memory": "8Gi", "pods": "10"}


def node(name: str, **room: str) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {**ROOM, **room}},
    }


def pod(name: str, cpu: str, on: str = "", owner: str = "", **spec: Any) -> dict[str, Any]:
    meta: dict[str, Any] = {"name": name, "labels": {"app": name.partition("-")[0]}}
    if owner:
        meta["ownerReferences"] = [{"kind": owner, "name": "x", "uid": "x", "apiVersion": "v1"}]
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    spec = {"containers": [container], **({"nodeName": on} if on else {}), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def budget(app_name: str, allowed: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app_name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app_name}}},
        "status": {"disruptionsAllowed": allowed},
    }


def ask(tmp_path: Path, verb: str, what: Any, *cluster: Any, more: tuple[str, ...] = ()) -> Any:
    """Exit code, and what was told."""
    file = tmp_path / "cluster.json"
    file.write_text("\n".join(json.dumps(o) for o in cluster))
    if not isinstance(what, str):
        (tmp_path / "pod.json").write_text(json.dumps(what))
        what = str(tmp_path / "pod.json")
    run = CliRunner().invoke(app, [verb, what, str(file), "-o", "json", *more])
    return run.exit_code, json.loads(run.stdout) if run.stdout else run.stderr


def test_as_many_fit_as_there_is_room_for_and_the_reason_is_told(tmp_path: Path) -> None:
    cluster = (node("a"), node("b", cpu="2"), pod("there", "1", on="a"))
    code, told = ask(tmp_path, "fit", pod("new", "1500m"), *cluster)
    assert (0, 3, {"a": 2, "b": 1}) == (code, told["fits"], told["byNode"])
    assert "0/2 nodes are available: 2 Insufficient cpu." == told["message"]
    assert {"Insufficient cpu": 2} == told["refusals"]


def test_what_waits_is_placed_first_and_copies_are_like_each_other(tmp_path: Path) -> None:
    """Each copy counts against the next: here, one on a node."""
    selector = {"matchLabels": {"app": "new"}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    away = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    cluster = (node("a"), node("b"), node("c"), pod("waiting", "4"))
    code, told = ask(tmp_path, "fit", pod("new", "1", affinity=away), *cluster)
    assert (0, 2) == (code, told["fits"])


def test_no_more_are_tried_than_were_asked_about(tmp_path: Path) -> None:
    code, told = ask(tmp_path, "fit", pod("new", "1m"), node("a"), more=("--most", "3"))
    assert (0, 3, "") == (code, told["fits"], told["message"])


def test_none_fits(tmp_path: Path) -> None:
    """The pods that are there are not evicted for it."""
    cluster = (node("a"), pod("low", "4", on="a"))
    code, told = ask(tmp_path, "fit", pod("new", "1", priority=100), *cluster)
    assert (1, 0) == (code, told["fits"])
    assert "preemption" not in told["message"]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ([pod("a", "1"), pod("b", "1")], "got 2 pods, want one"),
        (node("a"), "got 0 pods, want one"),
    ],
)
def test_one_pod_is_wanted(tmp_path: Path, what: Any, said: str) -> None:
    if isinstance(what, list):
        what = {"apiVersion": "v1", "kind": "List", "items": what}
    code, told = ask(tmp_path, "fit", what, node("a"))
    assert 2 == code
    assert said in told


def test_a_node_can_be_drained_where_all_find_a_place(tmp_path: Path) -> None:
    cluster = (
        node("a"),
        node("b"),
        pod("web-1", "1", on="a"),
        pod("log-1", "1", on="a", owner="DaemonSet"),
        pod("db-1", "3", on="b"),
    )
    code, told = ask(tmp_path, "drain-check", "a", *cluster)
    assert (0, {"default/web-1": "b"}) == (code, told["moves"])
    assert ["default/log-1"] == told["stays"]


def test_who_finds_no_place_is_told_and_why(tmp_path: Path) -> None:
    """The more important is moved first."""
    cluster = (
        node("a"),
        node("b", cpu="2"),
        pod("web-1", "2", on="a"),
        pod("db-1", "2", on="a", priority=9),
    )
    code, told = ask(tmp_path, "drain-check", "a", *cluster)
    assert (1, {"default/db-1": "b"}) == (code, told["moves"])
    why = "0/1 nodes are available: 1 Insufficient cpu."
    assert {"default/web-1": why} == told["stuck"]


def test_budgets_keep_pods(tmp_path: Path) -> None:
    pods = (pod("web-1", "1", on="a"), pod("web-2", "1", on="a"))
    code, told = ask(tmp_path, "drain-check", "a", node("a"), node("b"), *pods, budget("web", 1))
    assert (1, 1, 1) == (code, len(told["moves"]), len(told["kept"]))


def test_a_node_that_is_not_there(tmp_path: Path) -> None:
    code, told = ask(tmp_path, "drain-check", "z", node("a"))
    assert 2 == code
    assert 'node: got "z", want one of the 1 nodes given' in told


def test_tables_are_for_people(tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    cluster = (node("a"), node("b"), pod("web-1", "1", on="a"))
    file.write_text("\n".join(json.dumps(o) for o in cluster))
    (tmp_path / "pod.json").write_text(json.dumps(pod("new", "3")))
    run = CliRunner().invoke(app, ["fit", str(tmp_path / "pod.json"), str(file)])
    assert run.stdout.startswith("2 more fit.\nThe next copy: 0/2 nodes are available: 2 Insuff")
    run = CliRunner().invoke(app, ["drain-check", "a", str(file)])
    assert run.stdout.endswith("a can be drained.\n")


def test_nobody_is_evicted_for_an_answer(tmp_path: Path) -> None:
    """Not by what waits in the cluster either."""
    waiting = pod("waits", "4", priority=100)
    cluster = (node("a"), pod("low-1", "3", on="a"), waiting)
    code, told = ask(tmp_path, "fit", pod("new", "1"), *cluster)
    assert (0, 1) == (code, told["fits"])
    code, told = ask(tmp_path, "drain-check", "a", *cluster)
    assert (1, ["default/low-1"]) == (code, list(told["stuck"]))


def test_a_pod_that_tolerates_everything_does_not_stay(tmp_path: Path) -> None:
    anything = pod("web-1", "1", on="a", tolerations=[{"operator": "Exists"}])
    code, told = ask(tmp_path, "drain-check", "a", node("a"), anything)
    assert (1, ["default/web-1"]) == (code, list(told["stuck"]))


def test_a_pod_may_be_of_the_clusters_own_classes(tmp_path: Path) -> None:
    known = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
             "metadata": {"name": "high"}, "value": 7}  # fmt: skip
    code, told = ask(tmp_path, "fit", pod("new", "1", priorityClassName="high"), node("a"), known)
    assert (0, 4) == (code, told["fits"])
