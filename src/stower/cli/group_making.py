"""Reads --make-groups, and enables the plugin that holds pods until their groups are made."""

from typing import Any

from stower.cli.configuration_files import InputError
from stower.model.gang_kinds import KINDS
from stower.plugins.group_making import GroupMaking

Document = dict[str, Any]
ALL = "all"
NAME = GroupMaking.name


def kinds_of(text: str) -> tuple[str, ...]:
    """Returns the kinds of --make-groups; none where it is not given. Raises InputError."""
    if not text:
        return ()
    kinds = KINDS if text == ALL else tuple(dict.fromkeys(text.split(",")))
    for kind in kinds:
        if kind not in KINDS:
            raise InputError(f"--make-groups: got {kind!r}, want all or some of {','.join(KINDS)}")
    return kinds


def with_group_making(document: Document | None, kinds: tuple[str, ...]) -> Document | None:
    """Returns the configuration, each profile of which holds pods of these kinds."""
    if not kinds:
        return document
    profiles = (document or {}).get("profiles") or [{"schedulerName": "default-scheduler"}]
    if not isinstance(profiles, list) or not all(isinstance(one, dict) for one in profiles):
        return document  # which is refused as it is
    made = [_configured(profile, kinds) for profile in profiles]
    return {**(document or {}), "profiles": made}


def _configured(profile: Document, kinds: tuple[str, ...]) -> Document:
    plugins = profile.get("plugins") or {}
    point = plugins.get("multiPoint") or {} if isinstance(plugins, dict) else {}
    enabled = [*(point.get("enabled") or ()), {"name": NAME}]
    args = {"name": NAME, "args": {"kinds": [*kinds]}}
    own = [one for one in profile.get("pluginConfig") or () if one.get("name") != NAME]
    return {
        **profile,
        "plugins": {**plugins, "multiPoint": {**point, "enabled": enabled}},
        "pluginConfig": [*own, args],
    }
