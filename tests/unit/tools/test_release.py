"""A release has one version everywhere, and takes the changes with it."""

import shutil
from pathlib import Path

import pytest

from tools.release import PLACES, ROOT, release, versions


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in (*PLACES, "CHANGELOG.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "run.md").write_text("- Something new.\n")
    return tmp_path


def test_all_places_name_one_version() -> None:
    assert 1 == len(set.union(*versions().values()))


def test_a_release_sets_it_and_takes_the_changes(checkout: Path) -> None:
    release("1.2.0", "2027-01-02", checkout)
    assert {"1.2.0"} == set.union(*versions(checkout).values())
    assert [] == list((checkout / "changes").iterdir())
    (checkout / "changes" / "up.md").write_text("- More.\n")
    release("1.2.1rc1", "2027-01-03", checkout)
    log = (checkout / "CHANGELOG.md").read_text()
    assert log.index("## 1.2.1rc1") < log.index("- More.") < log.index("## 1.2.0 – 2027-01-02")
    assert 1 == log.count("# Changes\n")


def test_what_cannot_be_released_is_said(checkout: Path) -> None:
    with pytest.raises(ValueError, match="want a version"):
        release("1.2", "2027-01-02", checkout)
    (checkout / "changes" / "run.md").unlink()
    with pytest.raises(ValueError, match="nothing to release"):
        release("1.2.0", "2027-01-02", checkout)
