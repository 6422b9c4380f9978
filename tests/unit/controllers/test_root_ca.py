"""Every namespace has what a real cluster puts into it."""

from stower.controllers.root_ca import NAME
from tests.unit.controllers.cluster import Cluster

CONFIG_MAPS = "/api/v1/namespaces/{}/configmaps"


def test_each_namespace_has_the_authority_of_the_server() -> None:
    """Made with the namespace, mended when changed, made anew when deleted."""
    cluster = Cluster(scheduler=False, authority="PEM")
    path = f"{CONFIG_MAPS.format('default')}/{NAME}"
    assert {"ca.crt": "PEM"} == cluster.get(path)["data"]
    cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "new"}})
    cluster.settle()
    assert {"ca.crt": "PEM"} == cluster.get(f"{CONFIG_MAPS.format('new')}/{NAME}")["data"]
    changed = {**cluster.get(path), "data": {"ca.crt": "other"}}
    assert 200 == cluster.ask("PUT", path, changed)[0]
    cluster.settle()
    assert {"ca.crt": "PEM"} == cluster.get(path)["data"]
    assert 200 == cluster.ask("DELETE", path)[0]
    cluster.settle()
    assert {"ca.crt": "PEM"} == cluster.get(path)["data"]


def test_a_server_without_authority_has_none_to_publish() -> None:
    cluster = Cluster(scheduler=False)
    assert [] == cluster.get(CONFIG_MAPS.format("default"))["items"]
