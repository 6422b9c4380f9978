"""Encodes stored objects as clients see them: whole, as metadata only, or as rows of a Table.

Must not know requests; api/content_negotiation.py chooses the form.
"""

from typing import Any

import msgspec

from stower.api import conversion
from stower.api.content_negotiation import Format
from stower.api.errors import Object
from stower.api.printers import columns_of, row_of
from stower.api.registry import Resource
from stower.api.requests import encode

_decode = msgspec.json.decode


def object_head(resource: Resource) -> bytes:
    """Returns the first bytes of every object of the resource: kind and apiVersion."""
    return b'{"kind":%b,"apiVersion":%b,' % (encode(resource.kind), encode(resource.api_version))


def encode_object(resource: Resource, raw: bytes) -> bytes:
    """Returns a stored object as a client of the resource's version sees it."""
    converter = conversion.out_of_store(resource)
    if converter is not None:
        raw = encode(converter(_decode(raw)))
    return object_head(resource) + raw[1:]


def encode_item(resource: Resource, raw: bytes) -> bytes:
    """Returns a stored object as an item of a list.

    Items of built-in kinds have no kind and apiVersion; items of custom resources have both.
    """
    if resource.custom is not None:
        return encode_object(resource, raw)
    converter = conversion.out_of_store(resource)
    return raw if converter is None else encode(converter(_decode(raw)))


def partial_metadata(item: Object, form: Format) -> Object:
    """Returns the PartialObjectMetadata of an object."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": form.api_version,
        "metadata": item["metadata"],
    }


def table(
    resource: Resource, items: list[Object], meta: Object, form: Format, now_ns: int, headed: bool
) -> Object:
    """Returns objects as a Table; ages are as of `now_ns`.

    `headed`: whether the Table includes the definitions of its columns.
    """
    rows = []
    converter = conversion.out_of_store(resource)
    for item in items:
        if resource.custom is not None and converter is not None:
            item = converter(item)
        row: Object = {"cells": _cells(resource, item, now_ns)}
        if form.include == "Metadata":
            row["object"] = partial_metadata(item, form)
        elif form.include == "Object":
            converts = resource.custom is None and converter is not None
            shown = converter(item) if converts and converter is not None else item
            row["object"] = {
                "kind": resource.kind,
                "apiVersion": resource.api_version,
                **shown,
            }
        else:
            row["object"] = None
        rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": form.api_version,
        "metadata": meta,
        "columnDefinitions": columns_of(resource) if headed else None,
        "rows": rows,
    }


def _cells(resource: Resource, item: Object, now_ns: int) -> list[Any]:
    """Returns the cells of a row; only the name of an object that lacks what the cells show.

    No rule has validated the objects of some kinds.
    """
    try:
        return row_of(resource, item, now_ns)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return [item["metadata"].get("name", ""), *[None] * (len(columns_of(resource)) - 1)]
