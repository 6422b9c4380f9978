"""Finds third-party plugins by the entry points of installed packages and loads the enabled ones.

A package offers a plugin under the name by which configurations enable it:

    [project.entry-points."stower.plugins"]
    PreferQuiet = "my_package:PreferQuiet"
"""

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any, Final

from stower.framework.configuration import parse_configuration, plugin_sets
from stower.framework.plugin import Plugin
from stower.model.errors import InvalidObject
from stower.plugins import PLUGINS

GROUP: Final = "stower.plugins"


def plugins_of(document: Mapping[str, Any] | None) -> tuple[type[Plugin], ...]:
    """The plugins of others that a configuration names. Raises InvalidObject.

    Those that are not installed are left to whoever builds the engine to complain about.
    """
    own = {plugin.name for plugin in PLUGINS}
    named: dict[str, None] = {}
    for profile in parse_configuration(document).profiles:
        for plugin_set in plugin_sets(profile.plugins).values():
            named |= {ref.name: None for ref in plugin_set.enabled if ref.name not in own}
    found = {entry.name: entry for entry in entry_points(group=GROUP)} if named else {}
    return tuple(_load(name, found[name]) for name in named if name in found)


def installed_names() -> frozenset[str]:
    """Returns the names of all plugins that installed packages offer, loaded or not."""
    return frozenset(entry.name for entry in entry_points(group=GROUP))


def _load(name: str, entry: Any) -> type[Plugin]:
    where = f"entry point {GROUP}: {name} = {entry.value}"
    try:
        plugin = entry.load()
    except Exception as error:  # whatever its module does
        text = f"a module that can be loaded ({type(error).__name__}: {error})"
        raise InvalidObject(where, entry.value, text) from None
    if not (isinstance(plugin, type) and issubclass(plugin, Plugin)):
        raise InvalidObject(where, plugin, "a class derived from stower.framework.plugin.Plugin")
    if getattr(plugin, "name", None) != name:
        raise InvalidObject(f"{where}: name", getattr(plugin, "name", None), f'"{name}"')
    return plugin
