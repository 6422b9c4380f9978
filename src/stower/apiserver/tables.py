"""The tables that the package carries."""

import gzip
from collections.abc import Iterable
from importlib.resources import files
from typing import Final

import msgspec

from stower.api.native import serve_native
from stower.api.optional import SERVE
from stower.api.registry import Registry

VERSIONS: Final = ("1.36",)


def load_registry(version: str = "1.36", more: Iterable[str] = (), native: bool = True) -> Registry:
    """What a Kubernetes API server of this version serves, and the kinds of stower.dev.

    `more`: keys of api.optional.SERVE. `native`: whether to serve stower.dev.
    """
    packed = (files("stower.api") / "tables" / f"kubernetes-{version}.json.gz").read_bytes()
    registry = Registry(msgspec.json.decode(gzip.decompress(packed)), version)
    if native:
        serve_native(registry)
    for key in more:
        SERVE[key](registry)
    return registry
