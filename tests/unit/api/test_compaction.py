"""Lists as of a revision are forgotten some minutes later, as etcd's compaction makes it."""

from typing import Any, Final

import pytest

from stower.api.store import COMPACTION_NS
from tests.unit.api.custom_cluster import CustomCluster

MAPS: Final = "/api/v1/namespaces/default/configmaps"
COUNT: Final = 6


@pytest.fixture
def cluster() -> CustomCluster:
    made = CustomCluster()
    for n in range(COUNT):
        made.make(MAPS, {"metadata": {"name": f"m{n}"}})
    return made


def names(page: Any) -> list[str]:
    return [item["metadata"]["name"] for item in page["items"]]


def write(cluster: CustomCluster) -> None:
    cluster.make("/api/v1/namespaces/kube-system/configmaps", {"metadata": {"generateName": "x"}})


def test_a_continue_token_is_good_for_five_minutes(cluster: CustomCluster) -> None:
    page = cluster.get(f"{MAPS}?limit=2")
    write(cluster)
    cluster.now_ns += COMPACTION_NS - 1
    following = cluster.get(f"{MAPS}?limit=2&continue={page['metadata']['continue']}")
    assert page["metadata"]["resourceVersion"] == following["metadata"]["resourceVersion"]
    assert ["m2", "m3"] == names(following)


def test_the_error_of_an_old_token_has_a_token_for_the_rest(cluster: CustomCluster) -> None:
    page = cluster.get(f"{MAPS}?limit=2")
    write(cluster)
    for _ in range(2):
        cluster.now_ns += COMPACTION_NS
        cluster.get(MAPS)
    assert 200 == cluster.ask("DELETE", f"{MAPS}/m2")[0]
    code, error = cluster.ask("GET", f"{MAPS}?limit=2&continue={page['metadata']['continue']}")
    assert (410, "Expired") == (code, error["reason"])
    assert "The provided continue parameter is too old" in error["message"]
    rest = cluster.get(f"{MAPS}?limit=2&continue={error['metadata']['continue']}")
    assert ["m3", "m4"] == names(rest)
    assert page["metadata"]["resourceVersion"] != rest["metadata"]["resourceVersion"]
    assert COUNT - 5 == rest["metadata"]["remainingItemCount"]
    last = cluster.get(f"{MAPS}?limit=2&continue={rest['metadata']['continue']}")
    assert rest["metadata"]["resourceVersion"] == last["metadata"]["resourceVersion"]
    assert ["m5"] == names(last)
    assert "continue" not in last["metadata"]


def test_a_token_is_old_after_a_night_without_requests(cluster: CustomCluster) -> None:
    page = cluster.get(f"{MAPS}?limit=2")
    write(cluster)
    cluster.now_ns += 100 * COMPACTION_NS
    assert 410 == cluster.ask("GET", f"{MAPS}?continue={page['metadata']['continue']}")[0]
    fresh = cluster.get(f"{MAPS}?limit=2")
    assert 200 == cluster.ask("GET", f"{MAPS}?continue={fresh['metadata']['continue']}")[0]


def test_exact_lists_are_forgotten_and_others_are_not(cluster: CustomCluster) -> None:
    revision = cluster.get(MAPS)["metadata"]["resourceVersion"]
    write(cluster)
    cluster.now_ns += 2 * COMPACTION_NS
    exact = f"{MAPS}?resourceVersion={revision}&resourceVersionMatch="
    code, error = cluster.ask("GET", f"{exact}Exact")
    assert (410, "The resourceVersion for the provided list is too old.") == (
        code, error["message"]
    )  # fmt: skip
    assert COUNT == len(cluster.get(f"{exact}NotOlderThan")["items"])
    now = cluster.get(MAPS)["metadata"]["resourceVersion"]
    assert 200 == cluster.ask("GET", f"{MAPS}?resourceVersion={now}&resourceVersionMatch=Exact")[0]
