"""Console sessions of a document: what is typed after `$ `, and what comes of it.

`...` in an output stands for anything; blanks count as one. A command that ends with `# exit code
N` is to end with that.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"# exit code (\d+)$")
SECONDS_MAX = 120
ROOT = Path(__file__).parents[2]


class Step(NamedTuple):
    """One command, what it shows, and its exit code."""

    command: str
    output: str
    code: int


def steps(text: str) -> Iterator[Step]:
    """All of a document."""
    for block in BLOCK.findall(text):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            first, *rest = part.splitlines()
            found = CODE.search(first)
            while rest and rest[0].startswith("> "):  # goes on
                first += "\n" + rest.pop(0)[2:]
            yield Step(first, "\n".join(rest), int(found.group(1)) if found else 0)


def matches(wanted: str, shown: str) -> bool:
    """Whether that is what was to be shown."""
    parts = [re.escape(" ".join(part.split())) for part in wanted.split("...")]
    return re.fullmatch(r"\s*" + ".*".join(parts) + r"\s*", " ".join(shown.split())) is not None


class Shell:
    """A bash that goes on from command to command, in a folder that has `examples` in it."""

    def __init__(self, folder: Path) -> None:
        (folder / "examples").symlink_to(ROOT / "examples")
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "COLUMNS": "200"}
        env.pop("KUBECONFIG", None)
        self._folder = folder
        self._process = subprocess.Popen(
            ["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd=folder, env=env, text=True, bufsize=1,
        )  # fmt: skip

    def run(self, step: Step) -> None:
        """It, and compare. Raises AssertionError."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        mark = "-- that was it: "
        process.stdin.write(f"{step.command}\necho '{mark}'$?\n")
        process.stdin.flush()
        shown, code = "", -1
        for line in process.stdout:
            before, found, number = line.partition(mark)
            shown += before
            if found:
                code = int(number)
                break
        told = f"$ {step.command}\n{shown}"
        assert step.code == code, f"{told}exit code {code}, want {step.code}"
        assert matches(step.output, shown), f"{told}-- want\n{step.output}"

    def close(self) -> None:
        """End it, and the cluster that it may have left."""
        assert self._process.stdin is not None
        self._process.stdin.write("stower down >/dev/null 2>&1; kill $(jobs -p) 2>/dev/null\n")
        self._process.stdin.close()
        self._process.wait(SECONDS_MAX)
