"""Whatever stands in a file that a user gives: it is read, or refused in one line."""

import asyncio
import contextlib
import io
import itertools
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest
import typer
import yaml
from hypothesis import strategies as st

from stower.assembly import build_engine
from stower.cli.configuration_files import InputError, read_yaml_document
from stower.cli.hub_runs import read_groups
from stower.cli.inputs import load, trace_list
from stower.cli.own_hub_inputs import read_own_days, read_own_hub
from stower.cli.scripts import read_script
from stower.controllers.cluster import read_cluster
from stower.framework.events import Listed, Observed, Tick, WatchType, WriteOk
from stower.framework.plugin import Features
from stower.live.access import read_access
from stower.live.kubeconfig import AccessError
from stower.model.errors import InvalidObject
from stower.record.reader import RecordedEvent, read_recording
from stower.record.recorder import EngineInputs, Recorder
from stower.sim.hub_day import read_days
from stower.sim.trial import script_of
from stower.vms.config import BadConfig, read_config
from tests.builders import make_node, make_pod
from tests.fuzz.limits import fuzzed
from tests.fuzz.mutants import CHANGES, KINDS, Change, changed, corpus, damaged, text_of

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "examples"


def documents(path: Path) -> list[Any]:
    """Those of a YAML file."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def _engine(path: Path) -> None:
    """A KubeSchedulerConfiguration."""
    build_engine(read_yaml_document(str(path)), features=Features())


def _cluster(path: Path) -> None:
    read_cluster(read_yaml_document(str(path)))


def _objects(path: Path) -> None:
    load([str(path)], nodeless=True)


def _kubeconfig(path: Path) -> None:
    asyncio.run(read_access(path))


def _recording(path: Path) -> None:
    for told in read_recording(path):
        if isinstance(told, RecordedEvent):
            msgspec.json.decode(told.writes)


def _vm_config(path: Path) -> None:
    read_config(path.read_bytes())


def _days(path: Path) -> None:
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    read_days(lines, lines, lines)


def _own_days(path: Path) -> None:
    """A hub's own day, whatever it is a file of."""
    own = read_own_hub(EXAMPLES / "warm" / "pool.yaml", None, None, False, (), 10)
    read_own_days([str(path)], own, range(1))


def recording() -> bytes:
    """What a small engine was told."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.jsonl"
        recorder = Recorder(path, EngineInputs(None, 7, 64, Features()), 2**30)
        recorder.record_engine("e")
        engine = build_engine(None, seed=7, cycles_per_step_max=64)
        pod = make_pod("p")
        steps = (Listed((make_node("n1"), pod)), WriteOk(1), Tick(), WriteOk(99),
                 Observed(WatchType.DELETED, pod))  # fmt: skip
        for at, event in enumerate(steps):
            recorder.record_step("e", at, event, engine.step(event, at))
        recorder.close()
        return path.read_bytes()


def kubeconfig(cluster: Any, user: Any) -> Any:
    """A way to one cluster."""
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://x", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }  # fmt: skip


KUBECONFIGS: Final = (
    kubeconfig({}, {"token": "t"}),
    kubeconfig(
        {"tls-server-name": "y", "certificate-authority-data": "YQ=="},
        {"username": "a", "password": "b", "client-certificate-data": "YQ=="},
    ),
)
GROUPS: Final = {
    "apiVersion": "stower.dev/v1", "kind": "NodeGroups", "nodeGroups": [
        {
            "name": "g", "allocatable": {"cpu": "4"}, "max": 3, "pricePerHour": 1,
            "bootSeconds": [60, 90], "pullSeconds": [60, 60], "outages": [[0, 9]],
            "taints": [{"key": "a", "effect": "NoSchedule"}],
        }
    ]
}  # fmt: skip
TABLE: Final = (
    b"seed,arrival_s,life_s,active_s,lecture,boot_s,pull_s,start_s,attendance,enrolment\n"
    + (b"1,10,100,50,0,60,60,20,5,10\n" * 3)
)
OWN_DAYS: Final = (
    b"arrival,end,cpu,last_activity\n10,5000,500m,2000\n20,600,1,\n",
    b'{"__timestamp__": "2026-11-24T09:00:00Z", "__schema__": "hub.jupyter.org/server-action", '
    b'"action": "start", "username": "u", "servername": ""}\n',
    b'[{"name": "u", "servers": {"": {"started": "2026-11-24T09:00:00Z", "last_activity": null}}}]',
)
OPENB: Final = (
    b"sn,cpu_milli,memory_mib,gpu,model\nn1,64000,262144,2,T4\nn2,64000,262144,0,\n",
    b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
    b"scheduled_time\np1,1000,1024,1,500,,LS,Running,0,100,1\n",
)


class Input(NamedTuple):
    """A kind of file: what reads it, a name that says what it is, and what it may hold."""

    reads: Callable[[Path], None]
    name: str
    documents: tuple[Any, ...] = ()
    texts: tuple[bytes, ...] = ()


def script() -> Any:
    """A script of a run with faults, with a few of what happens in it."""
    found: Any = json.loads(msgspec.json.encode(script_of(3, ["crashes"], 10**9)))
    kinds: dict[str, Any] = {one["do"]: one for one in found["happenings"] if "do" in one}
    found["happenings"] = [*kinds.values()] or found["happenings"][:5]
    return found


INPUTS: Final = (
    Input(_engine, "scheduler.yaml", tuple(
        document
        for path in ("vms/scheduler.yaml", "warm/scheduler.yaml")
        for document in documents(EXAMPLES / path)
    )),
    Input(_cluster, "cluster.yaml", tuple(documents(EXAMPLES / "drivers" / "cluster.yaml"))),
    Input(_objects, "objects.json", tuple(
        {"apiVersion": "v1", "kind": "List", "items": [corpus(kind)[0], corpus(kind)[1]]}
        for kind in KINDS
    )),
    Input(_objects, "objects.yaml", tuple(
        document
        for path in ("warm/pool.yaml", "groups/two-blocks.yaml", "devices/vgpu.yaml")
        for document in documents(EXAMPLES / path)
    )),
    Input(_objects, "trace.csv", texts=(*OPENB, b"node,cpu\nn1,4\n", b"pod,cpu\np1,1\n")),
    Input(lambda path: void(trace_list(path)), "list.csv", texts=OPENB),
    Input(_kubeconfig, "kubeconfig", KUBECONFIGS),
    Input(_recording, "recording.jsonl", texts=(recording(),)),
    Input(_vm_config, "vms.json", (
        {"scoring": {"minUsageScore": 0.5, "maxUsageScore": 0, "scorePeak": 0.8}, "watermark": 0.9,
         "schedulerName": "a", "reconcileWorkers": 1, "k8sCRUDTimeoutSeconds": 1,
         "startupEventHandlingTimeoutSeconds": 1, "patchRetryWaitSeconds": 1,
         "logSuccessiveFailuresThreshold": 1},
    )),
    Input(_days, "days.csv", texts=(TABLE,)),
    Input(_own_days, "day.csv", texts=OWN_DAYS),
    Input(lambda path: void(read_groups(path)), "groups.yaml", (GROUPS,)),
    Input(lambda path: void(read_script(path, None)), "script.json", (script(),)),
)  # fmt: skip
REFUSALS: Final = (
    InputError, InvalidObject, AccessError, BadConfig, typer.Exit, typer.BadParameter, SystemExit,
    msgspec.DecodeError, OSError,
)  # fmt: skip


def void(_: Any) -> None:
    """Nothing, whatever it is."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inputs")


@pytest.mark.parametrize("one", INPUTS, ids=lambda one: one.name)
def test_what_has_nothing_wrong_reads(one: Input, folder: Path) -> None:
    """Or all of this would test nothing."""
    read_all = 0
    for data in itertools.chain(map(text_of, one.documents), one.texts):
        path = folder / one.name
        path.write_bytes(data)
        with contextlib.suppress(*REFUSALS):
            one.reads(path)
            read_all += 1
    assert read_all


def files(which: Input, document: int, changes: list[Change], text: list[Change]) -> None:
    """A file in which something went wrong."""
    if which.documents:
        chosen = which.documents[document % len(which.documents)]
        data = damaged(text_of(changed(chosen, changes)), text)
    else:
        data = damaged(which.texts[document % len(which.texts)], changes + text)
    with tempfile.TemporaryDirectory(prefix="stower-fuzz-") as folder:
        path = Path(folder) / which.name
        path.write_bytes(data)
        with contextlib.suppress(*REFUSALS), contextlib.redirect_stderr(io.StringIO()):
            which.reads(path)


test_files, test_files_long = fuzzed(
    files, 10_000,
    which=st.sampled_from(INPUTS), document=st.integers(0, 99), changes=CHANGES,
    text=st.one_of(st.just([]), st.just([]), CHANGES),
)  # fmt: skip
