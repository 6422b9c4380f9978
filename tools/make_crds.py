"""Write the definitions of stower.dev's kinds for other clusters: `make_crds.py [FOLDER]`.

They come from src/stower/api/definitions.py, one file for each kind.
"""

import argparse
from pathlib import Path
from typing import Any, Final

import yaml

from stower.api.definitions import DEFINITIONS

FOLDER: Final = Path(__file__).parents[1] / "deploy" / "crds"
HEAD: Final = "# Written by tools/make_crds.py from src/stower/api/definitions.py.\n"


class _Dumper(yaml.SafeDumper):
    """Without anchors, which kubectl reads and people do not."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def files() -> dict[str, str]:
    """The text of each file by its name."""
    return {
        f"{definition['spec']['names']['plural']}.yaml": HEAD
        + yaml.dump(definition, Dumper=_Dumper, sort_keys=False, width=100)
        for definition in DEFINITIONS
    }


def main() -> None:
    """Write all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help="(deploy/crds)")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
