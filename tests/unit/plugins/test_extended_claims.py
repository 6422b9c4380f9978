"""Resources that neither a node nor devices can give."""

import pytest

from tests.builders import make_node, make_pod
from tests.device_builders import device, device_slice
from tests.unit.engine.test_extended_resource_claims import NAME, scored_by

OTHER = "example.com/other"  # no class stands for it


@pytest.mark.parametrize("knows", [True, False])
def test_a_node_without_a_resource_may_know_of_it_all_the_same(knows: bool) -> None:
    """Somebody else counts it, the profile does not: to list it as 0 is enough."""
    node = make_node("n2", **({"example_com__other": "0"} if knows else {}))
    slices = (device_slice(name, device("a")) for name in ("n1", "n2"))
    pod = make_pod("p1", requests={NAME: "1", OTHER: "1"})
    api = scored_by("NodeResourcesFit", {"ignoredResources": [OTHER]}, *slices, node, pod)
    assert ({"p1": "n2"} if knows else {}) == api.bound
    assert knows or api.messages["p1"].startswith("0/2 nodes are available: 2 cannot fit resource.")
