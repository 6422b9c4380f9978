"""The seed's thought experiment, event by event: ten slots a node, five placeholders."""

import pytest

from stower.framework.writes import DeletePod
from stower.model.kinds import Node
from tests.warm.rig import PLACEHOLDER, TEMPLATE, Hub


@pytest.mark.behaviour("S1.24", "S1.3", "S1.5", "S1.6", "S1.9")
def test_events_1_to_7() -> None:
    hub = Hub(placeholders={"selector": None, "template": TEMPLATE, "replicas": 5})
    # 1: one node, 7 users, 3 placeholders, and 2 that wait.
    hub.drawn("UUUUUUU+++")
    hub.advance(10)
    assert ("PPPUUUUUUU", 2) == (hub.state(), hub.status["pending"])
    assert "scale-up for 0 users and 2 placeholders" == hub.status["expected"]
    # 3: a new user comes before the second node is there: a placeholder makes way.
    assert "n1" == hub.user("first")
    assert "PPUUUUUUUU" == hub.state()
    # 2 and 4: the second node takes pods, and pulls: placeholders go there.
    hub.node("n2", slots=10, ready=False)
    hub.advance(1)
    assert "PPUUUUUUUU PPP+++++++" == hub.state()
    # 5: the second user does not go where the images are missing, whatever room there is (OO#1).
    assert "n1" == hub.user("second")
    assert "PUUUUUUUUU PPPP++++++" == hub.state()
    # 6: the images are there.
    hub.pulled("n2")
    hub.advance(1)
    # 7: the third goes where the most users are, though four placeholders are elsewhere (OO#2).
    assert "n1" == hub.user("third")
    assert "UUUUUUUUUU PPPPP+++++" == hub.state()
    # And only then to the next.
    assert "n2" == hub.user("fourth")
    assert 3 == sum(isinstance(write, DeletePod) for write in hub.writes)


@pytest.mark.behaviour("S1.4", "S1.23", "S1.29")
def test_the_mental_simulation_with_required_labels() -> None:
    """Events 1 to 4 of it: all placeholders are gone, users wait, and room comes back."""
    hub = Hub(
        placeholders={"selector": None, "template": TEMPLATE, "replicas": 2},
        repositioning={"mode": "Off"},
    )
    hub.drawn("UUU++")
    hub.advance(10)
    for name in ("a", "b", "c"):
        hub.user(name)
    hub.advance(10)
    assert ("UUUUU", 2, 1) == (hub.state(), hub.status["pending"], hub.status["waitingUsers"])
    hub.node("n2", ready=False)  # ready for pods, not for users
    hub.advance(10)
    assert ("UUUUU PP+++", "") == (hub.state(), hub.where("c"))
    hub.gone("u10")  # who waits comes before placeholders
    assert ("UUUUU PP+++", "n1") == (hub.state(), hub.where("c"))
    hub.pulled("n2")
    for name in ("a", "b", "c", "u11", "u12"):
        hub.gone(name)
    hub.advance(20)
    assert ["n1", "n2"] == sorted(hub.server.all(Node))
    assert 2 == len(hub.names(PLACEHOLDER))
