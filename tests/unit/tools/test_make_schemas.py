"""The schemas in docs are those of the program's types."""

from tools.make_schemas import FOLDER, files


def test_the_schemas_are_current() -> None:
    there = {path.name: path.read_text() for path in FOLDER.glob("*.json")}
    assert files() == there, "run tools/make_schemas.py"
