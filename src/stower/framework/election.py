"""Leader election by a Lease, pure: what was read and the time go in, what to write comes out.

Source: client-go tools/leaderelection. Clocks of machines are never compared: a lease has run out
when its holder has not renewed it for its duration by our own clock. Raises and sends nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from stower.framework.args import invalid
from stower.model.errors import InvalidObject
from stower.model.times import SECOND_NS, duration_ns, micro_time_text

Object = dict[str, Any]
JITTER_FACTOR: Final = 1.2


@dataclass(frozen=True)
class LeaderElectionConfig:
    """How leadership is held. Defaults are kube-scheduler's."""

    name: str = "kube-scheduler"
    namespace: str = "kube-system"
    lease_ns: int = 15 * SECOND_NS
    renew_deadline_ns: int = 10 * SECOND_NS
    retry_ns: int = 2 * SECOND_NS

    def check(self) -> None:
        """Raises InvalidObject. Source: leaderelection.NewLeaderElector."""
        if self.lease_ns <= self.renew_deadline_ns:
            text = "LeaseDuration must be greater than RenewDeadline"
            raise invalid("leaderElection.leaseDuration", _seconds(self.lease_ns), text)
        if self.renew_deadline_ns <= self.retry_ns * JITTER_FACTOR:
            raise InvalidObject("leaderElection.renewDeadline", _seconds(self.renew_deadline_ns),
                                f"more than {JITTER_FACTOR} times retryPeriod")  # fmt: skip


def read_leader_election(document: Mapping[str, Any] | None) -> LeaderElectionConfig | None:
    """The `leaderElection` of a KubeSchedulerConfiguration; None where it is switched off.

    Raises InvalidObject.
    """
    given = dict(document or {})
    elect = given.pop("leaderElect", True)
    if not isinstance(elect, bool):
        raise InvalidObject("leaderElection.leaderElect", elect, "true or false")
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
    times = (("leaseDuration", "lease_ns"), ("renewDeadline", "renew_deadline_ns"),
             ("retryPeriod", "retry_ns"))  # fmt: skip
    for key, field in times:
        value = given.pop(key, "0s")
        lasts_ns = duration_ns(value) if isinstance(value, str) else None
        if lasts_ns is None:
            raise InvalidObject(f"leaderElection.{key}", value, "a duration such as 15s")
        if lasts_ns:
            found[field] = lasts_ns
    for key in given:
        raise InvalidObject("leaderElection", key, "a known field")
    terms = LeaderElectionConfig(**found)
    terms.check()
    return terms if elect else None


def _seconds(ns: int) -> str:
    return f"{ns / SECOND_NS:g}s"


def _spec_of(lease: Mapping[str, Any] | None) -> Mapping[str, Any]:
    spec = (lease or {}).get("spec")
    return spec if isinstance(spec, Mapping) else {}


def _count(spec: Mapping[str, Any], name: str) -> int:
    """A number of a Lease; 0 where it says something that no Lease can."""
    value = spec.get(name)
    return value if isinstance(value, int) and 0 <= value < 1 << 31 else 0


class LeaderElection:
    """One candidate."""

    def __init__(self, identity: str, config: LeaderElectionConfig) -> None:
        self.identity = identity
        self.config = config
        self.is_leader = False
        self._observed_record: tuple[Any, ...] | None = None
        self._observed_at_ns = 0
        self._renewed_at_ns = 0
        self.lease_expires_at_ns = 0  # when another's Lease does, if it is not renewed

    def try_acquire_or_renew(
        self, lease: Mapping[str, Any] | None, now_ns: int, wall_ns: int
    ) -> Object | None:
        """The Lease to write now, None where another holds it. `lease` is as it was read.

        now_ns: a clock that only goes forward; wall_ns: what the Lease says.
        """
        spec = _spec_of(lease)
        holder = str(spec.get("holderIdentity") or "")
        seen = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if seen != self._observed_record:
            self._observed_record, self._observed_at_ns = seen, now_ns
        # The holder's own duration counts, as it may be configured otherwise than we are.
        lasts_ns = _count(spec, "leaseDurationSeconds") * SECOND_NS or self.config.lease_ns
        self.lease_expires_at_ns = self._observed_at_ns + lasts_ns if holder != self.identity else 0
        if holder and holder != self.identity and now_ns < self.lease_expires_at_ns:
            return None
        return self._lease(lease, spec, holder, wall_ns)

    def _lease(
        self, lease: Mapping[str, Any] | None, spec: Mapping[str, Any], holder: str, wall_ns: int
    ) -> Object:
        now = micro_time_text(wall_ns)
        kept = holder == self.identity
        transitions = _count(spec, "leaseTransitions")
        meta = {"name": self.config.name, "namespace": self.config.namespace}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": (lease or {}).get("metadata") or meta,
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": max(1, self.config.lease_ns // SECOND_NS),
                "acquireTime": spec.get("acquireTime") or now if kept else now,
                "renewTime": now,
                "leaseTransitions": transitions + (lease is not None and not kept),
            },
        }

    def confirm_renewal(self, requested_at_ns: int) -> None:
        """The server took it; it was asked then."""
        self.is_leader = True
        self._renewed_at_ns = requested_at_ns

    def check_leadership(self, now_ns: int, is_held_by_other: bool = False) -> bool:
        """Whether we lead still: not after another took over, or too long without a renewal."""
        if self.is_leader and (
            is_held_by_other or now_ns >= self._renewed_at_ns + self.config.renew_deadline_ns
        ):
            self.is_leader = False
        return self.is_leader

    def remaining_ns(self, now_ns: int) -> int:
        """How long we lead without another renewal."""
        return max(0, self._renewed_at_ns + self.config.renew_deadline_ns - now_ns)

    def release_lease(self, lease: Mapping[str, Any], wall_ns: int) -> Object | None:
        """The Lease given up, so that another need not wait; None where it is not ours."""
        spec = _spec_of(lease)
        if spec.get("holderIdentity") != self.identity:
            return None
        now = micro_time_text(wall_ns)
        given_up = {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": _count(spec, "leaseTransitions"),
        }
        return {**lease, "spec": given_up}
