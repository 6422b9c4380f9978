"""`python -m tests.contract.kills MINUTES [SEED]`: exit code 1 if anything was found.

The folder with the logs stays where something was found.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from tests.contract.kills.run import run


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    minutes, seed = float(arguments[0]), int((*arguments, "1")[1])
    folder = Path(tempfile.mkdtemp(prefix="stower-kills-"))
    report = run(folder, minutes * 60, seed, lambda text: print(text, file=sys.stderr))
    print("\n".join(report.lines()))
    if report.findings:
        print(f"seed {seed}; logs: {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
