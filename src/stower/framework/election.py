"""Leader election by a Lease, without I/O: computes the Lease to write from the Lease that was read
and the time.

Never compares the clocks of two machines: a Lease has expired when its holder has not renewed it
for its duration by the local clock. LeaderElection raises and sends nothing.

Source: client-go tools/leaderelection.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from stower.framework.args import invalid
from stower.model.errors import InvalidObject, closest
from stower.model.raw import without_nulls
from stower.model.times import SECOND_NS, duration_ns, micro_time_text

Object = dict[str, Any]
FIELDS: Final = (
    "leaderElect", "leaseDuration", "renewDeadline", "retryPeriod", "resourceLock", "resourceName",
    "resourceNamespace",
)  # fmt: skip
JITTER_FACTOR: Final = 1.2  # leaderelection.JitterFactor


@dataclass(frozen=True)
class LeaderElectionConfig:
    """The Lease's name and the durations of leader election. Defaults are kube-scheduler's."""

    name: str = "kube-scheduler"
    namespace: str = "kube-system"
    lease_ns: int = 15 * SECOND_NS
    renew_deadline_ns: int = 10 * SECOND_NS
    retry_ns: int = 2 * SECOND_NS

    def check(self) -> None:
        """Raises InvalidObject where the durations contradict each other. Source:
        leaderelection.NewLeaderElector."""
        if self.lease_ns <= self.renew_deadline_ns:
            text = "LeaseDuration must be greater than RenewDeadline"
            raise invalid("leaderElection.leaseDuration", _seconds_text(self.lease_ns), text)
        if self.renew_deadline_ns <= self.retry_ns * JITTER_FACTOR:
            raise InvalidObject(
                "leaderElection.renewDeadline",
                _seconds_text(self.renew_deadline_ns),
                f"more than {JITTER_FACTOR} times retryPeriod",
            )


def read_leader_election(document: Mapping[str, Any] | None) -> LeaderElectionConfig | None:
    """Returns the `leaderElection` section of a KubeSchedulerConfiguration; None where leader
    election is disabled.

    Raises InvalidObject.
    """
    given = without_nulls(dict(document or {}))
    is_enabled = given.pop("leaderElect", True)
    if not isinstance(is_enabled, bool):
        raise InvalidObject("leaderElection.leaderElect", is_enabled, "true or false")
    lock = given.pop("resourceLock", "leases")
    if lock not in ("leases", ""):
        text = 'resourceLock value must be "leases"'
        raise invalid("leaderElection.resourceLock", lock, text)
    found: dict[str, Any] = {}
    for key, field in (("resourceName", "name"), ("resourceNamespace", "namespace")):
        value = given.pop(key, "")
        if not isinstance(value, str):
            raise InvalidObject(f"leaderElection.{key}", value, "a name")
        if value:
            found[field] = value
    durations = (
        ("leaseDuration", "lease_ns"),
        ("renewDeadline", "renew_deadline_ns"),
        ("retryPeriod", "retry_ns"),
    )
    for key, field in durations:
        value = given.pop(key, "0s")
        value_ns = duration_ns(value) if isinstance(value, str) else None
        if value_ns is None:
            raise InvalidObject(f"leaderElection.{key}", value, "a duration such as 15s")
        if value_ns:
            found[field] = value_ns
    for key in given:
        close = closest(key, FIELDS)
        want = f"a known field: did you mean {close}?" if close else "a known field"
        raise InvalidObject("leaderElection", key, want)
    config = LeaderElectionConfig(**found)
    config.check()
    return config if is_enabled else None


def _seconds_text(ns: int) -> str:
    return f"{ns / SECOND_NS:g}s"


def _lease_spec(lease: Mapping[str, Any] | None) -> Mapping[str, Any]:
    spec = (lease or {}).get("spec")
    return spec if isinstance(spec, Mapping) else {}


def _lease_number(spec: Mapping[str, Any], name: str) -> int:
    """Returns a number of a Lease; 0 where the value is not valid in a Lease."""
    value = spec.get(name)
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0


class LeaderElection:
    """One candidate for leadership: its identity, the Lease that it has seen last, and whether it
    leads."""

    def __init__(self, identity: str, config: LeaderElectionConfig) -> None:
        self.identity = identity
        self.config = config
        self.is_leader = False
        self._observed_record: tuple[Any, ...] | None = None
        self._observed_at_ns = 0
        self._renewed_at_ns = 0
        self._attempted_at_ns = 0
        # When the Lease of another holder expires unless renewed; 0 where we hold the Lease.
        self.lease_expires_at_ns = 0

    def try_acquire_or_renew(
        self, lease: Mapping[str, Any] | None, now_ns: int, wall_ns: int
    ) -> Object | None:
        """Returns the Lease to write now in order to acquire or renew leadership; None where
        another candidate holds a Lease that has not expired.

        lease: as it was read, None where there is none; now_ns: a monotonic clock; wall_ns: Unix
        time, for the timestamps in the Lease.
        """
        spec = _lease_spec(lease)
        holder = str(spec.get("holderIdentity") or "")
        seen = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if seen != self._observed_record:
            self._observed_record, self._observed_at_ns = seen, now_ns
        # The duration in the Lease counts: its holder may be configured differently.
        lease_ns = _lease_number(spec, "leaseDurationSeconds") * SECOND_NS or self.config.lease_ns
        self.lease_expires_at_ns = self._observed_at_ns + lease_ns if holder != self.identity else 0
        if holder and holder != self.identity and now_ns < self.lease_expires_at_ns:
            return None
        return self._make_lease(lease, spec, holder, wall_ns)

    def _make_lease(
        self, lease: Mapping[str, Any] | None, spec: Mapping[str, Any], holder: str, wall_ns: int
    ) -> Object:
        now = micro_time_text(wall_ns)
        is_renewal = holder == self.identity
        transitions = _lease_number(spec, "leaseTransitions")
        meta = {"name": self.config.name, "namespace": self.config.namespace}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": (lease or {}).get("metadata") or meta,
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": max(1, self.config.lease_ns // SECOND_NS),
                "acquireTime": spec.get("acquireTime") or now if is_renewal else now,
                "renewTime": now,
                "leaseTransitions": transitions + (lease is not None and not is_renewal),
            },
        }

    def begin_attempt(self, now_ns: int) -> None:
        """Records that an attempt to acquire or renew begins."""
        self._attempted_at_ns = now_ns

    @property
    def next_attempt_ns(self) -> int:
        """When the Lease is to be renewed next: a retry period after the last attempt began. That
        is at once where the attempt took longer, as much of the renew deadline has then passed."""
        return self._attempted_at_ns + self.config.retry_ns

    def confirm_renewal(self, requested_at_ns: int) -> None:
        """Records that the server accepted the Lease of a request that was sent at
        `requested_at_ns`: this candidate leads. Others count from when they see the Lease, which is
        later."""
        self.is_leader = True
        self._renewed_at_ns = requested_at_ns

    def check_leadership(self, now_ns: int, is_held_by_other: bool = False) -> bool:
        """Returns whether this candidate still leads. Leadership ends when another candidate holds
        the Lease, or when the renew deadline has passed without a renewal."""
        if self.is_leader and (
            is_held_by_other or now_ns >= self._renewed_at_ns + self.config.renew_deadline_ns
        ):
            self.is_leader = False
        return self.is_leader

    def remaining_ns(self, now_ns: int) -> int:
        """Returns how long leadership lasts without another renewal."""
        return max(0, self._renewed_at_ns + self.config.renew_deadline_ns - now_ns)

    def release_lease(self, lease: Mapping[str, Any], wall_ns: int) -> Object | None:
        """Returns the Lease without a holder, so that another candidate need not wait for it to
        expire; None where this candidate does not hold the Lease."""
        spec = _lease_spec(lease)
        if spec.get("holderIdentity") != self.identity:
            return None
        now = micro_time_text(wall_ns)
        released = {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": _lease_number(spec, "leaseTransitions"),
        }
        return {**lease, "spec": released}
