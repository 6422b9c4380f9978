"""Which changes of claims wake a pod that waits for its own."""

from typing import Any

import msgspec
import pytest

from stower.framework.cluster_events import Change, ClusterEvent
from stower.model.kinds import ResourceClaim
from stower.plugins.claim_hints import is_schedulable_after_change
from tests.device_builders import claiming, resource_claim

USERS = {"reservedFor": [{"resource": "pods", "name": "p2", "uid": "u2"}]}


def changed(old: ResourceClaim | None, new: ResourceClaim) -> bool:
    """Whether pod p1, which uses the claim c1 of its namespace, is woken."""
    change = Change.RESOURCE_CLAIM_UPDATED if old is not None else Change.RESOURCE_CLAIM_ADDED
    return is_schedulable_after_change(
        claiming("p1", "c1"), ClusterEvent(change, old_object=old, object=new)
    )


@pytest.mark.parametrize(
    ("fields", "is_woken"),
    [
        ({"status": USERS}, True),
        ({"meta": {"labels": {"new": "label"}}}, False),
        ({"meta": {"labels": {"new": "label"}}, "status": USERS}, True),
    ],
)
def test_a_claim_wakes_its_pods_when_its_status_changes(fields: Any, is_woken: bool) -> None:
    assert is_woken == changed(resource_claim("c1"), resource_claim("c1", **fields))


@pytest.mark.parametrize(
    ("name", "namespace", "is_woken"),
    [("c1", "default", True), ("c1", "other", False), ("c2", "default", False)],
)
def test_a_claim_wakes_the_pods_that_use_it(name: str, namespace: str, is_woken: bool) -> None:
    """A claim of that name in another namespace is another claim."""
    new = resource_claim(name, meta={"namespace": namespace})
    assert is_woken == changed(None, new)
    held = msgspec.structs.replace(new, status=resource_claim(status=USERS).status)
    assert is_woken == changed(new, held)
