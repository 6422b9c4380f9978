"""Recordings: what was recorded plays back the same, and what is no recording is refused."""

import io
import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from typer.testing import CliRunner, Result

from stower.assembly import build_engine
from stower.cli.main import app
from stower.cli.recordings import rebuild_engine
from stower.engine.node_events import NodeEvents
from stower.framework.events import (
    Event,
    ExtenderAnswered,
    Hold,
    Listed,
    Observed,
    Solved,
    Tick,
    WatchType,
    WriteFailed,
    WriteOk,
)
from stower.framework.plugin import Features
from stower.framework.writes import (
    Bind,
    CallExtender,
    CreateEvent,
    DeletePod,
    PatchObject,
    PatchPodStatus,
    Solve,
    Write,
)
from stower.model.kinds import Node, PersistentVolumeClaim, Pod
from stower.model.kinds.pod import PodCondition
from stower.record.reader import RecordedEvent, is_recording, lines_of, read_recording
from stower.record.recorder import EngineInputs, Recorder
from stower.record.replay import replay
from tests.builders import make_node, make_pod

BUILT = EngineInputs(None, 7, 64, Features())


def stower(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def record(path: Path, steps: list[tuple[int, Event]], bytes_max: int = 2**30) -> list[list[Write]]:
    """What an engine writes when it is told this, recorded."""
    engine = build_engine(None, seed=7, cycles_per_step_max=64)
    recorder = Recorder(path, BUILT, bytes_max)
    recorder.record_engine("e")
    made = []
    for now_ns, event in steps:
        writes = engine.step(event, now_ns)
        recorder.record_step("e", now_ns, event, writes)
        made.append(writes)
    recorder.close()
    return made


def cluster(nodes: int = 3, pods: int = 8) -> list[tuple[int, Event]]:
    """A list, and pods that come; some find no place."""
    first = Listed(tuple(make_node(f"n{i}", cpu="2") for i in range(nodes)))
    more = [(2 + i, Observed(WatchType.ADDED, make_pod(f"p{i}", cpu="1"))) for i in range(pods)]
    return [(1, first), *more]


ALL_EVENTS: list[Event] = [
    Listed((make_node("n1"), make_pod("p0", node="n1"))),
    Observed(WatchType.ADDED, make_pod("p1")),
    Observed(WatchType.DELETED, make_pod("p0", node="n1")),
    WriteOk(1),
    WriteFailed(2, 409, "conflict"),
    ExtenderAnswered(3, b"\x00\xff{}", ""),
    ExtenderAnswered(4, b"", "no answer"),
    Solved(5, b"\x00\xff"),
    Solved(6, error="no answer"),
    Tick(),
    Hold(True),
    Hold(False),
]
ALL_WRITES: list[Write] = [
    Bind(1, "default", "p", "u", "n"),
    PatchPodStatus(2, "default", "p", "u", PodCondition("PodScheduled", "False", "x", "\n"), ""),
    PatchObject(3, PersistentVolumeClaim, "default", "c", "u", "5", {"metadata": {"a": None}}),
    CallExtender(4, 0, "preempt", "default", "p", "u", ("n",), {"n": (["v"], 1)}),
    DeletePod(5, "default", "p", "u"),
    CreateEvent(6, "default", "p", "u", "Normal", "Scheduled", "Binding", "note", 9),
    Solve(7, "default", "g", "u", b"\x00\xff"),
]


@pytest.mark.parametrize("name", ["r.ndjson", "r.ndjson.zst"])
def test_every_event_and_write_comes_back(tmp_path: Path, name: str) -> None:
    recorder = Recorder(tmp_path / name, BUILT)
    recorder.record_engine("e")
    for at_ns, event in enumerate(ALL_EVENTS):
        recorder.record_step("e", at_ns, event, ALL_WRITES)
    recorder.close()
    engine, *told = read_recording(tmp_path / name)
    steps = [step for step in told if isinstance(step, RecordedEvent)]
    assert (7, 64, None) == (engine.seed, engine.cycles_per_step_max, engine.configuration)  # type: ignore[union-attr]
    assert list(enumerate(ALL_EVENTS)) == [(step.at_ns, step.event) for step in steps]
    assert [
        "Bind",
        "PatchPodStatus",
        "PatchObject",
        "CallExtender",
        "DeletePod",
        "CreateEvent",
        "Solve",
    ] == [write["write"] for write in json.loads(steps[0].writes)]
    assert "v1/PersistentVolumeClaim" == json.loads(steps[0].writes)[2]["view"]


@pytest.mark.behaviour("X5")
def test_what_was_recorded_plays_back_the_same(tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson.zst"
    made = record(path, cluster())
    found = replay(read_recording(path), rebuild_engine)
    assert None is found.difference
    assert (1, 9, sum(map(len, made))) == (found.engines, found.steps, found.writes)
    assert found.writes > 8
    ran = stower("replay", str(path))
    assert (0, True) == (ran.exit_code, "byte for byte" in ran.stdout)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path: Path, found: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in found))


@pytest.mark.behaviour("X5")
@pytest.mark.internal_errors
def test_internal_errors_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that the engine contains again, with their tracebacks, and their number by part."""
    inner = NodeEvents.handle_node

    def handle(self: NodeEvents, node: Node) -> None:
        if node.metadata.name == "bad":
            raise IndexError("planted")
        inner(self, node)

    monkeypatch.setattr(NodeEvents, "handle_node", handle)
    path = tmp_path / "r.ndjson"
    record(
        path, [(1, Listed((make_node("n1"),))), (2, Observed(WatchType.ADDED, make_node("bad")))]
    )
    result = stower("replay", str(path))
    assert 0 == result.exit_code
    assert "by part: object event: 2." in result.output
    assert "stower: step 2: internal error in object event" in result.stderr
    assert "IndexError: planted" in result.stderr
    found = json.loads(stower("replay", str(path), "-o", "json").stdout)
    assert {"object event": 2} == found["internalErrors"]


def test_the_first_difference_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    record(path, cluster())
    found = lines(path)
    (at,) = [i for i, line in enumerate(found) if "p3" in json.dumps(line.get("event"))]
    found[at]["writes"][0]["node_name"] = "elsewhere"
    write_lines(path, found)
    ran = stower("replay", str(path), "--output", "json")
    difference = json.loads(ran.stdout)["difference"]
    assert (1, 5, at + 1) == (ran.exit_code, difference["step"], difference["line"])
    ran = stower("replay", str(path))
    assert 1 == ran.exit_code
    assert "elsewhere" in ran.stderr
    assert ") differs" in ran.stderr


def test_a_write_too_few_is_a_difference(tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    record(path, cluster())
    found = lines(path)
    found[-1]["writes"].pop()
    write_lines(path, found)
    ran = stower("replay", str(path))
    assert 1 == ran.exit_code
    assert "write 2 of 1: none" in ran.stderr


def test_half_a_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    """As a process leaves it that was killed."""
    path = tmp_path / "r.ndjson.zst"
    engine, recorder = build_engine(None, seed=7), Recorder(path, BUILT)
    recorder.record_engine("e")
    for now_ns, event in cluster():
        recorder.record_step("e", now_ns, event, engine.step(event, now_ns))
        recorder.flush()
    whole = path.read_bytes()
    for kept in (len(whole), len(whole) - 20, len(whole) // 2):
        (tmp_path / "half.ndjson.zst").write_bytes(whole[:kept])
        found = replay(read_recording(tmp_path / "half.ndjson.zst"), rebuild_engine)
        assert None is found.difference
        assert (found.steps == 9) == (kept == len(whole))
    recorder.close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "want a recording: its first line"),
        (b"\x28\xb5\x2f\xfdrubbish", "valid zstd data"),
        (b'{"kind":"Pod"}\n', "a line of a recording"),
        (b"[" * 5000 + b"\n", "a line of a recording"),
        (b'{"type":"Step","engine":"e","atNs":1,"event":{"type":"Tick"},"writes":[]}\n', "earlier"),
        (b'{"type":"Step","engine":"e","atNs":1,"event":{"type":"Tick"},"writes":["\xff"]}\n',
         "a line of a recording"),
        (b'{"type":"Engine","engine":"e","format":9,"seed":0,"cyclesPerStepMax":1,"features":{},'
         b'"configuration":null}\n', "another version"),
        (b'{"type":"Engine","engine":"e","format":1,"seed":0,"cyclesPerStepMax":1,"features":{},'
         b'"configuration":{"kind":"Zebra"}}\n', "Zebra"),
    ],
)  # fmt: skip
def test_what_is_no_recording_is_refused(tmp_path: Path, text: bytes, said: str) -> None:
    path = tmp_path / "r.ndjson"
    path.write_bytes(text)
    ran = stower("replay", str(path))
    assert 2 == ran.exit_code
    assert said in ran.stderr
    assert 1 == ran.stderr.count("\n")


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"type": "Observed", "change": "EATEN", "apiVersion": "v1", "kind": "Pod", "object": {}},
         'change: got "EATEN", want one of ADDED, MODIFIED, DELETED'),
        ({"type": "Observed", "change": "ADDED", "apiVersion": "v2", "kind": "Cod", "object": {}},
         'kind: got "Cod (v2)"'),
        ({"type": "Listed", "objects": 2},
         "objects: got 0, want 2 Object lines before the Listed event"),
        ({"type": "Boom"}, "an event"),
    ],
)  # fmt: skip
def test_what_is_no_event_is_refused(tmp_path: Path, event: Any, said: str) -> None:
    path = tmp_path / "r.ndjson"
    record(path, [])
    step = {"type": "Step", "engine": "e", "atNs": 1, "event": event, "writes": []}
    write_lines(path, [*lines(path), step])
    ran = stower("replay", str(path))
    assert 2 == ran.exit_code
    assert "line 2, " in ran.stderr
    assert said in ran.stderr


def test_what_cannot_be_read_or_written_is_told(tmp_path: Path) -> None:
    ran = stower("replay", str(tmp_path / "none"))
    assert (2, True) == (ran.exit_code, "No such file" in ran.stderr)
    assert 2 == stower("replay", str(tmp_path)).exit_code
    objects = tmp_path / "o.json"
    objects.write_text('{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}')
    ran = stower("simulate", str(objects), "--record", str(tmp_path / "no" / "where.ndjson"))
    assert (2, True) == (ran.exit_code, "No such file" in ran.stderr)
    for size in ("5", "1Ki", "-3Gi", "lots"):
        ran = stower("simulate", str(objects), "--record", "x.zst", "--record-max", size)
        assert (2, True) == (ran.exit_code, f"--record-max: got {size!r}" in ran.stderr)


def test_parts_are_rotated_and_each_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    recorder, made = Recorder(path, BUILT, bytes_max=80_000), 0
    for life in range(9):
        engine = build_engine(None, seed=7)
        recorder.record_engine(f"e{life}")
        for now_ns, event in cluster(nodes=2, pods=30):
            recorder.record_step(f"e{life}", now_ns, event, engine.step(event, now_ns))
        made += recorder.is_full
    recorder.close()
    parts = sorted(file.name for file in tmp_path.iterdir())
    assert ["r.1.ndjson", "r.2.ndjson", "r.3.ndjson", "r.ndjson"] == parts
    assert made > 4
    assert all(
        replay(read_recording(tmp_path / part), rebuild_engine).difference is None for part in parts
    )


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    record(path, cluster(pods=1))
    before = path.read_bytes()
    record(path, cluster(pods=2))
    assert before == (tmp_path / "r.1.ndjson").read_bytes()
    assert before != path.read_bytes()


def test_where_the_first_list_fills_a_part_it_is_not_full_at_once(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "r.ndjson", BUILT, bytes_max=4_000)
    recorder.record_engine("e")
    recorder.record_step("e", 1, Listed(tuple(make_node(f"n{i}") for i in range(50))), ())
    assert not recorder.is_full
    for i in range(40):
        recorder.record_step("e", 2, Observed(WatchType.ADDED, make_pod(f"p{i}")), ())
    assert recorder.is_full
    recorder.close()


def test_a_part_that_cannot_end_does_not_grow_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "r.ndjson"
    with caplog.at_level(logging.WARNING):
        record(path, cluster(pods=300), bytes_max=8_000)
    assert "recording stopped: the part is full" in caplog.text
    assert path.stat().st_size < 20_000
    assert None is replay(read_recording(path), rebuild_engine).difference


def test_a_disk_that_fails_ends_the_recording_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    recorder = Recorder(tmp_path / "r.ndjson", BUILT)
    with pytest.MonkeyPatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr("os.fdopen", lambda descriptor, mode: io.FileIO(full, "wb"))
        recorder.record_engine("e")
        recorder.record_step("e", 1, Tick(), ())
        recorder.flush()
        recorder.close()
    assert 1 == caplog.text.count("No space left on device")
    assert "No space left on device" == recorder.cut


def test_an_engine_that_is_held_tries_nothing_until_it_may(tmp_path: Path) -> None:
    engine = build_engine(None)
    engine.step(Listed((make_node("n1"),)), 1)
    assert engine.is_settled
    assert [] == engine.step(Hold(True), 2)
    assert [] == engine.step(Observed(WatchType.ADDED, make_pod("p1")), 3)
    assert (None, True) == (engine.next_wake_ns, engine.is_settled)
    (bind,) = engine.step(Hold(False), 4)
    assert not engine.is_settled
    engine.step(WriteOk(bind.id), 5)
    assert not engine.is_settled  # the watch has not shown it yet
    placed = make_pod("p1", node="n1")
    assert isinstance(placed, Pod)
    engine.step(Observed(WatchType.MODIFIED, placed), 6)
    assert engine.is_settled


def test_nothing_is_touched_before_an_engine_begins_nor_what_is_no_recording(
    tmp_path: Path,
) -> None:
    path = tmp_path / "r.ndjson"
    record(path, cluster(pods=1))
    before = path.read_bytes()
    Recorder(path, BUILT).close()
    assert ["r.ndjson"] == [file.name for file in tmp_path.iterdir()]
    assert before == path.read_bytes()
    assert 0o600 == path.stat().st_mode & 0o777
    (tmp_path / "other.ndjson").write_text("what I wrote")
    (tmp_path / "part.2.ndjson").write_text("what I wrote")
    for name in ("other.ndjson", "part.ndjson", "."):
        with pytest.raises(OSError, match="is not a re"):
            Recorder(tmp_path / name, BUILT)
    assert "what I wrote" == (tmp_path / "part.2.ndjson").read_text()


def test_manifests_and_keys_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson"
    extenders = [{"urlPrefix": "x", "filterVerb": "f", "tlsConfig": {"keyData": "c2VjcmV0"}}]
    recorder = Recorder(path, EngineInputs({"extenders": extenders}, 0, 64, Features()))
    recorder.record_engine("e")
    meta = {"kubectl.kubernetes.io/last-applied-configuration": "hunter2", "stower.dev/x": "kept"}
    pod = make_pod("p1")
    pod = msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, annotations=meta)
    )
    recorder.record_step("e", 1, Observed(WatchType.ADDED, pod), ())
    recorder.close()
    text = path.read_text()
    assert (False, False, True) == ("hunter2" in text, "c2Vj" in text, "kept" in text)


def test_a_recording_that_is_cut_short_is_told(tmp_path: Path) -> None:
    objects = tmp_path / "o.ndjson"
    objects.write_text(stower("generate", "--pods", "3000", "--until", "1h").stdout)
    path = tmp_path / "r.ndjson"
    run = stower(
        "simulate", str(objects), "--record", str(path), "--record-max", "256Ki", "--timed"
    )
    assert (1, True) == (run.exit_code, "the recording is incomplete" in run.stderr)
    for name in ("", ".", ".."):
        run = stower("simulate", str(objects), "--record", str(tmp_path / name))
        assert 2 == run.exit_code


def test_one_long_line_is_read_in_time_that_grows_with_it(tmp_path: Path) -> None:
    path = tmp_path / "r.ndjson.zst"
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{i}"}} for i in range(60_000)
    ]
    whole = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}).encode()
    path.write_bytes(zstandard.compress(whole))
    assert not is_recording(path)
    path.write_bytes(zstandard.compress(whole + b"\n"))
    assert [whole] == [*lines_of(path)]
