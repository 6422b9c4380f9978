"""GPUs and NICs: those of one pod must be on the same switch of its node."""

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from stower.driver import Allocation, Driver, Entry, RefusedError, claim_keys, requested_devices
from stower.live.driver import serve
from stower.model.kinds import Pod, ResourceClaim

Switches = dict[str, dict[str, dict[str, int]]]  # by node and switch: how many of which kind


class Pairs(Driver):
    """What is on which switch never changes; what is taken says the ledger."""

    name = "pairs.example.com"

    def __init__(self, switches: Switches) -> None:
        self.switches = switches
        self.beside: dict[str, set[str]] = {}  # by claim: where its pod has devices already

    def place(self, claims: Sequence[ResourceClaim], node: str) -> list[Allocation]:
        """Devices for all claims, all on one switch, beside those that the pod has; or none."""
        used = {(pool, device) for e in self.taken.values() for _, pool, device in e.devices}
        beside = set().union(*(self.beside.get(c.metadata.uid, ()) for c in claims))
        for switch, kinds in self.switches.get(node, {}).items():
            pool, found = f"{node}/{switch}", list[Allocation]()
            free = {(k, n) for k in kinds for n in range(kinds[k])}
            free = {(k, n) for k, n in free if (pool, f"{k}-{n}") not in used}
            for claim in claims if beside <= {pool} else ():
                entry = self.taken.get(claim.metadata.uid)
                given, wants = (
                    list(entry.devices) if entry is not None else [],
                    requested_devices(claim),
                )
                for want in () if given else wants:
                    kind = want.class_name.split(".")[0]
                    chosen = sorted(one for one in free if one[0] == kind)[: want.count]
                    free.difference_update(chosen)
                    given += [(want.request, pool, f"{k}-{n}") for k, n in chosen]
                if len(given) == sum(want.count for want in wants):
                    found.append(Allocation(given, [node]))
            if len(found) == len(claims):
                return found
        return []

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> Iterable[str]:
        own = set(claim_keys(pod))
        entries = [e for e in self.taken.values() if f"{e.namespace}/{e.name}" in own]
        pools = {pool for entry in entries for _, pool, _ in entry.devices}
        self.beside.update((claim.metadata.uid, pools) for claim in claims)
        return [node for node in nodes if not self.place(claims, node)]

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        for name in [node] if node else self.switches:
            if found := self.place(claims, name):
                return found
        raise RefusedError("no switch has all of it")

    def deallocate(self, claim: Entry) -> None:
        self.beside.pop(claim.uid, None)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("switches", type=Path, help="JSON: see pairs.json")
    parser.add_argument("--kubeconfig", help="default: KUBECONFIG, ~/.kube/config, or the pod's")
    parser.add_argument("--ledger", default="pairs.ledger", help="(%(default)s)")
    parser.add_argument("--metrics-port", type=int, help="/metrics on loopback")
    given = vars(parser.parse_args())
    serve(Pairs(json.loads(given.pop("switches").read_text())), **given)
