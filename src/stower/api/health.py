"""Answers /healthz, /livez and /readyz. Source: apiserver pkg/server/healthz, Kubernetes 1.36.

A server that answers at all is alive and ready: ping is the only check.
"""

from typing import Final

from stower.api.errors import go_quote
from stower.api.requests import Request, Response

TEXT: Final = "text/plain; charset=utf-8"
PATHS: Final = ("/healthz", "/livez", "/readyz")
CHECKS: Final = ("ping",)
CHECK_PATHS: Final = tuple(f"{path}/{check}" for path in PATHS for check in CHECKS)
NOTHING_HERE: Final = Response(404, [b"404 page not found\n"], content_type=TEXT)


def is_health(path: str) -> bool:
    """Whether the path is one of a health check, or below one."""
    return path in PATHS or path.startswith(tuple(f"{root}/" for root in PATHS))


def answer_health(request: Request, path: str) -> Response:
    """The answer to a request for such a path."""
    if path in CHECK_PATHS:
        return _text("ok")
    if path not in PATHS or request.path.endswith("/"):
        return NOTHING_HERE
    if not any(name == "verbose" for name, _ in request.query):
        return _text("ok")
    excluded = set(request.values("exclude"))
    lines = [f"[+]{check}{' excluded:' if check in excluded else ''} ok" for check in CHECKS]
    if unknown := sorted(excluded.difference(CHECKS)):
        listed = ", ".join(map(go_quote, unknown))
        lines.append(f"warn: some health checks cannot be excluded: no matches for {listed}")
    return _text("\n".join([*lines, f"{path[1:]} check passed\n"]))


def _text(text: str) -> Response:
    return Response(200, [text.encode()], content_type=TEXT)
