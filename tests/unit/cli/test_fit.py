"""stower fit: mixes of pods, and the nodes that a load needs."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from stower.assembly import build_engine
from stower.cli.fit_inputs import read_mix, read_node_template, with_copies
from stower.cli.inputs import load
from stower.sim.node_demand import _Try, nodes_needed
from tests.unit.cli.test_cluster_inputs import node, pod
from tests.unit.cli.test_what_if import stower
from tests.unit.cli.test_workload_objects import owner, write

DRA = "resource.k8s.io/v1"


def large(name: str, cpu: str) -> dict[str, Any]:
    made = node(name)
    made["status"]["allocatable"]["cpu"] = cpu
    return made


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    return {
        "cluster": write(tmp_path / "cluster.json", large("n1", "4"), large("n2", "4")),
        "small": write(tmp_path / "small.json", pod("small", "500m")),
        "big": write(tmp_path / "big.json", pod("big", "2")),
        "huge": write(tmp_path / "huge.json", pod("huge", "99")),
        "web": write(tmp_path / "web.json", owner("Deployment", replicas=5)),
        "node": write(tmp_path / "node.json", large("new", "4")),
    }


def ask(*arguments: str, code: int = 0) -> Any:
    run = stower("fit", *arguments, "--output", "json")
    assert code == run.exit_code, run.stderr
    return json.loads(run.stdout)


def test_whole_mixes_are_counted(files: dict[str, str]) -> None:
    """Of 8 CPUs, a mix takes 3; of the third, two small pods are there."""
    found = ask("--pod", f"{files['small']}=2", "--pod", files["big"], files["cluster"])
    assert (2, "default/big") == (found["fits"], found["next"])
    assert {"default/small": 6, "default/big": 2} == found["byPod"]
    assert "2 Insufficient cpu" in found["message"]
    run = stower("fit", "--pod", f"{files['small']}=2", "--pod", files["big"], files["cluster"])
    assert run.stdout.startswith("2 more mixes fit.\nThe next copy of default/big: 0/2 nodes")


def test_a_workload_object_stands_for_one_of_its_pods(files: dict[str, str]) -> None:
    found = ask(files["web"], files["cluster"], "--most", "3")
    assert (3, [3]) == (found["fits"], [*found["byPod"].values()])


def test_nodes_are_added_until_the_load_fits(files: dict[str, str]) -> None:
    asked = ("--until-full", "--node-template", files["node"], files["cluster"])
    found = ask(*asked, "--pod", f"{files['big']}=10")
    assert (3, 10, 2, []) == (found["nodes"], found["placed"], found["fewer"], found["unplaced"])
    run = stower("fit", *asked, "--pod", f"{files['big']}=10")
    assert run.stdout.startswith(
        "3 more nodes like new place 10 of 10 pods.\nWith 2 more nodes, 2 pods would wait."
    )
    found = ask(*asked, "--pod", files["huge"], "--pod", f"{files['big']}=5", code=1)
    assert (1, ["default/huge-copy-0"]) == (
        found["nodes"], [waiting["pod"] for waiting in found["unplaced"]]
    )  # fmt: skip
    assert 0 == ask("--until-full", "--node-template", "n1", files["cluster"], "--pod",
                    files["big"])["nodes"]  # fmt: skip


def test_pods_of_daemon_sets_take_their_part_of_each_node(tmp_path: Path, files: Any) -> None:
    agent = owner("DaemonSet", "agent")
    agent["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    cluster = write(tmp_path / "with-agents.json", large("n1", "4"), agent)
    for template in (files["node"], "n1"):
        found = ask("--until-full", "--node-template", template, cluster, "--pod",
                    f"{files['big']}=4")  # fmt: skip
        assert (3, 4 + 1) == (found["nodes"], found["placed"])  # and the agent of n1


def test_pods_of_one_name_in_two_namespaces(tmp_path: Path) -> None:
    cluster = write(tmp_path / "cluster.json", large("n1", "4"), large("n2", "4"))
    more = []
    for namespace in ("a", "b"):
        one = pod("x", "1")
        one["metadata"]["namespace"] = namespace
        more += ["--pod", write(tmp_path / f"{namespace}.json", one)]
    found = ask(*more, cluster)
    assert (4, {"a/x": 4, "b/x": 4}) == (found["fits"], found["byPod"])


def test_a_group_gets_nodes_for_all_of_its_pods(tmp_path: Path, files: dict[str, str]) -> None:
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
             "metadata": {"name": "gang", "namespace": "default"},
             "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}  # fmt: skip
    members = [pod(f"m-{i}", "3") for i in range(4)]
    for member in members:
        member["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
    cluster = write(tmp_path / "gang.json", group, *members)
    found = ask("--until-full", "--node-template", files["node"], cluster)
    assert (4, 4, []) == (found["nodes"], found["placed"], found["unplaced"])


def test_each_copy_has_devices_of_its_own(tmp_path: Path) -> None:
    device_class = {"apiVersion": DRA, "kind": "DeviceClass", "metadata": {"name": "gpu"}}
    exactly = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}
    template = {"apiVersion": DRA, "kind": "ResourceClaimTemplate", "metadata": {"name": "one"},
                "spec": {"spec": {"devices": exactly}}}  # fmt: skip
    pool = {"name": "new", "generation": 1, "resourceSliceCount": 1}
    slice_ = {"apiVersion": DRA, "kind": "ResourceSlice", "metadata": {"name": "s"},
              "spec": {"driver": "d", "nodeName": "new", "pool": pool,
                       "devices": [{"name": "gpu-0"}]}}  # fmt: skip
    asks = pod("asks", "100m")
    asks["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": "one"}]
    cluster = write(tmp_path / "c.json", device_class, template)
    machine = write(tmp_path / "node.json", large("new", "4"), slice_)
    more = ("--pod", f"{write(tmp_path / 'pod.json', asks)}=3")
    found = ask("--until-full", "--node-template", machine, cluster, *more)
    assert (3, 3) == (found["nodes"], found["placed"])


@pytest.mark.parametrize("seed", range(12))
def test_no_smaller_number_of_nodes_will_do(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    objects = [large(f"n{i}", "4") for i in range(draw.randrange(3))]
    objects += [pod(f"p{i}", draw.choice(("500m", "1", "1500m", "3"))) for i in range(12)]
    loaded = load([write(tmp_path / "c.json", *objects)])
    write(tmp_path / "node.json", large("new", draw.choice(("2", "4", "8"))))
    template = read_node_template(str(tmp_path / "node.json"), loaded)
    work = with_copies(loaded.workload, [], ())
    found = nodes_needed(work, template, build_engine)
    for count in range(found.nodes):
        waiting = _Try(work, template, build_engine(), count).waiting
        assert len(waiting) > len(found.unplaced)
    more = _Try(work, template, build_engine(), found.nodes + 3).waiting
    assert len(more) == len(found.unplaced)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no pod is given"),
        (("--until-full", "cluster"), "--node-template: want both"),
        (("--pod", "small=0", "cluster"), "want FILE or FILE=N"),
        (("--pod", "small=x", "cluster"), "want FILE or FILE=N"),
        (("--pod", "small", "--pod", "small=2", "cluster"), "two pods default/small"),
        (("--until-full", "--node-template", "node", "cluster"), "no pod waits"),
        (("--until-full", "--node-template", "n9", "cluster", "--pod", "small"), "a file, or a"),
        (("--until-full", "--node-template", "small", "cluster", "--pod", "big"), "got 0 nodes"),
        (("cluster", "cluster"), "want one"),
    ],
)
def test_questions_that_are_none(
    arguments: tuple[str, ...], said: str, files: dict[str, str]
) -> None:
    given = []
    for text in arguments:
        name, sign, count = text.partition("=")
        given.append(f"{files[name]}{sign}{count}" if name in files else text)
    run = stower("fit", *given)
    assert (2, True) == (run.exit_code, said in run.stderr), run.stderr
    assert read_mix([], load([files["cluster"]])) == ([], ())
