"""Days of a hub from the command line: folders, policies, node groups, what is wrong with them."""

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stower.cli.main import app
from stower.plugins.image_readiness import ImageReadiness

USERS = "seed,arrival_s,life_s,active_s,lecture\n" + "".join(
    f"1,{600 + 60 * i},3000,3000,0\n" for i in range(12)
)
NODES = "seed,boot_s,pull_s\n" + "1,90,120\n" * 20
TIMETABLE = "seed,start_s,attendance,enrolment\n1,4000,5,6\n"
EXAMPLES = Path(__file__).parents[3] / "examples" / "warm"


@pytest.fixture
def days(tmp_path: Path) -> Path:
    folder = tmp_path / "days"
    folder.mkdir()
    (folder / "ordinary_users.csv").write_text(USERS)
    (folder / "lectures_users.csv.gz").write_bytes(gzip.compress(USERS.encode()))
    (folder / "nodes.csv").write_text(NODES)
    (folder / "lectures_timetable.csv").write_text(TIMETABLE)
    return folder


def ran(*arguments: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, ["hub", *arguments])
    return found.exit_code, found.stdout, found.stderr


@pytest.mark.more
@pytest.mark.behaviour("S1.33")
def test_policies_are_compared_on_a_folder_of_days(days: Path, tmp_path: Path) -> None:
    own = ("--seeds", "1", "--jobs", "1", "--policy", "z2jh", "--policy", "stower")
    plot = tmp_path / "waits.svg"
    code, told, error = ran(str(days), *own, "-o", "json", "--plot", str(plot))
    assert (0, True) == (code, "error" not in error), error  # progress lines after 10 s
    cases = json.loads(told)["cases"]
    assert [("ordinary", "z2jh"), ("ordinary", "stower")] == [
        (row["case"], row["policy"]) for row in cases[:2]
    ]
    ours = cases[1]
    assert (12, 100.0, 100.0) == (ours["users"], ours["within10sPercent"], ours["warmPercent"])
    assert ours["nodeHours"] == ours["cost"] > 24
    assert plot.read_text().startswith("<?xml")
    code, told, _ = ran(str(days), *own[:-2])
    assert (0, True) == (code, "ordinary, 5 % pull late" in told)


def test_a_law_that_is_broken_is_told(days: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageReadiness, "filter_pod", lambda *_: None)
    (days / "ordinary_users.csv").write_text(USERS + "1,700,3000,3000,0\n" * 30)
    own = (str(days), "--seeds", "1", "--jobs", "1", "--policy", "stower")
    code, told, error = ran(*own, "-o", "json")
    assert (1, True) == (code, "law is broken: ordinary, stower, seed 1 at " in error)
    assert 1 == len(json.loads(told)["cases"][0]["broken"])


def test_users_who_come_after_the_day_are_refused(days: Path) -> None:
    (days / "ordinary_users.csv").write_text(
        "seed,arrival_s,life_s,active_s,lecture\n1,90000,1,1,0\n"
    )
    code, _, error = ran(str(days), "--seeds", "1", "--jobs", "1")
    assert (2, True) == (code, "users, arrival_s" in error)


def test_node_groups_come_from_a_file(days: Path) -> None:
    own = (str(days), "--seeds", "1", "--jobs", "1", "--policy", "z2jh", "-o", "json")
    code, told, _ = ran(*own, "--node-groups", str(EXAMPLES / "nodes.yaml"))
    row = json.loads(told)["cases"][0]
    assert (0, True) == (code, row["cost"] < row["nodeHours"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--policy", "best"), "want one of default, z2jh, stower"),
        (("--seeds", "2"), "has no seed 2"),
        (("--policy", "stow"), "did you mean stower?"),
        (("more/",), "DAYS: got "),
        (("--node-groups", "none.yaml"), "none.yaml"),
    ],
)
def test_what_makes_no_sense_is_told(days: Path, arguments: tuple[str, ...], told: str) -> None:
    code, _, error = ran(str(days), "--jobs", "1", *arguments)
    assert (2, True) == (code, told in error), error


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("nodes.csv", "seed,boot_s\n1,2\n", "nodes, line 1"),
        (
            "nodes.csv",
            "seed,boot_s,pull_s\n2,90,120\n",
            "want node rows for each seed of the users",
        ),
        ("ordinary_users.csv", USERS.replace("3000", "x", 1), "users, line 2, life_s"),
        ("lectures_timetable.csv", TIMETABLE.replace("4000", "-4"), "timetable, line 2, start_s"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(days: Path, name: str, text: str, told: str) -> None:
    (days / name).write_text(text)
    code, _, error = ran(str(days), "--seeds", "1", "--jobs", "1")
    assert (2, True) == (code, told in error), error


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nodeGroups: []", "nodeGroups"),
        ("nodeGroups: [{name: a, allocatable: {cpu: x}}]", "cpu"),
        ("nodeGroups: [{name: a, allocatable: {}, size: 3}]", "size"),
        ("nodeGroups: [{name: a, allocatable: {cpu: -4}}]", "allocatable.cpu"),
        ("nodeGroups: [{name: a, allocatable: {}, min: 5, max: 2}]", "at most max"),
        ("nodeGroups: [{name: a, allocatable: {}}, {name: a, allocatable: {}}]", "Duplicate"),
    ],
)
def test_what_is_wrong_with_node_groups_is_told(days: Path, text: str, told: str) -> None:
    path = days / "groups.yaml"
    path.write_text(f"apiVersion: stower.dev/v1\nkind: NodeGroups\n{text}\n")
    code, _, error = ran(str(days), "--seeds", "1", "--node-groups", str(path))
    assert (2, True) == (code, told in error), error
