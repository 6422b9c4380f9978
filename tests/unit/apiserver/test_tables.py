"""load_registry: the kinds that are served, by version and option."""

import pytest

from stower.api.optional_kinds import SERVE
from stower.api.registry import Registry
from stower.apiserver.tables import VERSIONS, load_registry


def served(registry: Registry) -> set[str]:
    return {f"{r.group}/{r.version}/{r.plural}" for r in registry.resources()}


def test_every_version_serves_the_kinds_of_stower_unless_they_are_off() -> None:
    for version in VERSIONS:
        found = served(load_registry(version))
        assert {"/v1/pods", "stower.dev/v1/podschedulings"} <= found
        assert not {name for name in served(load_registry(version, native=False))
                    if name.startswith("stower.dev/")}  # fmt: skip


def test_pod_groups_are_served_from_version_1_37_on() -> None:
    groups = "scheduling.k8s.io/v1beta1/podgroups"
    assert groups not in served(load_registry("1.36"))
    assert groups in served(load_registry("1.37"))


@pytest.mark.parametrize("key", sorted(SERVE))
def test_an_optional_kind_is_served_if_its_key_is_given(key: str) -> None:
    assert served(load_registry()) < served(load_registry(more=[key]))
