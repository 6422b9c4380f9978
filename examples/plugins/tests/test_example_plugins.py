"""The example plugins through the engine, and as packages that are installed."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

EXAMPLE = Path(__file__).parents[1]
sys.path.insert(0, str(EXAMPLE / "src"))

from stower_example_plugins.max_per_owner import MaxPerOwner  # noqa: E402
from stower_example_plugins.prefer_quiet import PreferQuiet  # noqa: E402

from stower.assembly import build_engine  # noqa: E402
from stower.framework.events import Listed, Observed, WatchType  # noqa: E402
from stower.framework.writes import Bind, Write  # noqa: E402
from stower.model.errors import InvalidObject  # noqa: E402
from stower.model.kinds import Node, Pod  # noqa: E402

CONFIGURATION = yaml.safe_load((EXAMPLE / "scheduler.yaml").read_text())


def node(name: str, pods: str = "10") -> Node:
    room = {"cpu": "8", "memory": "8Gi", "pods": pods}
    data = {"metadata": {"name": name, "uid": name}, "status": {"allocatable": room}}
    return msgspec.convert(data, Node)


def pod(name: str, owner: str, on: str = "") -> Pod:
    requests = {"cpu": "1m", "memory": "1Mi"}
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    meta = {"name": name, "namespace": "default", "uid": name, "labels": {"owner": owner}}
    return msgspec.convert({"metadata": meta, "spec": {"containers": [container], "nodeName": on}},
                           Pod)  # fmt: skip


def placed(*pods: Pod, nodes: tuple[str, ...] = ("n1", "n2")) -> tuple[list[str], str]:
    """Where the pods go, one after another, and what the last that waits is told."""
    engine = build_engine(CONFIGURATION, plugins=(MaxPerOwner, PreferQuiet))
    engine.step(Listed(tuple(map(node, nodes))), 0)
    writes: list[Write] = []
    for one in pods:
        writes += engine.step(Observed(WatchType.ADDED, one), 0)
    told = [d.message for d in engine.drain() if d.message]
    return [w.node_name for w in writes if isinstance(w, Bind)], told[-1] if told else ""


def test_one_pod_of_an_owner_on_a_node() -> None:
    where, told = placed(pod("a", "ann"), pod("b", "ann"), pod("c", "ann"))
    assert {"n1", "n2"} == set(where)
    assert told.startswith("0/2 nodes are available: 2 node(s) had enough pods of the owner.")


def test_quiet_nodes_come_first() -> None:
    busy = [pod(f"busy{i}", str(i), "n1") for i in range(8)]
    assert placed(*busy, pod("new", "new")) == (["n2"], "")


def test_arguments_are_checked() -> None:
    bad = yaml.safe_load(
        (EXAMPLE / "scheduler.yaml").read_text().replace("maxPods: 1", "maxPods: 0")
    )
    with pytest.raises(InvalidObject, match=r"args.maxPods: Invalid value: 0: must be 1 or more"):
        build_engine(bad, plugins=(MaxPerOwner, PreferQuiet))


def test_an_installed_package_is_found_by_its_entry_points(tmp_path: Path) -> None:
    """What pip leaves of a package: its modules on the path, and its entry points beside them."""
    info = tmp_path / "stower_example_plugins-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stower-example-plugins\n"
                                   "Version: 0.1.0\n")  # fmt: skip
    lines = (
        (EXAMPLE / "pyproject.toml").read_text().split('[project.entry-points."stower.plugins"]')
    )
    names = [line for line in lines[1].split("[tool")[0].splitlines() if "=" in line]
    (info / "entry_points.txt").write_text(
        "[stower.plugins]\n" + "\n".join(line.replace('"', "") for line in names) + "\n"
    )
    command = "import sys; from stower.cli.main import main; sys.exit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", command, "config", "check", str(EXAMPLE / "scheduler.yaml")],
        env={"PYTHONPATH": f"{tmp_path}:{EXAMPLE / 'src'}", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert ran.stdout.endswith("ok, profiles: default-scheduler\n")
