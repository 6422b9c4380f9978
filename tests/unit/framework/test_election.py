"""Two candidates, one Lease, and clocks that are given."""

from typing import Any

import pytest

from stower.framework.election import LeaderElection, LeaderElectionConfig, read_leader_election
from stower.model.errors import InvalidObject

S = 1_000_000_000
TERMS = LeaderElectionConfig()


def lease(spec: dict[str, Any], version: str = "1") -> dict[str, Any]:
    return {"metadata": {"name": TERMS.name, "resourceVersion": version}, "spec": spec}


def held_by(name: str, renewed: str = "t1", lasts: int = 15) -> dict[str, Any]:
    return lease({"holderIdentity": name, "renewTime": renewed, "leaseDurationSeconds": lasts,
                  "leaseTransitions": 3, "acquireTime": "t0"})  # fmt: skip


def test_a_missing_lease_is_made() -> None:
    wanted = LeaderElection("a", TERMS).try_acquire_or_renew(None, 0, 1_000 * S)
    assert wanted is not None
    assert {"name": "kube-scheduler", "namespace": "kube-system"} == wanted["metadata"]
    assert {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "acquireTime": "1970-01-01T00:16:40.000000Z",
        "renewTime": "1970-01-01T00:16:40.000000Z",
        "leaseTransitions": 0,
    } == wanted["spec"]


def test_another_is_waited_for_until_its_lease_ran_out_by_our_clock() -> None:
    election = LeaderElection("b", TERMS)
    assert election.try_acquire_or_renew(held_by("a"), 0, 0) is None
    assert election.try_acquire_or_renew(held_by("a"), 15 * S - 1, 0) is None
    assert election.try_acquire_or_renew(held_by("a", "t2"), 15 * S - 1, 0) is None, (
        "it was renewed"
    )
    assert election.try_acquire_or_renew(held_by("a", "t2"), 30 * S - 2, 0) is None
    wanted = election.try_acquire_or_renew(held_by("a", "t2"), 30 * S - 1, 0)
    assert wanted is not None
    assert ("b", 4) == (wanted["spec"]["holderIdentity"], wanted["spec"]["leaseTransitions"])
    assert "1" == wanted["metadata"]["resourceVersion"], "it relies on what was read"


def test_the_holders_own_duration_counts() -> None:
    election = LeaderElection("b", TERMS)
    assert election.try_acquire_or_renew(held_by("a", lasts=60), 0, 0) is None
    assert election.try_acquire_or_renew(held_by("a", lasts=60), 59 * S, 0) is None
    assert election.try_acquire_or_renew(held_by("a", lasts=60), 60 * S, 0) is not None


def test_a_lease_that_was_given_up_is_taken_at_once() -> None:
    first, second = LeaderElection("a", TERMS), LeaderElection("b", TERMS)
    given_up = first.release_lease(held_by("a"), 0)
    assert given_up is not None
    wanted = second.try_acquire_or_renew(given_up, 0, 0)
    assert wanted is not None
    assert "b" == wanted["spec"]["holderIdentity"]
    assert second.release_lease(held_by("a"), 0) is None, "it is not ours to give"


def test_renewing_keeps_when_it_was_acquired() -> None:
    wanted = LeaderElection("a", TERMS).try_acquire_or_renew(held_by("a"), 0, S)
    assert wanted is not None
    assert ("t0", 3) == (wanted["spec"]["acquireTime"], wanted["spec"]["leaseTransitions"])


def test_who_cannot_renew_leads_no_longer_before_another_may() -> None:
    election = LeaderElection("a", TERMS)
    assert not election.check_leadership(0)
    election.confirm_renewal(requested_at_ns=5 * S)
    assert election.check_leadership(15 * S - 1)
    assert not election.check_leadership(15 * S)
    assert 5 * S + TERMS.lease_ns > 15 * S
    election.confirm_renewal(requested_at_ns=20 * S)
    assert not election.check_leadership(21 * S, is_held_by_other=True)


MS = 1_000_000
DELAYS = range(0, 10_000, 250)


@pytest.mark.parametrize("read_ms", DELAYS)
def test_leadership_that_is_won_is_kept_whatever_winning_took(read_ms: int) -> None:
    """Over all delays of the read, the write and the renewal that follows: where the renewal is
    answered before the renew deadline of the write has passed, the candidate never stops leading;
    and it never leads for longer than others wait."""
    kept = 0
    for write_ms in DELAYS:
        for renewal_ms in (10, 500, 3_000):
            election = LeaderElection("a", TERMS)
            election.begin_attempt(0)
            written_ns = read_ms * MS
            assert election.try_acquire_or_renew(None, written_ns, 0) is not None
            now_ns = written_ns + write_ms * MS
            election.confirm_renewal(written_ns)
            assert election.check_leadership(now_ns)
            if read_ms + write_ms >= 2_000:
                assert election.next_attempt_ns <= now_ns, "at once"
            starts_ns = max(now_ns, election.next_attempt_ns)
            answered_ns = starts_ns + renewal_ms * MS
            is_in_time = answered_ns < written_ns + TERMS.renew_deadline_ns
            assert is_in_time == election.check_leadership(answered_ns)
            assert is_in_time == (election.remaining_ns(starts_ns) > renewal_ms * MS)
            assert not election.check_leadership(written_ns + TERMS.lease_ns)
            kept += is_in_time
    assert kept > len(DELAYS)


def test_attempts_begin_a_retry_period_apart() -> None:
    election = LeaderElection("a", TERMS)
    election.begin_attempt(5 * S)
    election.confirm_renewal(5 * S)
    assert 7 * S == election.next_attempt_ns
    election.begin_attempt(7 * S)  # and is refused
    assert 9 * S == election.next_attempt_ns


def test_terms_of_a_configuration() -> None:
    assert TERMS == read_leader_election(None)
    assert read_leader_election({"leaderElect": False}) is None
    given = {"leaseDuration": "1m30s", "renewDeadline": "60s", "retryPeriod": "500ms",
             "resourceName": "x", "resourceNamespace": "y"}  # fmt: skip
    assert LeaderElectionConfig("x", "y", 90 * S, 60 * S, S // 2) == read_leader_election(given)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"leaseDuration": "15"}, "leaseDuration"),
        ({"leaseDuration": 15}, "leaseDuration"),
        ({"leaseDuration": "10s"}, "leaseDuration"),
        ({"retryPeriod": "9s"}, "renewDeadline"),
        ({"leaderElect": "yes"}, "leaderElect"),
        ({"resourceLock": "endpoints"}, "resourceLock"),
        ({"resourceName": 3}, "resourceName"),
        ({"leesDuration": "15s"}, "leesDuration"),
    ],
)
def test_terms_that_cannot_be(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidObject, match=field):
        read_leader_election(given)
