"""A hub's own day from the command line: its users in several forms, its pool, a goal."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner
from zstandard import ZstdCompressor

from stower.cli.main import app
from stower.cli.own_hub_runs import find_least
from stower.sim.hub_activity import day_of, read_event_log, read_table, read_users

EXAMPLES = Path(__file__).parents[3] / "examples" / "warm"
POOL = EXAMPLES / "pool.yaml"
CONFIG = EXAMPLES / "scheduler.yaml"
NINE = datetime(2026, 11, 24, 9, 0, tzinfo=UTC)  # a Tuesday
SCHEMA = "https://schema.jupyter.org/jupyterhub/events/server-action"
SESSIONS = [(60 * i, 3600 + 600 * (i % 3)) for i in range(24)]  # when, and how long
# Small nodes that are there soon, so that a day takes little.
GROUPS = """
apiVersion: stower.dev/v1
kind: NodeGroups
nodeGroups:
- {name: small, min: 1, allocatable: {cpu: "2", memory: 8Gi, pods: "110"}, pricePerHour: 0.5,
   bootSeconds: [60, 90], pullSeconds: [60, 90]}
- {name: large, allocatable: {cpu: "4", memory: 16Gi, pods: "110"}, pricePerHour: 0.9,
   bootSeconds: [60, 90], pullSeconds: [60, 90]}
"""


def at(seconds: float) -> str:
    return (NINE + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def table() -> str:
    rows = (f"{at(start)},{at(start + life)}\n" for start, life in SESSIONS)
    return "arrival,end\n" + "".join(rows)


def event_log(schema: str = SCHEMA) -> str:
    events = [(start, "start", f"u{i}") for i, (start, _) in enumerate(SESSIONS)]
    events += [(start + life, "stop", f"u{i}") for i, (start, life) in enumerate(SESSIONS)]
    lines = (
        {"__timestamp__": at(when), "__schema__": schema, "__schema_version__": 1,
         "action": action, "username": user, "servername": ""}
        for when, action, user in sorted(events)
    )  # fmt: skip
    return "".join(json.dumps(line) + "\n" for line in lines)


def users() -> str:
    servers = ({"started": at(s), "last_activity": at(s + 900)} for s, _ in SESSIONS)
    return json.dumps([{"name": f"u{i}", "servers": {"": one}} for i, one in enumerate(servers)])


@pytest.fixture
def groups(tmp_path: Path) -> Path:
    path = tmp_path / "groups.yaml"
    path.write_text(GROUPS)
    return path


def ran(*arguments: object) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, ["hub", *map(str, arguments)])
    return found.exit_code, found.stdout, found.stderr


def cases(*arguments: object) -> list[dict[str, Any]]:
    code, told, error = ran(*arguments, "-o", "json", "--jobs", "1", "--seeds", "1")
    assert code == 0, error
    found: list[dict[str, Any]] = json.loads(told)["cases"]
    return found


@pytest.mark.parametrize("schema", ["hub.jupyter.org/server-action", SCHEMA])
def test_the_same_day_in_a_table_and_in_a_log_of_events(schema: str) -> None:
    one = day_of(read_table(table().splitlines()), 1)
    other = day_of(read_event_log(event_log(schema).encode().splitlines()), 1)
    assert one == other
    assert (2 * 3600.0, 24) == (one.length_s, len(one.users))
    assert int(NINE.timestamp()) * 10**9 == one.starts_ns


def test_who_runs_by_the_list_of_users_leaves_when_the_culler_comes() -> None:
    day = day_of(read_users(users().encode()), 1)
    assert {(900.0, 900.0 + 3600)} == {(user.active_s, user.life_s) for user in day.users}


def test_a_stop_without_a_start_and_a_start_without_a_stop() -> None:
    lines = event_log().splitlines()
    first, *rest, last = (line.encode() for line in lines)
    assert b'"start"' in first
    assert b'"stop"' in last
    sessions = read_event_log([*rest, b'{"__schema__": "other", "__timestamp__": 3}'])
    day = day_of(sessions, 1)
    assert 24 == len(day.users)
    assert 2 * day.length_s == max(user.life_s for user in day.users)  # for ever


@pytest.mark.behaviour("S1.33")
def test_a_hubs_own_day(tmp_path: Path, groups: Path) -> None:
    """Under its own configuration and node groups, and recorded."""
    day = tmp_path / "day.csv"
    day.write_text(table())
    own = (day, "--pool", POOL, "--config", CONFIG, "--node-groups", groups)
    recording = tmp_path / "day.ndjson.zst"
    (ours,) = cases(*own, "--policy", "stower", "--placeholders", "2", "--record", recording)
    assert ("2 placeholders", 24, 0.0) == (
        ours["case"], ours["users"], 100 - ours["warmPercent"]
    )  # fmt: skip
    assert ours["nodeHours"] > ours["cost"] > 3
    assert [] == ours["broken"]
    replayed = CliRunner().invoke(app, ["replay", str(recording)])
    assert (0, True) == (replayed.exit_code, "No difference" in replayed.stdout)
    other = tmp_path / "other.yaml"
    other.write_text(POOL.read_text().replace("namespace: jhub", "namespace: other"))
    assert "no pod of namespace other that spec.users" in ran(recording, "--pool", other)[2]
    unnamed = tmp_path / "unnamed.yaml"  # the namespace is jhub where none is said
    unnamed.write_text(
        POOL.read_text().replace("  name: users\n  namespace: jhub\n", "  name: users\n")
    )
    (same,) = cases(recording, "--pool", unnamed, *own[3:], "--policy", "stower")
    assert 24 == same["users"]
    # What was recorded is a day, too.
    (again,) = cases(recording, *own[1:], "--policy", "stower", "--placeholders", "2")
    assert (24, ours["within10sPercent"]) == (again["users"], again["within10sPercent"])


def test_policies_and_numbers_are_compared(tmp_path: Path, groups: Path) -> None:
    log = tmp_path / "event.log"
    log.write_text(event_log())
    numbers = ("--placeholders", "0", "--placeholders", "4")
    found = cases(log, "--pool", POOL, "--node-groups", groups, *numbers)
    assert [
        ("0 placeholders", "z2jh"), ("0 placeholders", "stower"),
        ("4 placeholders", "z2jh"), ("4 placeholders", "stower"),
    ] == [(row["case"], row["policy"]) for row in found]  # fmt: skip
    assert found[3]["within10sPercent"] > found[1]["within10sPercent"]


def test_the_least_number_that_meets_a_goal(tmp_path: Path, groups: Path) -> None:
    day = tmp_path / "day.csv"
    day.write_text(table())
    own = (day, "--pool", POOL, "--node-groups", groups, "--seeds", "1", "--jobs", "1")
    code, told, _ = ran(*own, "--find", "placeholders", "--goal", "90% in 10s", "-o", "json")
    found = json.loads(told)
    least, rows = found["found"], {row["placeholders"]: row for row in found["cases"]}
    assert (0, "90% in 10s") == (code, found["goal"])
    assert rows[least]["within10sPercent"] >= 90 > rows[least - 1]["within10sPercent"]
    code, told, _ = ran(*own, "--find", "placeholders", "--goal", "1% within 5 min")
    assert (0, True) == (code, "No placeholder is needed for 1% in 300s" in told)


@given(least=st.integers(0, 3_000), first=st.integers(0, 500), most=st.integers(1, 2_000))
def test_the_search_finds_the_least(least: int, first: int, most: int) -> None:
    found, tried = find_least(first, most, lambda count: count >= least)
    assert found == (least if least <= most else None)
    assert len(tried) == len(set(tried)) <= 30
    assert all(0 <= count <= most for count in tried)


def test_users_of_several_sizes(tmp_path: Path, groups: Path) -> None:
    day = tmp_path / "day.csv"
    rows = (f"{60 * i},{3600 + 60 * i},{'3' if i % 4 else '500m'}\n" for i in range(8))
    day.write_text("arrival,end,cpu\n" + "".join(rows))
    (ours,) = cases(day, "--pool", POOL, "--node-groups", groups, "--policy", "stower")
    assert (8, []) == (ours["users"], ours["broken"])
    assert ours["cost"] > 0.5 * ours["nodeHours"]  # large ones, too


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1"), ("a,b\n1,2\n", "columns arrival and end"),
        ("arrival,end\n", "no sessions"), ("arrival,end\n9,5\n", "line 2, end"),
        ("arrival,end\nsoon,5\n", "line 2, arrival: got \"soon\""),
        ("arrival,end\n1,5\n1,2026-11-24T09:00:00Z\n", "line 3, end: got \"2026"),
        ("arrival,end\n-1,5\n", "line 2, arrival"), ("arrival,end\nnan,5\n", "line 2, arrival"),
        ("arrival,end,cpu\n1,5,x\n", "line 2.cpu"), ("arrival,end\n1,9e6\n", "at most 31 days"),
        ("arrival,end,cpu\n1,5,-1\n", "line 2, cpu"),
        ("arrival,end,cpu\n1,5,1000\n", "a node of one"),
        ("arrival,end\n9999-12-31T00:00:00Z,9999-12-31T01:00:00Z\n", "before the year 2200"),
        ("x" * 200_000, "a CSV table"), ("[" * 200_000, "JSON"), ('{"a":' * 200_000, "JSON"),
        ("{", "JSON"), ("[3]", "[0]"), ('{"users": 3}', "GET /hub/api/users"),
        ('[{"servers": {"": {"started": "x"}}}]', "servers[''].started"),
        ('{"items": [], "_pagination": {"total": 500, "next": {"offset": 50}}}', "a page of 500"),
        ('{"__timestamp__": 3, "__schema__": "server-action"}', "line 1, __timestamp__"),
        ('{"__timestamp__": "2026-11-24T09:00:00", "__schema__": "server-action"}', "action"),
    ],
)  # fmt: skip
def test_days_that_are_none(text: str, said: str, tmp_path: Path) -> None:
    day = tmp_path / "day.csv"
    day.write_text(text)
    code, _, error = ran(day, "--pool", POOL)
    assert 2 == code
    assert said in error
    assert str(day) in error


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--pool", POOL), "DAYS: got 'nothing'"),
        (("--user", POOL), "--user: is for a hub's own days"),
        (("DAY", "--pool", CONFIG), "0 WarmPools, want one"),
        (("DAY", "--pool", POOL, "--user", POOL), "0 pods, want one"),
        (("DAY", "--pool", POOL, "--config", POOL), "no KubeSchedulerConfiguration, want one"),
        (("DAY", "--pool", POOL, "--hubs", "2"), "--hubs"),
        (("DAY", "--pool", POOL, "--find", "nodes"), "--find: got 'nodes', want placeholders"),
        (("DAY", "--pool", POOL, "--goal", "9% in 1s"), "--goal: is for --find"),
        (("DAY", "--pool", POOL, "--find", "placeholders", "--placeholders", "1", "--placeholders",
          "2"), "--placeholders: --find begins with one"),
        (("DAY", "--pool", POOL, "--find", "placeholders", "--goal", "soon"), "--goal: got 'soon'"),
        (("DAY", "--pool", POOL, "--record", "r.ndjson", "--seeds", "2"), "--record: want one run"),
        (("DAY", "--pool", POOL, "--node-groups", "groups.yaml"), "nodeGroups: got \"gpu\""),
        (("no.csv", "--pool", POOL), "no.csv: No such file"),
    ],
)  # fmt: skip
def test_options_that_do_not_do(
    arguments: tuple[object, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("DAY").write_text(table())
    tainted = GROUPS.split("- {", maxsplit=1)[0]
    Path("groups.yaml").write_text(
        f'{tainted}- {{name: gpu, allocatable: {{cpu: "4", memory: 8Gi}}, '
        "taints: [{key: gpu, effect: NoSchedule}]}\n"
    )
    code, _, error = ran(*arguments)
    assert 2 == code
    assert said in error


USER = """
apiVersion: v1
kind: Pod
metadata: {name: jupyter, labels: {component: singleuser-server}}
spec:
  schedulerName: jhub-user-scheduler
  containers: [{name: notebook, resources: {requests: {cpu: 500m, memory: 1Gi}}}]
"""
PVC = "  volumes: [{name: home, persistentVolumeClaim: {claimName: home}}]\n"
GATE = "  schedulingGates: [{name: example.com/wait}]\n"
AFFINITY = """
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions: [{key: purpose, operator: In, values: [user]}]
"""
LIMITS = USER.replace("requests:", "limits:")
URGENT = """
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: -20
"""


@pytest.mark.parametrize("user", [USER + PVC, USER + GATE, USER + AFFINITY, LIMITS])
def test_users_as_hubs_have_them(user: str, tmp_path: Path) -> None:
    day, pod = tmp_path / "day.csv", tmp_path / "user.yaml"
    day.write_text(table())
    pod.write_text(user)
    own = (day, "--pool", POOL, "--user", pod, "--slots", "4", "--placeholders", "2")
    (ours,) = cases(*own, "--policy", "stower")
    assert (24, []) == (ours["users"], ours["broken"])
    assert ours["within300sPercent"] > 50


def test_placeholders_that_must_go_to_nodes_of_users(tmp_path: Path) -> None:
    day, pool, pod = tmp_path / "day.csv", tmp_path / "pool.yaml", tmp_path / "user.yaml"
    day.write_text(table())
    pod.write_text(USER)
    indented = AFFINITY.replace("\n", "\n      ").rstrip(" ")
    pool.write_text(POOL.read_text().rstrip("\n") + indented)
    (ours,) = cases(
        day, "--pool", pool, "--user", pod, "--slots", "4", "--policy", "stower",
        "--placeholders", "600",
    )  # fmt: skip
    assert (600, 24, []) == (ours["placeholders"], ours["users"], ours["broken"])
    assert ours["nodeHours"] > 100  # all of them, whatever replicasMax says


def test_a_user_has_the_priority_of_its_class(tmp_path: Path) -> None:
    """One below placeholders takes no place of theirs."""
    day, pod = tmp_path / "day.csv", tmp_path / "user.yaml"
    day.write_text(table())
    own = (day, "--pool", POOL, "--user", pod, "--slots", "4", "--placeholders", "2")
    found = []
    for name in ("none", "urgent"):
        pod.write_text(USER + f"  priorityClassName: {name}\n" + URGENT)
        (theirs,) = cases(*own, "--policy", "z2jh")
        found.append(theirs["within10sPercent"])
    assert found[0] > found[1]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("profiles: 5", "profiles"),
        ("extenders: [{urlPrefix: 'http://127.0.0.1:1', filterVerb: filter}]",
         "extenders: got 1, want none"),
        ("profiles: [{plugins: {multiPoint: {disabled: [{name: WarmCapacity}]}}}]",
         "want the plugin WarmCapacity"),
    ],
)  # fmt: skip
def test_configurations_under_which_no_day_can_be_run(
    config: str, said: str, tmp_path: Path
) -> None:
    day, path = tmp_path / "day.csv", tmp_path / "config.yaml"
    day.write_text(table())
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    path.write_text(head + config + "\n")
    code, _, error = ran(day, "--pool", POOL, "--config", path)
    assert (2, True) == (code, f"--config {path}: " in error), error
    assert said in error


def test_a_configuration_without_profiles_is_that_of_the_default_scheduler(tmp_path: Path) -> None:
    day, path = tmp_path / "day.csv", tmp_path / "config.yaml"
    day.write_text(table())
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    path.write_text(head + "profiles: []\n")
    own = (day, "--pool", POOL, "--slots", "4", "--config", path)
    (ours,) = cases(*own, "--policy", "stower")
    assert (24, []) == (ours["users"], ours["broken"])


def test_a_profile_that_leaves_plugins_out_is_held_to_no_law(tmp_path: Path) -> None:
    day, path = tmp_path / "day.csv", tmp_path / "config.yaml"
    day.write_text(table())
    path.write_text(CONFIG.read_text().replace(
        "  plugins:\n", "  plugins:\n    filter:\n      disabled: [{name: ImageReadiness}]\n", 1
    ))  # fmt: skip
    own = (day, "--pool", POOL, "--slots", "4", "--config", path)
    (ours,) = cases(*own, "--policy", "stower")
    assert (24, []) == (ours["users"], ours["broken"])


def test_a_packed_day_that_was_cut_off_is_none(tmp_path: Path) -> None:
    day = tmp_path / "day.csv.zst"
    packed = ZstdCompressor().compress(table().encode())
    day.write_bytes(packed + packed)  # two frames: a header in the middle
    assert "line 26, arrival" in ran(day, "--pool", POOL)[2]
    for cut in (1, 10, len(packed) - 1):
        day.write_bytes(packed[:-cut])
        code, _, error = ran(day, "--pool", POOL)
        assert (2, True) == (code, "the file was cut off" in error)


def test_events_may_be_in_any_order() -> None:
    lines = event_log().encode().splitlines()
    assert day_of(read_event_log(lines), 1) == day_of(read_event_log(lines[::-1]), 1)


def test_who_runs_since_long_before_the_day_came_when_it_began() -> None:
    servers = [
        {"started": at(-50 * 86_400), "last_activity": at(0)},
        {"started": at(-3600), "last_activity": at(600)},
    ]
    document = json.dumps([{"name": "u", "servers": {str(i): s for i, s in enumerate(servers)}}])
    day = day_of(read_users(document.encode(), 1800), 1)
    assert [86_400 + 1200, 3600 + 600 + 1800] == [user.life_s for user in day.users]
    assert 86_400 - 4200 == day.users[1].arrival_s - day.users[0].arrival_s
    assert [86_400 - 600, 4200] == [user.active_s for user in day.users]


def test_a_start_says_that_a_server_had_ended_by_itself() -> None:
    def log(*events: tuple[int, str]) -> list[bytes]:
        return [
            json.dumps({"__timestamp__": at(when), "__schema__": SCHEMA, "action": action,
                        "username": "u", "servername": ""}).encode()
            for when, action in events
        ]  # fmt: skip

    def lives(*events: tuple[int, str]) -> list[tuple[float, float]]:
        first_s = NINE.timestamp()
        return sorted(
            (s.start_s - first_s, s.end_s - first_s) for s in read_event_log(log(*events))
        )

    assert [(0, 900), (900, 1800)] == lives((0, "start"), (900, "start"), (1800, "stop"))
    one_after_the_other = (0, "start"), (10, "stop"), (10, "start"), (20, "stop")
    assert [(0, 10), (10, 20)] == lives(*one_after_the_other) == lives(*one_after_the_other[::-1])
    assert [(5, 5)] == lives((5, "start"), (5, "stop"))


@pytest.mark.parametrize("form", [table, event_log, users])
def test_a_byte_order_mark_makes_no_difference(
    form: Callable[[], str], tmp_path: Path, groups: Path
) -> None:
    day = tmp_path / "day"
    day.write_bytes(b"\xef\xbb\xbf" + form().encode())
    (ours,) = cases(day, "--pool", POOL, "--node-groups", groups, "--policy", "stower")
    assert 24 == ours["users"]


MEMORY = USER.replace("cpu: 500m, ", "")
INIT = USER + "  initContainers: [{name: block, image: network-tools}]\n"


def test_users_of_the_charts_defaults(tmp_path: Path) -> None:
    """Memory alone is guaranteed, and an init container is beside the notebook."""
    day, pod, pool = tmp_path / "day.csv", tmp_path / "user.yaml", tmp_path / "pool.yaml"
    day.write_text(table())
    pool.write_text(POOL.read_text().replace("ofUsers: false", "ofUsers: true"))
    for user in (MEMORY, INIT):
        pod.write_text(user)
        own = (day, "--pool", pool, "--user", pod, "--slots", "4", "--placeholders", "2")
        (ours,) = cases(*own, "--policy", "stower")
        assert (24, []) == (ours["users"], ours["broken"])
    pod.write_text(USER + "  nodeSelector: {kubernetes.io/hostname: n1}\n")
    assert "nodeSelector: got" in ran(*own)[2]


def test_a_recording_of_pools_is_shown_as_it_ends(tmp_path: Path, groups: Path) -> None:
    """By its own configuration and at its own time: nodes that pulled then are not stuck."""
    day, recording = tmp_path / "day.csv", tmp_path / "day.ndjson"
    day.write_text(table())
    own = (day, "--pool", POOL, "--config", CONFIG, "--node-groups", groups)
    cases(*own, "--policy", "stower", "--placeholders", "2", "--record", recording)
    text = recording.read_bytes().splitlines(keepends=True)
    cut = tmp_path / "cut.ndjson"
    cut.write_bytes(b"".join(text[: len(text) // 2]))
    told = CliRunner().invoke(app, ["warm", "all", str(cut), "-o", "json"])
    assert 0 == told.exit_code, told.stderr
    (pool,) = json.loads(told.stdout)
    assert pool["nodes"]
    assert not any("stuck" == node["state"] for node in pool["nodes"])


def test_slow_images_break_no_law(tmp_path: Path) -> None:
    """The autoscaler removes nodes that it does not need before they have their images."""
    day, pool, groups = tmp_path / "day.csv", tmp_path / "pool.yaml", tmp_path / "groups.yaml"
    day.write_text(table())
    slow = POOL.read_text().replace(
        "  placeholders:", "  placeholders:\n    stuckAfterSeconds: 1200"
    )
    assert "stuckAfterSeconds: 1200" in slow
    pool.write_text(slow)
    groups.write_text(GROUPS.replace("pullSeconds: [60, 90]", "pullSeconds: [800, 1100]"))
    own = (day, "--pool", pool, "--node-groups", groups, "--policy", "stower")
    (ours,) = cases(*own, "--placeholders", "2")
    assert [] == ours["broken"]


def test_a_goal_that_no_number_meets_is_given_up_soon(tmp_path: Path, groups: Path) -> None:
    day = tmp_path / "day.csv"
    day.write_text("arrival,end\n" + f"{at(0)},{at(900)}\n" * 12)
    asked = ("--find", "placeholders", "--goal", "100% in 1s", "--seeds", "1", "--jobs", "1")
    code, _, error = ran(day, "--pool", POOL, "--node-groups", groups, *asked)
    assert (1, True) == (code, "25 placeholders do not meet 100% in 1s" in error)
    assert "trying 12 placeholders" in error
