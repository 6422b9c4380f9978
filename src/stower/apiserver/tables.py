"""The tables that the package carries."""

import gzip
from importlib.resources import files
from typing import Final

import msgspec

from stower.api.registry import Registry

VERSIONS: Final = ("1.36",)


def load_registry(version: str = "1.36") -> Registry:
    """What a Kubernetes API server of this version serves."""
    packed = (files("stower.api") / "tables" / f"kubernetes-{version}.json.gz").read_bytes()
    return Registry(msgspec.json.decode(gzip.decompress(packed)), version)
