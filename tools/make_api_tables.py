"""Make the API tables of the package: `make_api_tables.py DATA OUTPUT`.

DATA is a folder with the API description of a Kubernetes API server: openapi-v2-definitions,
openapi-v2-operations, discovery, table-columns and protobuf-fields, each .json.gz. Four facts are
in none of these files and come from tools/api_facts.json: which scalars are pointers (a zero is
then kept), which structs and times are values (then they are always present), the descriptions
of printed columns, and the protobuf messages of kube-aggregator.
"""

import argparse
import gzip
import json
import re
from pathlib import Path
from typing import Any, Final

FACTS: Final = Path(__file__).parent / "api_facts.json"
INPUTS: Final = ["openapi-v2-definitions", "discovery", "table-columns", "protobuf-fields"]
# Definitions carry these for other clients; a server finds the kind in discovery.
DROPPED: Final = ("x-kubernetes-group-version-kind", "description")


def read(folder: Path, name: str) -> Any:
    """One of the files of DATA."""
    with gzip.open(folder / f"{name}.json.gz", "rt", encoding="utf-8") as text:
        return json.load(text)


def make(folder: Path) -> dict[str, Any]:
    """The tables, as one JSON value."""
    definitions, discovery, columns, messages = (read(folder, name) for name in INPUTS)
    facts = json.loads(FACTS.read_text(encoding="utf-8"))
    kinds: dict[str, str] = {}
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", ()):
            key = f"{kind['group']}/{kind['version']}/{kind['kind']}"
            # Options are listed under every group; one type stands for all of them.
            kinds.setdefault(key, name)
        for dropped in DROPPED:
            definition.pop(dropped, None)
    for path, row in columns.items():
        for column, text in zip(row, facts["columns"].get(path) or [""] * len(row), strict=True):
            column["description"] = text
    return {
        "definitions": definitions,
        "kinds": kinds,
        "fields": facts["fields"],
        "discovery": discovery,
        "columns": columns,
        "protobuf": {**reachable(messages), **facts["protobuf"]},
    }


def reachable(messages: dict[str, Any]) -> dict[str, Any]:
    """The messages of versions that are served, and what they refer to."""
    served = re.compile(
        r"^k8s\.io\.api\.\w+\.(v\d+|v1alpha2)\.|^k8s\.io\.api(machinery|ext|server)"
    )
    return {name: fields for name, fields in messages.items() if served.match(name)}


def main() -> None:
    """Write the tables; the same inputs give the same bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder with the API description")
    parser.add_argument("output", type=Path, help="file to write")
    options = parser.parse_args()
    text = json.dumps(make(options.data), separators=(",", ":"), sort_keys=True)
    options.output.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{options.output}: {options.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
