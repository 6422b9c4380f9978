"""Finds out which kinds CustomResourceDefinitions define, so that controllers can watch them.

A kind is watched from when its definition is established until it is deleted. Where there are no
definitions, nothing is watched and nothing is looked up.
"""

from typing import Final

from stower.controllers.objects import PLURAL_OF, Object, Resource

DEFINITIONS: Final = "customresourcedefinitions"


def resource_of_definition(definition: Object) -> Resource | None:
    """Returns the kind in the version that is stored, or in another one if that is not served.

    None: it is not served, or it is one of the kinds that every server of ours has.
    """
    spec = definition["spec"]
    served = [version for version in spec["versions"] if version.get("served")]
    if not served or not _is_established(definition):
        return None
    served.sort(key=lambda version: not version.get("storage"))
    versions = [f"{spec['group']}/{version['name']}" for version in served]
    names = spec["names"]
    if any((version, names["kind"]) in PLURAL_OF for version in versions):
        return None
    namespaced = spec["scope"] == "Namespaced"
    return Resource(
        names["plural"], names["kind"], versions[0], namespaced, True, True, tuple(versions[1:])
    )


def _is_established(definition: Object) -> bool:
    conditions = (definition.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions)
