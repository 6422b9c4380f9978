"""cli/verbs/simulate.py, cli/inputs.py: files in, a report or one clear error out."""

import gzip
import io
import json
import os
import pty
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from stower.cli.main import app
from stower.cli.verbs.simulate import EPILOG

COMMAND = (sys.executable, "-m", "stower.cli.main", "simulate")
HEADER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
PACK = (
    HEADER + "profiles:\n- pluginConfig:\n  - name: NodeResourcesFit\n"
    "    args: {scoringStrategy: {type: MostAllocated}}\n"
)
CSV_NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
CSV_PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n"
)

Json = dict[str, Any]

# Without a time inside: the bytes are part of test names, which must not change.
zipped = partial(gzip.compress, mtime=0)


def node(name: str = "n", cpu: str = "4", **labels: str) -> Json:
    """A node document."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}},
    }


def pod(name: str = "p", resources: Json | None = None, **spec: Any) -> Json:
    """A pod document; it asks for one cpu unless told otherwise."""
    asked = {"requests": {"cpu": "1"}} if resources is None else resources
    containers = [{"name": "main", "resources": asked}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": containers, **spec},
    }


def priority_class(name: str, value: int, **fields: Any) -> Json:
    """A PriorityClass document."""
    meta = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    return {**meta, "metadata": {"name": name}, "value": value, **fields}


def lines(*documents: Json) -> bytes:
    """The documents as JSON lines."""
    return b"".join(json.dumps(d).encode() + b"\n" for d in documents)


def invoke(*args: str | Path, stdin: bytes = b"") -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the verb."""
    result = CliRunner().invoke(app, ["simulate", *map(str, args)], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def reports(*args: str | Path, stdin: bytes = b"") -> list[Json]:
    """The reports of a run that succeeds."""
    code, out, err = invoke(*args, "--output", "json", stdin=stdin)
    assert code == 0, err
    found: list[Json] = json.loads(out)["reports"]
    return found


def report(*documents: Json, args: tuple[str | Path, ...] = ()) -> Json:
    """The one report over these documents."""
    (found,) = reports("-", *args, stdin=lines(*documents))
    return found


def refusal(*args: str | Path, stdin: bytes = b"") -> str:
    """The error of a run that must end with 2 and say nothing on stdout."""
    code, out, err = invoke(*args, stdin=stdin)
    assert (2, "") == (code, out)
    assert err.startswith("stower: error: ")
    assert err.count("\n") == 1
    return err.removeprefix("stower: error: ").rstrip("\n")


def write(path: Path, data: str | bytes) -> Path:
    """The path, with this in it."""
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


# Inputs


def test_every_way_to_write_a_cluster_gives_the_same_placement(tmp_path: Path) -> None:
    """YAML documents, JSON lines, a List of Lists, a typed list, gzip, a folder, stdin."""
    documents = [node("node"), pod("a"), pod("b", {"requests": {"cpu": "9"}})]
    inner = {"apiVersion": "v1", "kind": "List", "items": documents[1:]}
    nested = {"apiVersion": "v1", "kind": "List", "items": [documents[0], inner]}
    bare = [{k: v for k, v in d.items() if k in ("metadata", "spec")} for d in documents[1:]]
    typed = {"apiVersion": "v1", "kind": "PodList", "items": bare}
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    write(folder / "n.json", lines(documents[0]))
    write(folder / "deep" / "p.yml", yaml.safe_dump_all(documents[1:]))
    write(folder / "README.md", "# not a manifest")
    inputs = [
        [write(tmp_path / "a.yaml", yaml.safe_dump_all(documents))],
        [write(tmp_path / "a.ndjson", lines(*documents))],
        [write(tmp_path / "a.json", json.dumps(nested, indent=2))],
        [folder / "n.json", write(tmp_path / "p.json", lines(typed))],
        [write(tmp_path / "a.json.gz", zipped(lines(*documents)))],
        [folder],
    ]
    found = [reports(*paths)[0] for paths in inputs]
    found.append(reports("-", stdin=lines(nested))[0])
    expected = [(1, 1, {"default/a": "node"})] * 7
    assert expected == [(r["placed"], r["pending"], r["assignments"]) for r in found]


def test_trace_folder_is_read_as_nodes_and_pods(tmp_path: Path) -> None:
    """Of the folder's lists, the two that make a whole are taken; one of them is packed."""
    packed = zipped((CSV_NODES + "n,4000,8192,2,T4\n").encode())
    write(tmp_path / "openb_node_list_all_node.csv.gz", packed)
    rows = "a,1000,64,1,1000,T4,LS,Running,0,,1\nb,1000,64,1,500,P100,LS,Running,1,,1\n"
    write(tmp_path / "openb_pod_list_default.csv", CSV_PODS + rows)
    write(tmp_path / "openb_pod_list_other.csv", "not read")
    (found,) = reports(tmp_path)
    assert {"openb/a": "n"} == found["assignments"]
    assert ["openb/b"] == [w["example"] for w in found["waiting"]]
    use = {u["resource"]: u["requested"] for u in found["use"]}
    assert (1, 1000) == (use["nvidia.com/gpu"], use["stower.dev/gpu-milli"])


def test_timed_lets_departures_make_room(tmp_path: Path) -> None:
    """The second pod waits until the first has gone; without --timed it waits for ever."""
    nodes = write(tmp_path / "n.csv", CSV_NODES + "n,1000,64,0,\n")
    rows = "a,1000,1,0,0,,LS,Running,0,60,1\nb,1000,1,0,0,,LS,Running,30,,1\n"
    pods = write(tmp_path / "p.csv", CSV_PODS + rows)
    (timed,) = reports(nodes, pods, "--timed")
    assert (2, 0, 1) == (timed["placed"], timed["pending"], timed["ended"])
    assert {"openb/b": "n"} == timed["assignments"]
    (untimed,) = reports(nodes, pods)
    assert {"openb/a": "n"} == untimed["assignments"]


def test_kinds_that_no_decision_depends_on_are_counted() -> None:
    """They are left out by name, not in silence."""
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    code, out, err = invoke("-", "-o", "json", stdin=lines(node(), other, other))
    assert (0, {"ConfigMap (v1)": 2}) == (code, json.loads(out)["skipped"])
    assert "ignored, as no decision depends on them: 2 ConfigMap (v1)" in err


def test_services_spread_the_pods_that_they_select() -> None:
    """By upstream's defaults, in the namespace that a file leaves out as well."""
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
               "spec": {"selector": {"app": "web"}}}  # fmt: skip
    nodes = []
    for name, zone in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        made = node(name)
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
        nodes.append({**made, "metadata": {**made["metadata"], "labels": labels}})
    pods = []
    for name, on in (("x", "a1"), ("y", "a2"), ("p", "")):
        made = pod(name)
        made["metadata"]["labels"] = {"app": "web"}
        if on:
            made["spec"]["nodeName"] = on
        pods.append(made)
    assert "b1" == report(service, *nodes, *pods)["assignments"]["default/p"]


def test_unicode_names_are_kept() -> None:
    """Names are text; only the API server wants them to be DNS labels."""
    found = report(node("knoten-☃"), pod("πόδι"))
    assert {"default/πόδι": "knoten-☃"} == found["assignments"]


# What becomes of pods


def test_pods_with_priority_classes_go_first() -> None:
    """By name, by the global default, and by a class that every cluster has."""
    classes = [
        priority_class("high", 100),
        priority_class("low", -5),
        priority_class("usual", 10, globalDefault=True),
    ]
    pods = [
        pod("low", priorityClassName="low"),
        pod("usual"),
        pod("high", priorityClassName="high"),
        pod("system", priorityClassName="system-node-critical"),
    ]
    order = ["default/system", "default/high", "default/usual", "default/low"]
    for room in (1, 2, 3, 4):
        found = report(*pods, *classes, node(cpu=str(room)))
        assert set(order[:room]) == set(found["assignments"])


@pytest.mark.behaviour("U2")
def test_gated_pods_and_those_of_other_schedulers_wait_with_a_reason() -> None:
    """Neither is tried."""
    gated = pod("gated", schedulingGates=[{"name": "quota"}])
    found = report(node(), gated, pod("other", schedulerName="volcano"))
    expected = ["no profile for scheduler 'volcano'", "waiting for scheduling gates"]
    assert expected == [w["message"] for w in found["waiting"]]
    assert (0, 2, 0) == (found["placed"], found["pending"], found["attempts"])


def test_requests_that_are_missing_come_from_limits() -> None:
    """A limit of 3 cpu without a request is a request of 3."""
    found = report(node(), *(pod(name, {"limits": {"cpu": "3"}}) for name in "ab"))
    assert (1, 1) == (found["placed"], found["pending"])
    found = report(node(), pod("a", {"limits": {"cpu": "3"}, "requests": {"cpu": "1"}}))
    assert 1000 == found["use"][0]["requested"]


def test_every_port_of_a_pod_on_the_hosts_network_is_a_host_port() -> None:
    """Two pods with one port cannot share a node, unless they have a network of their own."""

    def serving(name: str, host_network: bool) -> Json:
        made = pod(name, hostNetwork=host_network)
        made["spec"]["containers"][0]["ports"] = [{"containerPort": 80}]
        return made

    found = report(node(), serving("a", True), serving("b", True))
    reason = "node(s) didn't have free ports for the requested pod ports"
    assert {reason: 1} == found["refusals"]
    assert 2 == report(node(), serving("a", False), serving("b", False))["placed"]


def test_ended_pods_take_no_room_and_running_ones_do() -> None:
    """Succeeded and Failed are over."""
    ended = {**pod("ended", nodeName="n"), "status": {"phase": "Succeeded"}}
    found = report(node(), ended, pod("old", nodeName="n"), pod("new"))
    assert (1, 1) == (found["pods"], found["placed"])
    assert 2000 == found["use"][0]["requested"]


def test_nodes_without_allocatable_take_their_capacity_or_nothing() -> None:
    """A node that says nothing has nothing."""
    silent = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "silent"}}
    found = report(silent, pod())
    expected = (
        "0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods. no new claims to "
        "deallocate, preemption: 0/1 nodes are available: 1 Preemption is not helpful for "
        "scheduling."
    )
    assert [expected] == [w["message"] for w in found["waiting"]]
    capacity = {"capacity": {"cpu": "1", "pods": "1"}}
    assert 1 == report({**silent, "status": capacity}, pod())["placed"]


def test_no_nodes_and_no_pods_each_give_a_report() -> None:
    """Only both together are an error."""
    assert (0, 1) == (report(pod())["nodes"], report(pod())["pending"])
    assert (1, 0, 1) == tuple(report(node())[key] for key in ("nodes", "pods", "emptyNodes"))


# Reports


def test_same_seed_gives_the_same_json_but_for_timings() -> None:
    """Also over several processes, whatever their hash seed."""
    data = lines(*(node(f"n{i}") for i in range(6)), *(pod(f"p{i}") for i in range(9)))
    found = []
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [*COMMAND, "-", "--seed", "3", "-o", "json"],
            input=data,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        )
        assert b"\x1b" not in done.stdout + done.stderr
        (one,) = json.loads(done.stdout)["reports"]
        assert (one.pop("seconds") > 0, one.pop("podsPerSecond") > 0) == (True, True)
        found.append(json.dumps(one))
    assert found[0] == found[1]


def test_report_has_its_promised_fields() -> None:
    """Programs rely on them."""
    expected = {
        "policy", "nodes", "emptyNodes", "pods", "placed", "pending", "ended",
        "evictions", "waitedSeconds", "waiting",
        "refusals", "use", "domains", "attempts", "seconds", "podsPerSecond",
        "assignments",
    }  # fmt: skip
    found = report(node(zone="x"), pod(), args=("--by", "zone"))
    assert expected == set(found)
    assert {"value": "x", "nodes": 1, "pods": 1, "cpuPercent": 25.0} == found["domains"][0]


def test_yaml_and_json_say_the_same() -> None:
    """But for the time that it took."""
    outputs = [invoke("-", "-o", kind, stdin=lines(node(), pod()))[1] for kind in ("json", "yaml")]
    parsed = [yaml.safe_load(out) for out in outputs]
    for entry in parsed:
        del entry["reports"][0]["seconds"], entry["reports"][0]["podsPerSecond"]
    assert parsed[0] == parsed[1]


@pytest.mark.behaviour("U7")
def test_policies_are_compared_side_by_side(tmp_path: Path) -> None:
    """Spreading uses both nodes, packing one; each report bears its file's name."""
    spread = write(tmp_path / "spread.yaml", HEADER)
    pack = write(tmp_path / "pack.yaml", PACK)
    both = ("-", "--config", spread, "--config", pack)
    data = lines(node("a"), node("b"), pod("p"), pod("q"))
    found = reports(*both, stdin=data)
    assert [("spread", 0), ("pack", 1)] == [(r["policy"], r["emptyNodes"]) for r in found]
    code, out, _ = invoke(*both, stdin=data)
    rows = [line.split() for line in out.splitlines()]
    assert (0, ["spread", "pack"]) == (code, rows[1])
    assert ["empty", "nodes", "0", "1"] in rows


def test_by_and_match_count_pods_per_label_value() -> None:
    """Of two pods on the zone's node one has the label."""
    labelled = {**pod("a"), "metadata": {"name": "a", "labels": {"app": "web"}}}
    documents = (node(zone="x"), labelled, pod("b"))
    counted = report(*documents, args=("--by", "zone", "--match", "app=web"))["domains"]
    assert [("x", 1)] == [(d["value"], d["pods"]) for d in counted]
    _, out, _ = invoke("-", "--by", "zone", stdin=lines(*documents))
    assert ["x", "1", "2", "50.0"] in [line.split() for line in out.splitlines()]


def test_table_prints_names_as_they_are() -> None:
    """Brackets and colons in names are no markup, and break nothing."""
    documents = (node(zone="[red]:smile:"), pod("a[/x]", schedulerName="[/x]"))
    code, out, _ = invoke("-", "--by", "zone", stdin=lines(*documents))
    assert 0 == code
    assert "[red]:smile:" in out
    assert "no profile for scheduler '[/x]'" in out
    assert "default/a[/x]" in out


def test_table_gives_a_terminal_no_orders() -> None:
    documents = (node(zone="z\u001b[2J"), pod("a\u001b[31m", schedulerName="other"))
    code, out, _ = invoke("-", "--by", "zone", stdin=lines(*documents))
    assert 0 == code
    assert "\u001b" not in out
    assert "default/a\\x1b[31m" in out


def test_unknown_toleration_operator_is_refused_at_the_door() -> None:
    tolerant = pod("p1", tolerations=[{"key": "k", "operator": "Foo"}])
    code, out, err = invoke("-", stdin=lines(node(), tolerant))
    assert (2, "") == (code, out)
    want = 'spec.tolerations[0].operator: got "Foo", want Equal or Exists or Lt or Gt'
    assert want in err


def test_feature_gates_are_read_as_kube_scheduler_reads_them(tmp_path: Path) -> None:
    """Lt and Gt tolerations count only with their gate on (KEP-5471)."""
    taint = {"key": "level", "value": "5", "effect": "NoSchedule"}
    objects = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "n1"},
            "spec": {"taints": [taint]},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p1"},
            "spec": {
                "containers": [{"name": "c"}],
                "tolerations": [{"key": "level", "operator": "Gt", "value": "3"}],
            },
        },
    ]
    file = tmp_path / "cluster.json"
    file.write_text("\n".join(json.dumps(o) for o in objects))
    gates = ("AllAlpha=true,TaintTolerationComparisonOperators=F", "AllAlpha=1")
    placed = []
    for gate in gates:
        done = CliRunner().invoke(
            app, ["simulate", str(file), "-o", "json", "--feature-gates", gate]
        )
        placed.append(json.loads(done.stdout)["reports"][0]["placed"])
    assert [0, 1] == placed
    other = CliRunner().invoke(app, ["simulate", str(file), "--feature-gates", "Other=false"])
    assert 0 == other.exit_code
    assert "--feature-gates: Other has no effect in Stower" in other.stderr
    wrong = CliRunner().invoke(app, ["simulate", str(file), "--feature-gates", "Nope=maybe"])
    assert 2 == wrong.exit_code
    assert "Nope=maybe" in wrong.stderr


def test_require_all_ends_with_1_if_a_pod_stays_pending() -> None:
    """The report is printed all the same."""
    code, out, _ = invoke("-", "--require-all", "-o", "json", stdin=lines(pod()))
    assert (1, 1) == (code, json.loads(out)["reports"][0]["pending"])
    assert 0 == invoke("-", "--require-all", stdin=lines(node(), pod()))[0]


# Files written


def test_objects_keep_everything_that_is_not_modelled(tmp_path: Path) -> None:
    """Order, unknown fields and kinds, numbers as they were written; the node is added."""
    target = tmp_path / "out.ndjson"
    texts = [
        '{"kind":"Node","apiVersion":"v1","metadata":{"name":"n"},"x":1.50e0,'
        '"status":{"allocatable":{"cpu":4,"pods":"10"}}}',
        '{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"d"},"spec":{"a":[1.0]}}',
        '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"y":"\\u00e9",'
        '"containers":[{"name":"c"}],"z":12345678901234567890123},"w":null}',
        '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"old"},"spec":{"nodeName":"n",'
        '"containers":[{"name":"c"}]}}',
    ]
    invoke("-", "--objects", target, stdin="\n".join(texts).encode())
    texts[2] = texts[2].replace("123}", '123,"nodeName":"n"}')
    assert texts == target.read_text().splitlines()


def test_objects_are_one_line_each_however_they_came(tmp_path: Path) -> None:
    """A list as kubectl prints it becomes JSON lines, which can be read again."""
    target = tmp_path / "out.ndjson"
    document = {"apiVersion": "v1", "kind": "List", "items": [node(), pod()]}
    first = reports("-", "--objects", target, stdin=json.dumps(document, indent=4).encode())[0]
    assert 2 == len(target.read_text().splitlines())
    second = reports(target)[0]
    assert (0, first["use"]) == (second["pods"], second["use"])


@pytest.mark.parametrize(("name", "head"), [("use.svg", b"<?xml"), ("use.png", b"\x89PNG")])
def test_plot_writes_the_same_file_for_the_same_run(tmp_path: Path, name: str, head: bytes) -> None:
    """Also where a name looks like a formula, and where there is nothing to plot."""
    pytest.importorskip("matplotlib")
    config = write(tmp_path / "a$_$.yaml", HEADER)
    contents = []
    for _ in range(2):
        reports("-", "--plot", tmp_path / name, "--config", config, stdin=lines(node(), pod()))
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]
    assert contents[0].startswith(head)
    reports("-", "--plot", tmp_path / name, stdin=lines(pod()))


# Refusals: the file, the document, the field, and what is wanted


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({**pod(), "metadata": {"name": 3}}, "metadata.name: got int, want str"),
        ({**pod(), "metadata": {"name": ""}}, 'metadata.name: got "", want a name'),
        (
            pod("p", {"requests": {"cpu": "1x"}}),
            'spec.containers[0].resources.requests.cpu: got "1x", want a quantity such as "1500m"',
        ),
        (
            pod("p", {"limits": {"memory": "5GB"}}),
            'spec.containers[0].resources.limits.memory: got "5GB", '
            'want a quantity such as "1500m"',
        ),
        (
            pod("p", {"requests": {"cpu": "-1"}}),
            'spec.containers[0].resources.requests.cpu: got "-1", want a quantity of at least 0',
        ),
        (
            pod(resources={}, overhead={"cpu": -1}),
            'spec.overhead.cpu: got "-1", want a quantity of at least 0',
        ),
        (
            pod(priorityClassName="none"),
            'spec.priorityClassName: got "none", want a PriorityClass among the inputs, '
            "or a system one",
        ),
        (
            node("m", cpu="4Q"),
            'status.allocatable.cpu: got "4Q", want a quantity such as "1500m"',
        ),
        (node("m", cpu="-4"), 'status.allocatable.cpu: got "-4", want a quantity of at least 0'),
        (node(), 'metadata.name: got "n", want a name that is not in stdin: document 1 already'),
    ],
)
def test_object_that_cannot_be_is_refused(document: Json, expected: str) -> None:
    """The error begins with the input and the number of the document."""
    assert f"stdin: document 2: {expected}" == refusal("-", stdin=lines(node(), document))


def test_duplicate_over_files_names_both(tmp_path: Path) -> None:
    """A namespace that is not written is `default`."""
    first = write(tmp_path / "a.json", lines(pod()))
    again = {**pod(), "metadata": {"name": "p", "namespace": "default"}}
    items = {"apiVersion": "v1", "kind": "List", "items": [node(), again]}
    second = write(tmp_path / "b.json", lines(items))
    expected = (
        f'{second}: document 1, item 2: metadata.name: got "default/p", '
        f"want a name that is not in {first}: document 1 already"
    )
    assert expected == refusal(first, second)


def test_two_pods_with_one_uid_are_refused() -> None:
    """The engine knows pods by uid."""
    pair = [{**pod(), "metadata": {"name": name, "uid": "u"}} for name in "ab"]
    expected = 'stdin: document 2: metadata.uid: got "u", want a uid other than that of default/a'
    assert expected == refusal("-", stdin=lines(*pair))


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("a.json", b'{"apiVersion":"v1","kind":"Pod","metad', ": document 1: "),
        ("a.yaml", b'apiVersion: v1\nkind: Pod\nmetadata: {name: "a', ": document 1: "),
        ("a.json", b'{"apiVersion":"v1","kind":"Pod","spec":{"priority":NaN}}', ": document 1: "),
        ("a.yaml", b"apiVersion: v1\nkind: Pod\nspec: {priority: .nan}\n", "spec.priority: "),
        ("a.yaml.gz", zipped(lines(node()))[:-9], ": document 1: "),
        (
            "a.csv",
            b"a,b\n",
            'line 1: got "a,b", want the header of an OpenB list, or a column `node` or `pod`',
        ),
        ("a.csv", CSV_NODES.encode() + b"n,1,1\n", "line 2, columns: got 3, want 5"),
        ("a.csv", CSV_NODES.encode() + b"n,1,1,0,\n\nn,1,1,0,\n", ": line 4: metadata.name: "),
        ("a.csv", CSV_NODES.encode() + b'n,"' + b"1\n" * 70_000, "field larger than field limit"),
        ("a.csv", CSV_NODES.encode() + b"9" * 70_000, "want lines of less than 65536 characters"),
        ("a.csv.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\3garbage", "while decompressing data"),
        ("a.csv.gz", zipped(CSV_NODES.encode() + b"n,1,1,0,\n")[:-9], "ended before"),
        ("a.txt", b"x", "unknown format"),
        ("a.yaml", b"", "no nodes and no pods"),
        ("a.json", b'{"apiVersion":"v1","kind":"List","items":[]}', "no nodes and no pods"),
    ],
)
def test_file_that_cannot_be_read_is_refused_by_name(
    tmp_path: Path, name: str, data: bytes, expected: str
) -> None:
    """And nothing is written."""
    path, target = write(tmp_path / name, data), tmp_path / "out.ndjson"
    said = refusal(path, "--objects", target, "--plot", tmp_path / "out.svg")
    assert said.startswith(f"{path}: ")
    assert expected in said
    assert [name] == [entry.name for entry in tmp_path.iterdir()]


def test_yaml_bomb_is_refused(tmp_path: Path) -> None:
    """Ten aliases of ten aliases of ten are never expanded."""
    levels = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    path = write(tmp_path / "bomb.yaml", "\n".join(["a0: &a0 [x]", *levels]))
    assert "aliases expand to more than" in refusal(path)


def test_file_of_one_endless_line_is_refused(tmp_path: Path) -> None:
    """A gigabyte is not read to find that out; the file is sparse."""
    for name in ("a.yaml", "a.json", "a.csv"):
        path = tmp_path / name
        with path.open("wb") as file:
            file.truncate(2**30)
        assert refusal(path).startswith(f"{path}: ")


def test_paths_that_lead_nowhere_are_refused(tmp_path: Path) -> None:
    """A missing file, a folder without manifests, a name that no file can have."""
    assert "No such file or directory" in refusal(tmp_path / "no.yaml")
    assert "No such file or directory" in refusal(tmp_path / "no.csv")
    assert "no nodes and no pods" in refusal(tmp_path)
    assert "File name too long" in refusal("x" * 5_000)
    assert "stdin: can be read only once" == refusal("-", "-", stdin=lines(node()))


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_unreadable_file_is_refused(tmp_path: Path) -> None:
    """Permissions are told by their name."""
    path = write(tmp_path / "a.yaml", lines(node()))
    path.chmod(0)
    assert "Permission denied" in refusal(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "no documents, want a KubeSchedulerConfiguration"),
        (HEADER + "---\n" + HEADER, "2 KubeSchedulerConfigurations, want one"),
        ("apiVersion: v1\nkind: Pod\n", "no KubeSchedulerConfiguration, want one"),
        (HEADER + "nope: 1\n", 'got "nope", want a known field'),
        (
            HEADER + "parallelism: 0\n",
            "parallelism: Invalid value: 0: should be an integer value greater than zero",
        ),
        (HEADER + "profiles: [{}, {}]\n", "profiles[0].schedulerName: Required value"),
        (
            HEADER + "profiles: [{plugins: {score: {enabled: [{name: Nope}]}}}]\n",
            'profiles[0].plugins.score.enabled[0].name: got "Nope", want one of ',
        ),
    ],
)
def test_configuration_that_cannot_be_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    """Before the inputs are read: these do not exist."""
    path = write(tmp_path / "c.yaml", text)
    said = refusal("nowhere.yaml", "--config", path)
    assert said.startswith(f"{path}: ")
    assert expected in said


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--match", "a=b"), "--match SELECTOR needs --by KEY"),
        (("--by", "zone", "--match", "a in ("), "--match: cannot parse"),
        (("--seed", str(2**64)), f"--seed: got {2**64}, want a 64-bit number"),
        (("--plot", "use.pdf"), "--plot use.pdf: want a name that ends in .svg or .png"),
        (("--plot", "no/folder/use.svg"), "--plot no/folder/use.svg: No such file or directory"),
        (("--objects", "no/folder/x"), "--objects no/folder/x: No such file or directory"),
        (("--objects", "."), "--objects .: Is a directory"),
    ],
)
def test_options_that_cannot_be_are_refused(args: tuple[str, ...], expected: str) -> None:
    """Before anything runs."""
    assert refusal("-", *args, stdin=lines(node())).startswith(expected)


def test_no_file_is_written_if_another_cannot_be(tmp_path: Path) -> None:
    """The plot could be written, the objects could not."""
    refusal("-", "--plot", tmp_path / "a.svg", "--objects", tmp_path, stdin=lines(node()))
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("args", [(), ("-", "--nope"), ("-", "-o", "xml"), ("-", "--seed", "x")])
def test_wrong_usage_ends_with_2(args: tuple[str, ...]) -> None:
    """The usage goes to stderr."""
    code, out, err = invoke(*args)
    assert (2, "", True) == (code, out, "Usage:" in err)


def test_help_shows_the_examples() -> None:
    """What is said there is what there is."""
    code, out, _ = invoke("--help")
    assert 0 == code
    assert EPILOG.split("\n\n")[1].strip() in out


# As a process


def test_pipe_and_exit_code_of_a_process() -> None:
    """Bad input ends with 2 and an empty stdout, as a shell sees it."""
    done = subprocess.run([*COMMAND, "-"], input=b"[1]", capture_output=True, check=False)
    assert (2, b"") == (done.returncode, done.stdout)
    expected = b"stower: error: stdin: document 1: [0]: got 1, want an object"
    assert done.stderr.startswith(expected)


def test_reader_that_goes_away_ends_it_quietly() -> None:
    """As in `| head -1`: no traceback, whatever the exit code."""
    data = lines(node(), *(pod(f"p{i}", {}) for i in range(3_000)))
    command = [*COMMAND, "-", "-o", "json"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(data)
        process.stdin.close()
        said = process.stderr.read()
    assert b"Traceback" not in said
    assert b"Broken pipe" not in said
    assert process.returncode != 0


def test_colours_appear_on_a_terminal() -> None:
    """Both streams are the terminal here; in all other tests neither is."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    for name in ("NO_COLOR", "FORCE_COLOR"):
        env.pop(name, None)
    with subprocess.Popen(
        [*COMMAND, "-"], stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, env=env
    ) as process:
        os.close(theirs)
        assert process.stdin is not None
        process.stdin.write(lines(node(), pod()))
        process.stdin.close()
        shown = io.BytesIO()
        try:
            while chunk := os.read(ours, 65_536):
                shown.write(chunk)
        except OSError:  # how Linux ends a terminal without a writer
            pass
    os.close(ours)
    assert 0 == process.returncode
    assert b"\x1b[1m" in shown.getvalue()
    assert b"simulate default" not in shown.getvalue(), "a moment is not worth a bar"
