"""A fabric that attaches accelerators to racks: so many in a rack, for any node of it."""

import argparse
import json
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from stower.driver import Allocation, Driver, Entry, RefusedError, requested_devices
from stower.live.driver import serve
from stower.model.kinds import Pod, ResourceClaim

LABEL = "rack"  # of nodes


class Fabric(Driver):
    """A file stands for the fabric: what each rack has, and what is attached where, for which
    claim."""

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

    def slots(self, claim: ResourceClaim) -> dict[str, str]:
        """One for each accelerator of the claim, and its request."""
        requests = [want.request for want in requested_devices(claim) for _ in range(want.count)]
        return {f"{claim.metadata.uid}/{i}": request for i, request in enumerate(requests)}

    def missing(self, claims: Sequence[ResourceClaim]) -> list[str]:
        return [s for claim in claims for s in self.slots(claim) if s not in self.attached]

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
            raise RefusedError(
                f"{len(free)} accelerators left in rack {rack!r}, want {len(missing)}"
            )
        for slot, device in zip(missing, free):
            time.sleep(self.attach_seconds)
            self.attached[slot] = (rack, device)
            self.keep()
        for claim in claims:
            slots = self.slots(claim)
            where = self.attached[next(iter(slots))][0]
            devices = [(request, *self.attached[slot]) for slot, request in slots.items()]
            found.append(Allocation(devices, {LABEL: where}))
        return found

    def deallocate(self, claim: Entry) -> None:
        for slot in [slot for slot in self.attached if slot.startswith(f"{claim.uid}/")]:
            del self.attached[slot]
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
