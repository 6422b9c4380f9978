"""Licences that are counted: each claim takes a seat, which can be used on any node."""

import argparse
from collections.abc import Iterable, Sequence

from stower.driver import Allocation, Driver, Entry, RefusedError, requested_devices
from stower.live.driver import serve
from stower.model.kinds import Pod, ResourceClaim


class Licences(Driver):
    """As many seats of each product as its ResourceClass says. The ledger is all there is to
    remember."""

    name = "licences.example.com"

    def seats(self, claims: Sequence[ResourceClaim]) -> list[Allocation]:
        """For each claim the seats that it has, or free ones, as long as there are some."""
        used = {(pool, seat) for e in self.taken.values() for _, pool, seat in e.devices}
        found = []
        for claim in claims:
            entry = self.taken.get(claim.metadata.uid)
            given = list(entry.devices) if entry is not None else []
            for want in () if given else requested_devices(claim):
                product = want.class_name
                count = (self.classes[product].parameters or {}).get("seats", 0)
                free = [s for n in range(count) if (product, s := f"seat-{n}") not in used]
                if len(free) < want.count:
                    return found
                used.update((product, seat) for seat in free[: want.count])
                given += [(want.request, product, seat) for seat in free[: want.count]]
            found.append(Allocation(given))
        return found

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> Iterable[str]:
        """All of them or none: a seat can be used anywhere."""
        return nodes if len(self.seats(claims)) < len(claims) else ()

    def allocate(self, claims: Sequence[ResourceClaim], node: str) -> Sequence[Allocation]:
        """Seats for all, or for none."""
        found = self.seats(claims)
        if len(found) < len(claims):
            raise RefusedError("no seat is left")
        return found

    def deallocate(self, claim: Entry) -> None:
        """A seat is free as soon as its entry is gone."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", help="default: KUBECONFIG, ~/.kube/config, or the pod's")
    parser.add_argument("--ledger", default="licences.ledger", help="(%(default)s)")
    parser.add_argument("--metrics-port", type=int, help="/metrics on loopback")
    serve(Licences(), **vars(parser.parse_args()))
