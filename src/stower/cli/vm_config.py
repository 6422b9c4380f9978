"""Adds neon's configuration file to profiles that enable AutoscaleEnforcer without arguments."""

from pathlib import Path
from typing import Any

import msgspec

from stower.cli.configuration_files import InputError
from stower.plugins.autoscale_enforcer import AutoscaleEnforcer
from stower.vms.config import DEFAULT_PATH, BadConfig, read_config

Document = dict[str, Any]
ENFORCER = AutoscaleEnforcer.name


def with_vm_config(document: Document | None, path: Path | None) -> Document | None:
    """The configuration, in which profiles that schedule VMs and do not say how have what neon's
    file says: that one, or where None is given, the one that neon's manifests mount, if it is
    there. Raises InputError."""
    wanting = [profile for profile in _profiles(document) if _needs_arguments(profile)]
    if not wanting:
        if path is not None:
            raise InputError(f"--vm-config {path}: no profile enables {ENFORCER}")
        return document
    source = path or Path(DEFAULT_PATH)
    if path is None and not source.exists():
        return document
    try:
        config = read_config(source.read_bytes(), str(source))
    except OSError as error:
        raise InputError(f"--vm-config {source}: {error.strerror}") from None
    except BadConfig as error:
        raise InputError(f"--vm-config {source}: {error}") from None
    args = msgspec.to_builtins(config)

    def configure(profile: Any) -> Any:
        if not any(profile is one for one in wanting):
            return profile
        own = [*(profile.get("pluginConfig") or ()), {"name": ENFORCER, "args": args}]
        return {**profile, "pluginConfig": own}

    return {**(document or {}), "profiles": [configure(one) for one in _profiles(document)]}


def _profiles(document: Document | None) -> list[Any]:
    found = (document or {}).get("profiles")
    return found if isinstance(found, list) else []


def _needs_arguments(profile: Any) -> bool:
    """Whether it enables the plugin, and has no arguments for it."""
    if not isinstance(profile, dict):
        return False
    sets, own = profile.get("plugins"), profile.get("pluginConfig")
    points = sets.values() if isinstance(sets, dict) else ()
    enabled = (p.get("enabled") for p in points if isinstance(p, dict))
    names = [e.get("name") for es in enabled if isinstance(es, list) for e in es
             if isinstance(e, dict)]  # fmt: skip
    configured = [one.get("name") for one in own or () if isinstance(one, dict)]
    return ENFORCER in names and ENFORCER not in configured
