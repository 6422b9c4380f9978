"""Write Stower's CustomResourceDefinitions for other clusters: `make_crds.py [FOLDER]`.

One file for each kind. Three groups of kinds are in folders of their own: pod groups (for clusters
without the kinds of scheduling.k8s.io), VMs (for clusters without neon's kinds), and warm pools
(optional).
"""

import argparse
from pathlib import Path
from typing import Any, Final

import yaml

from stower.api.definitions import DEFINITIONS
from stower.api.group_definitions import GROUP_DEFINITIONS
from stower.api.vm_definitions import VM_DEFINITIONS
from stower.api.warm_definitions import WARM_DEFINITIONS

FOLDER: Final = Path(__file__).parents[1] / "deploy"
SETS: Final = {
    "crds": ("definitions.py", DEFINITIONS),
    "groups/crds": ("group_definitions.py", GROUP_DEFINITIONS),
    "vms/crds": ("vm_definitions.py", VM_DEFINITIONS),
    "warm/crds": ("warm_definitions.py", WARM_DEFINITIONS),
}
HEAD: Final = "# Written by tools/make_crds.py from src/stower/api/{}.\n"


class _Dumper(yaml.SafeDumper):
    """Without anchors, which kubectl reads and people do not."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def files() -> dict[str, str]:
    """The text of each file by its path in the folder."""
    return {
        f"{folder}/{definition['spec']['names']['plural']}.yaml": HEAD.format(source)
        + yaml.dump(definition, Dumper=_Dumper, sort_keys=False, width=100)
        for folder, (source, definitions) in SETS.items()
        for definition in definitions
    }


def main() -> None:
    """Write all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folder", nargs="?", type=Path, default=FOLDER, help="folder to write to (default: deploy)"
    )
    folder: Path = parser.parse_args().folder
    for name, text in files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
