"""Other weights of plugins, in whatever way a configuration names them."""

from typing import Any

import pytest

from stower.assembly import build_engine
from stower.model.errors import InvalidObject
from stower.sim.weights import check_scores, weighted

KIND = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def weights(document: dict[str, Any] | None, *wanted: str) -> dict[str, dict[str, int]]:
    """Of each profile that an engine has then."""
    profiles = build_engine(weighted(document, wanted)).profiles
    return {name: {p.name: w for p, w in one.scores} for name, one in profiles.items()}


def test_without_a_configuration_the_default_has_the_weight() -> None:
    usual = weights(None)["default-scheduler"]
    found = weights(None, "ImageLocality=7", "NodeAffinity=3")["default-scheduler"]
    assert usual | {"ImageLocality": 7, "NodeAffinity": 3} == found


@pytest.mark.parametrize(
    "plugins",
    [
        None,
        {"multiPoint": {"enabled": [{"name": "ImageLocality", "weight": 2}]}},
        {"score": {"enabled": [{"name": "ImageLocality", "weight": 2}]}},
        {
            "score": {
                "disabled": [{"name": "ImageLocality"}],
                "enabled": [{"name": "ImageLocality", "weight": 2}],
            }
        },
        {
            "multiPoint": {"disabled": [{"name": "*"}], "enabled": [
                {"name": "PrioritySort"}, {"name": "DefaultBinder"}, {"name": "ImageLocality"},
            ]}
        },
    ],
)  # fmt: skip
def test_however_it_is_named(plugins: Any) -> None:
    document = {**KIND, "profiles": [{"schedulerName": "one", "plugins": plugins}]}
    assert 9 == weights(document, "ImageLocality=9")["one"]["ImageLocality"]
    assert plugins is None or document["profiles"][0]["plugins"] == plugins, "the given one is kept"


def test_a_profile_that_has_switched_it_off_keeps_it_off() -> None:
    off = {"multiPoint": {"disabled": [{"name": "ImageLocality"}]}}
    profiles = [{"schedulerName": "on"}, {"schedulerName": "off", "plugins": off}]
    found = weights({**KIND, "profiles": profiles}, "ImageLocality=9")
    assert 9 == found["on"]["ImageLocality"]
    assert "ImageLocality" not in found["off"]


@pytest.mark.parametrize(
    "text", ["", "=1", "ImageLocality", "ImageLocality=", "ImageLocality=-1", "ImageLocality=0",
             "ImageLocality=1.5", "ImageLocality=99999999999", "Nobody=1",
             "ImageLocality=" + "9" * 5_000],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(InvalidObject):
        weighted(None, [text])


@pytest.mark.parametrize("name", ["NodeName", "PrioritySort", "DefaultBinder", "SchedulingGates"])
def test_a_plugin_that_scores_nothing_has_no_weight(name: str) -> None:
    with pytest.raises(InvalidObject, match="a plugin that scores"):
        check_scores(build_engine(weighted(None, [f"{name}=5"])), [f"{name}=5"])
    off = {"score": {"disabled": [{"name": "NodeResourcesFit"}]}}
    document = {**KIND, "profiles": [{"schedulerName": "one", "plugins": off}]}
    with pytest.raises(InvalidObject, match="a plugin that scores"):
        check_scores(build_engine(document), ["NodeResourcesFit=7"])
    check_scores(build_engine(None), ["NodeResourcesFit=7"])


@pytest.mark.parametrize("profiles", [[None], [{"plugins": {"score": {"enabled": [None]}}}], 5])
def test_a_configuration_that_makes_no_sense_is_told_of(profiles: Any) -> None:
    with pytest.raises(InvalidObject):
        weighted({**KIND, "profiles": profiles}, ["ImageLocality=5"])
