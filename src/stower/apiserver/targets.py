"""Parses the target of an HTTP request into a decoded path and query."""

import re
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qsl, unquote

from stower.api.errors import bad_request
from stower.api.request_info import Query, RequestInfo, read_request_info

QUERY_FIELDS_MAX: Final = 64
SCHEMES: Final = ("http", "https")
# Of targets whose meaning is kept: those of collections, which clients ask for again and again.
KEPT_BYTES: Final = 256
KEPT_SLASHES: Final = 6


def read_target(method: str, target: bytes) -> tuple[RequestInfo, str, Query]:
    """Returns what a request asks for, and its decoded path and query. Raises ApiError 400."""
    if len(target) <= KEPT_BYTES and target.count(b"/") <= KEPT_SLASHES:
        return _read_short(method, target)
    path, query = parse_target(target)
    return read_request_info(method, path, query), path, query


@lru_cache(maxsize=1024)
def _read_short(method: str, target: bytes) -> tuple[RequestInfo, str, Query]:
    path, query = parse_target(target)
    return read_request_info(method, path, query), path, query


def parse_target(target: bytes) -> tuple[str, Query]:
    """Returns path and query. A target is a path, or a whole URL as to a proxy.

    Raises ApiError 400 for any other target, for one that is not percent-encoded UTF-8, and for a
    path with an encoded slash or null, which would be another path once it is decoded.
    """
    try:
        text = target.decode()
        if not text.startswith("/"):
            scheme, _, rest = text.partition("://")
            if scheme.lower() not in SCHEMES:
                raise bad_request("the target of the request must be a path that begins with /")
            text = "/" + re.sub(r"^[^/?]*/?", "", rest)
        path, _, query = text.partition("?")
        if "%" in path:
            if "%2f" in path.lower() or "%00" in path:
                raise bad_request(
                    f"invalid path {path}: a name must not contain a slash (%2F) or null (%00)"
                )
            path = unquote(path, errors="strict")
        if not query:
            return path or "/", ()
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX,
                          errors="strict")  # fmt: skip
        return path or "/", tuple(pairs)
    except ValueError:
        raise bad_request(
            "the path or query of the request is not percent-encoded UTF-8, or has more than "
            f"{QUERY_FIELDS_MAX} parameters"
        ) from None
