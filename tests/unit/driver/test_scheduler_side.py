"""What the scheduler makes of answers and allocations that it finds."""

from stower.framework.writes import PatchObject
from stower.model.kinds import PodScheduling
from tests.negotiation_cluster import DRIVER, Cluster, Counting, nodes


def test_a_claim_with_annotations_is_named_by_those_who_refuse_it() -> None:
    """As each that was made from a template has them."""
    cluster = Cluster(nodes("n1"))
    cluster.add_driver(Counting(DRIVER, {"n1": 0}))
    cluster.start()
    cluster.claim("c", note="anything")
    cluster.pod("p", "c")
    cluster.advance(40)
    assert "" == cluster.node_of("p")
    assert f"no suitable node for default/c of {DRIVER}" in cluster.message("p")


def test_a_new_scheduler_binds_what_was_allocated_in_between() -> None:
    """The node is promised to the pod since before: it is found all the same, and nothing that was
    agreed on is taken back."""
    cluster = Cluster(nodes("n1", "n2"))
    process = cluster.add_driver(Counting(DRIVER, {"n1": 1, "n2": 1}))
    process.stop()
    cluster.start()
    cluster.claim("c")
    cluster.pod("p", "c")
    cluster.settle()
    said = cluster.said("p")
    assert said is not None
    selected = said.spec.selected_node
    cluster.scheduler.stop()
    process.start()
    cluster.settle()
    assert cluster.has("c").status.allocation is not None
    cluster.writes.clear()
    cluster.start()
    cluster.advance(5)
    assert selected == cluster.node_of("p")
    talks = [w for w in cluster.writes if isinstance(w, PatchObject) and w.view is PodScheduling]
    assert [] == talks
