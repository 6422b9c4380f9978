"""Runs that take hours in all, outside CI: `make long`, or some rows: `make long ROWS="soak fuzz"`.

Each row is one command. Its output goes to build/long/ROW.log, and one line sums it up. An issue
names the rows that must pass before it is resolved.
"""

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "build" / "long"
TAIL_LINES: Final = 20


class Row(NamedTuple):
    """A command, and how many minutes it takes on two cores. Words that name a program of the
    environment are found beside the interpreter."""

    name: str
    minutes: float
    command: str
    what: str


def faults(options: str) -> str:
    """The simulator with faults; failures are kept beside the log."""
    return f"stower faults --failures build/long {options}"


ROWS: Final = (
    Row("fuzz", 6, "env FUZZ=all python -m pytest -n 2 -m more tests/fuzz",
        "more than 100,000 mutated objects through every decoder and endpoint"),
    Row("histories", 12, "python -m pytest -n 2 -m long tests/fuzz/test_histories.py",
        "20,000 histories of objects of every kind through the whole engine"),
    Row("generators", 8, "python -m pytest -n 2 --dist worksteal -m long --ignore tests/fuzz tests",
        "models against thousands of drawn clusters and histories, days of hubs"),
    Row("world", 8, faults("--seeds 600"),
        "600 small clusters with all parts on and all faults: a million steps"),
    Row("day", 6, faults("--nodes 1000 --pods 50000 --until 24h"),
        "a day of 1,000 nodes, 50,000 pods and all parts"),
    Row("seeds", 10, faults("--only devices --seeds 2000"), "2,000 small clusters with all faults"),
    Row("seeds-negotiate", 10, faults("--only devices,negotiation --seeds 300"),
        "300 with drivers"),
    Row("seeds-groups", 10, faults("--only devices,groups --seeds 300"),
        "300 with trees of pod groups"),
    Row("seeds-rivals", 10, faults("--only devices,rivals --seeds 3000"),
        "3,000, some 200 of them with two schedulers that want the same devices"),
    Row("seeds-vms", 10, faults("--only devices,vms --seeds 500"), "500 with VMs"),
    Row("seeds-warm", 10, faults("--only devices,warm --seeds 500"), "500 with warm pools"),
    Row("steps", 30, faults("--only plain --nodes 100 --pods 200000 --until 240h --seeds 2"),
        "clusters of 100 nodes for ten days, more than 1,000,000 steps"),
    Row("soak", 31, "python -m tests.contract.soak 30",
        "half an hour of a real cluster on which everything fails"),
    Row("device-race", 3, "python -m tests.contract.device_race 120",
        "two schedulers with Leases of their own on shared devices, one killed every 3 s"),
    Row("vm-race", 5, "python -m tests.contract.vm_race 180",
        "30 VMs that ask for other sizes, the scheduler killed every 5 s, everything else failing"),
    Row("recorded", 20, "python -m tests.contract.recorded_what_if 50",
        "50 recordings of real clusters with drawn loads, run without a change"),
    Row("planted", 12, "python -m tests.contract.planted_live 200",
        "200 pods with planted causes, explained on a cluster, and the changes made there"),
    Row("hostile", 11, "python -m tests.contract.hostile_users 10",
        "one user's worst objects through the API, and another's plain pods"),
    Row("kills", 13, "python -m tests.contract.kills 10",
        "every process of `stower up` killed again and again, with all parts on"),
)  # fmt: skip


def arguments_of(command: str) -> list[str]:
    """The command's words, with programs of this environment by their full path."""
    programs = Path(sys.executable).parent
    words = shlex.split(command)
    return [str(programs / word) if word in ("python", "stower") else word for word in words]


def minutes_text(seconds: float) -> str:
    """Seconds as `3 min 12 s`."""
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def run(row: Row) -> bool:
    """Run it and print its line; whether it passed."""
    print(f"{row.name}: {row.what}; about {row.minutes:g} min", flush=True)
    log = FOLDER / f"{row.name}.log"
    began = time.monotonic()
    with log.open("w") as out:
        ran = subprocess.run(
            arguments_of(row.command), cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, check=False
        )
    text = log.read_text(errors="replace").splitlines()
    took = minutes_text(time.monotonic() - began)
    if ran.returncode:
        print("\n".join(f"    {line}" for line in text[-TAIL_LINES:]))
    result = f"failed with exit code {ran.returncode}" if ran.returncode else "passed"
    print(f"{row.name}: {result} in {took}; {log.relative_to(ROOT)}", flush=True)
    return not ran.returncode


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 if a row failed."""
    parser = argparse.ArgumentParser(prog="make long", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="(all)")
    parser.add_argument("--list", action="store_true", help="show the rows and their commands")
    options = parser.parse_args(arguments)
    by_name = {row.name: row for row in ROWS}
    unknown = [name for name in options.rows if name not in by_name]
    if unknown:
        parser.error(f"got {unknown[0]!r}, want some of {', '.join(by_name)}")
    rows = [by_name[name] for name in options.rows] or [*ROWS]
    if options.list:
        for row in rows:
            print(f"{row.name:16}{row.minutes:4g} min  {row.what}\n    {row.command}")
        return 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    began = time.monotonic()
    failed = [row.name for row in rows if not run(row)]
    total = minutes_text(time.monotonic() - began)
    print(f"{len(rows) - len(failed)} of {len(rows)} rows passed in {total}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
