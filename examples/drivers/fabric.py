"""A fabric that attaches accelerators to racks: so many in a rack, for any node of it."""

import argparse
import json
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from stower.driver import Allocation, Driver, Entry, Refused
from stower.live.driver import serve
from stower.model.kinds import Pod, ResourceClaim

LABEL = "rack"  # of nodes


class Fabric(Driver):
    """A file stands for the fabric: what each rack has, and by claim uid what is attached where."""

    name = "fabric.example.com"

    def __init__(self, file: Path, attach_seconds: float) -> None:
        self.file, self.attach_seconds = file, attach_seconds
        found = json.loads(file.read_text())
        self.racks: dict[str, int] = found["racks"]
        self.attached: dict[str, tuple[str, str]] = found.get("attached", {})

    def keep(self) -> None:
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps({"racks": self.racks, "attached": self.attached}) + "\n")
        os.replace(new, self.file)

    def free(self, rack: str) -> list[str]:
        used = [device for where, device in self.attached.values() if where == rack]
        return [d for n in range(self.racks.get(rack, 0)) if (d := f"acc-{n}") not in used]

    def rack(self, node: str) -> str:
        """Of a node, which may be gone by now; for a claim that waits for no pod, any with room."""
        if not node:
            return max(self.racks, key=lambda rack: len(self.free(rack)))
        labels = self.nodes[node].metadata.labels if node in self.nodes else None
        return (labels or {}).get(LABEL, "")

    def missing(self, claims: Sequence[ResourceClaim]) -> list[str]:
        return [c.metadata.uid for c in claims if c.metadata.uid not in self.attached]

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> Iterable[str]:
        missing = len(self.missing(claims))
        return [node for node in nodes if len(self.free(self.rack(node))) < missing]

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        """One after another: who is ended in between finds the first ones attached."""
        rack, missing, found = self.rack(node), self.missing(claims), []
        free = self.free(rack)
        if len(free) < len(missing):
            raise Refused(f"{len(free)} accelerators left in rack {rack!r}, want {len(missing)}")
        for uid, device in zip(missing, free):
            time.sleep(self.attach_seconds)
            self.attached[uid] = (rack, device)
            self.keep()
        for claim in claims:
            where, device = self.attached[claim.metadata.uid]
            request = (claim.spec.devices.requests or ())[0].name
            found.append(Allocation([(request, where, device)], {LABEL: where}))
        return found

    def deallocate(self, claim: Entry) -> None:
        if self.attached.pop(claim.uid, None):
            self.keep()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help='the fabric, such as {"racks": {"a": 2, "b": 1}}')
    parser.add_argument("--attach-seconds", type=float, default=1.0, help="(%(default)s)")
    parser.add_argument("--kubeconfig", help="default: KUBECONFIG, ~/.kube/config, or the pod's")
    parser.add_argument("--ledger", default="fabric.ledger", help="(%(default)s)")
    parser.add_argument("--metrics-port", type=int, help="/metrics on loopback")
    given = vars(parser.parse_args())
    serve(Fabric(given.pop("file"), given.pop("attach_seconds")), **given)
