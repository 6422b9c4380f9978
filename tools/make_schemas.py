"""Write the JSON Schemas of what verbs print with --output json: `make_schemas.py [FOLDER]`.

One file for each document. The types of the program are the source.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Final

import msgspec

from stower.cli.explanation_output import ExplainedPod
from stower.engine.explain.group_explanation import GroupExplanation
from stower.sim.capacity import Drain, Fit
from stower.sim.node_demand import Demand
from stower.sim.rebalance_steps import Plan
from stower.sim.what_if import Comparison

FOLDER: Final = Path(__file__).parents[1] / "docs" / "schemas"
DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
# The file, the command and the type of each document.
DOCUMENTS: Final[tuple[tuple[str, str, type], ...]] = (
    ("explain-pod", "stower explain pod", ExplainedPod),
    ("explain-group", "stower explain group", GroupExplanation),
    ("what-if", "stower what-if", Comparison),
    ("fit", "stower fit", Fit),
    ("fit-until-full", "stower fit --until-full", Demand),
    ("rebalance", "stower rebalance", Plan),
    ("drain-check", "stower drain-check", Drain),
)


def files() -> dict[str, str]:
    """The text of each file by its name."""
    found = {}
    for name, command, kind in DOCUMENTS:
        schema = _on_one_line(msgspec.json.schema(kind))
        document = {"$schema": DRAFT, "title": f"{command} --output json", **schema}
        found[f"{name}.json"] = json.dumps(document, indent=2) + "\n"
    return found


def _on_one_line(value: Any) -> Any:
    """The schema with descriptions without line breaks."""
    if isinstance(value, list):
        return [_on_one_line(one) for one in value]
    if not isinstance(value, dict):
        return " ".join(value.split()) if isinstance(value, str) else value
    return {key: _on_one_line(one) for key, one in value.items()}


def main() -> None:
    """Writes the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
