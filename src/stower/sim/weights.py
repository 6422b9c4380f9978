"""Sets other plugin weights in a configuration, for what-if runs."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final

from stower.engine.engine import Engine
from stower.framework.configuration import (
    API_VERSION,
    DEFAULT_PLUGINS,
    INT32_MAX,
    KIND,
    read_configuration,
)
from stower.framework.profile import DEFAULT_SCHEDULER_NAME
from stower.model.errors import InvalidObject

WANT: Final = "PLUGIN=WEIGHT, such as ImageLocality=5"


def weighted(
    configuration: Mapping[str, Any] | None, weights: Iterable[str]
) -> dict[str, Any] | None:
    """The configuration with these (PLUGIN=WEIGHT) in all profiles that have the plugin. Raises
    InvalidObject, also where none has it."""
    wanted = dict(_read(text) for text in weights)
    if not wanted:
        return dict(configuration) if configuration is not None else None
    read_configuration(configuration)  # what makes no sense is told of first
    found = copy.deepcopy(dict(configuration)) if configuration is not None else {}
    found.setdefault("apiVersion", API_VERSION)
    found.setdefault("kind", KIND)
    profiles = found.setdefault("profiles", None) or [{"schedulerName": DEFAULT_SCHEDULER_NAME}]
    found["profiles"] = profiles
    for plugin, weight in wanted.items():
        if not [profile for profile in profiles if _set(profile, plugin, weight)]:
            raise InvalidObject("weight", plugin, "a plugin of a profile")
    return found


def check_scores(engine: Engine, weights: Iterable[str]) -> None:
    """Raises InvalidObject for a plugin that scores in no profile, where no weight counts."""
    scoring = {plugin.name for one in engine.profiles.values() for plugin, _ in one.scores}
    for name in (text.partition("=")[0] for text in weights):
        if name not in scoring:
            raise InvalidObject("weight", name, "a plugin that scores in a profile")


def _read(text: str) -> tuple[str, int]:
    plugin, _, weight = text.partition("=")
    if not plugin or not (weight.isascii() and weight.isdecimal()):
        raise InvalidObject("weight", text, WANT)
    if len(weight) > 10 or not 1 <= int(weight) <= INT32_MAX:
        raise InvalidObject(f"weight of {plugin}", weight, f"1 to {INT32_MAX:,}")
    return plugin, int(weight)


def _set(profile: dict[str, Any], plugin: str, weight: int) -> bool:
    """Whether the profile has it, and now with that weight."""
    plugins = profile.setdefault("plugins", None) or {}
    profile["plugins"] = plugins
    named = False
    for point in ("multiPoint", "score"):
        for one in (plugins.get(point) or {}).get("enabled") or ():
            if one.get("name") == plugin:
                one["weight"], named = weight, True
    if named:
        return True
    off = {one.get("name") for one in (plugins.get("multiPoint") or {}).get("disabled") or ()}
    if plugin not in dict(DEFAULT_PLUGINS) or off & {plugin, "*"}:
        return False
    multi_point = plugins.get("multiPoint") or {}
    plugins["multiPoint"] = multi_point
    enabled = [*(multi_point.get("enabled") or ()), {"name": plugin, "weight": weight}]
    multi_point["enabled"] = enabled
    return True
