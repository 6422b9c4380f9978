"""Reads files of which each is one document, such as configurations.

`stower run` reads nothing else: this module imports no kinds, so that the program starts quickly.
"""

from typing import Any

import msgspec

from stower.cli.documents import DocumentError, read_documents


class InputError(Exception):
    """What was given cannot be used; the message says where and why."""


def read_yaml_document(path: str) -> dict[str, Any]:
    """The one document of a configuration file, decoded. Raises InputError."""
    try:
        found = list(read_documents([path]))
    except DocumentError as error:
        raise InputError(str(error)) from None
    if len(found) != 1:
        raise InputError(f"{path}: {len(found)} documents, want one")
    decoded: dict[str, Any] = msgspec.json.decode(found[0].data)
    return decoded
