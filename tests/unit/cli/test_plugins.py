"""Plugins of other packages, found by entry points and loaded if a configuration names them."""

from collections.abc import Callable
from typing import Any

import pytest

from stower.cli import plugins
from stower.cli.plugins import plugins_of
from stower.framework.plugin import Plugin
from stower.model.errors import InvalidObject


class PreferQuiet(Plugin):
    """A plugin of another package."""

    name = "PreferQuiet"


class Entry:
    """An entry point."""

    def __init__(self, name: str, load: Callable[[], Any]) -> None:
        self.name = name
        self.value = f"package:{name}"
        self.load = load


def document(*names: str) -> dict[str, Any]:
    enabled = [{"name": name} for name in names]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"multiPoint": {"enabled": enabled}}}],
    }


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    """What packages offer."""
    found = [Entry("PreferQuiet", lambda: PreferQuiet)]
    monkeypatch.setattr(plugins, "entry_points", lambda group: found)
    return found


def test_a_plugin_is_loaded_if_a_profile_names_it(installed: list[Entry]) -> None:
    def fail() -> None:
        raise AssertionError("nobody named it")

    installed.append(Entry("Other", fail))
    assert (PreferQuiet,) == plugins_of(document("NodeName", "PreferQuiet", "NotInstalled"))
    assert () == plugins_of(document("NodeName"))
    assert () == plugins_of(None)


def broken() -> None:
    raise ImportError("no module named x")


@pytest.mark.parametrize(
    ("name", "load", "said"),
    [
        ("Broken", broken, r"a module that can be loaded \(ImportError: no module named x\)"),
        ("Number", lambda: 3, "a class derived from stower.framework.plugin.Plugin"),
        ("Loud", lambda: PreferQuiet, 'name: got "PreferQuiet", want "Loud"'),
    ],
)
def test_an_entry_point_that_offers_no_such_plugin_is_named(
    installed: list[Entry], name: str, load: Callable[[], Any], said: str
) -> None:
    installed.append(Entry(name, load))
    with pytest.raises(InvalidObject, match=said) as caught:
        plugins_of(document(name))
    assert f"entry point stower.plugins: {name} = package:{name}" in str(caught.value)
