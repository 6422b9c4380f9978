"""Loads the registry of a Kubernetes version from the tables in the package."""

import gzip
from collections.abc import Callable, Iterable
from importlib.resources import files
from typing import Final

import msgspec

from stower.api.native_kinds import serve_native
from stower.api.optional_kinds import SERVE
from stower.api.pod_group_kinds import serve_pod_groups
from stower.api.registry import Registry

# The tables of the first, and what is served besides.
VERSIONS: Final[dict[str, Callable[[Registry], None]]] = {
    "1.36": lambda _: None,
    "1.37": serve_pod_groups,
}


def load_registry(version: str = "1.36", more: Iterable[str] = (), native: bool = True) -> Registry:
    """What a Kubernetes API server of this version serves, and the kinds of stower.dev. Of 1.37,
    this is what is said of groups of pods; all else is as in 1.36.

    `more`: keys of api.optional_kinds.SERVE. `native`: whether to serve stower.dev.
    """
    packed = (files("stower.api") / "tables" / "kubernetes-1.36.json.gz").read_bytes()
    registry = Registry(msgspec.json.decode(gzip.decompress(packed)), version)
    VERSIONS[version](registry)
    if native:
        serve_native(registry)
    for key in more:
        SERVE[key](registry)
    return registry
