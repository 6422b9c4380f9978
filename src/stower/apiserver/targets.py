"""Parses the target of an HTTP request into a decoded path and query."""

import re
from typing import Final
from urllib.parse import parse_qsl, unquote

from stower.api.errors import bad_request
from stower.api.request_info import Query

QUERY_FIELDS_MAX: Final = 64
SCHEMES: Final = ("http", "https")


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
