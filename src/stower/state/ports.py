"""Host ports: counts the pods of each row that use a host port, and finds conflicts."""

from typing import Final

HostPort = tuple[str, int, str]

ANY_IP: Final = "0.0.0.0"


class HostPorts:
    """The host ports in use, indexed by port: a lookup visits only rows that use the port."""

    __slots__ = ("_used",)

    def __init__(self) -> None:
        # (protocol, port) -> IP -> row -> number of pods.
        self._used: dict[tuple[str, int], dict[str, dict[int, int]]] = {}

    def add(self, row: int, ports: tuple[HostPort, ...], delta: int) -> None:
        """Counts the ports of a pod that was placed on the row (`delta` 1) or left it (-1)."""
        for protocol, port, ip in ports:
            by_ip = self._used.setdefault((protocol, port), {})
            rows = by_ip.setdefault(ip, {})
            count = rows.get(row, 0) + delta
            if count:
                rows[row] = count
                continue
            del rows[row]
            if not rows:
                del by_ip[ip]
                if not by_ip:
                    del self._used[protocol, port]

    def conflicts(self, wanted: tuple[HostPort, ...]) -> list[int]:
        """Returns the rows on which one of the ports is in use, sorted. 0.0.0.0 conflicts with
        every IP."""
        rows: set[int] = set()
        for protocol, port, ip in wanted:
            by_ip = self._used.get((protocol, port), {})
            for other, users in by_ip.items():
                if ip in (ANY_IP, other) or other == ANY_IP:
                    rows.update(users)
        return sorted(rows)

    def has_conflict(self, row: int, wanted: tuple[HostPort, ...]) -> bool:
        """Returns whether one of the ports is in use on the row."""
        for protocol, port, ip in wanted:
            by_ip = self._used.get((protocol, port))
            if by_ip:
                for other, users in by_ip.items():
                    if (ip in (ANY_IP, other) or other == ANY_IP) and row in users:
                        return True
        return False

    def view(self) -> dict[tuple[str, int], dict[str, dict[int, int]]]:
        """Returns all ports in use, for comparing states."""
        return {
            port: {ip: dict(rows) for ip, rows in by_ip.items()}
            for port, by_ip in self._used.items()
        }
