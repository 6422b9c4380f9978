"""Checks whether the version of an API server is supported."""

from typing import Any, Final

import msgspec

from stower.live.access import AccessError
from stower.live.client import Client, Response
from stower.live.shell import ShellError

MINOR_MIN: Final = 26


async def check_version(client: Client) -> None:
    """Gets the server's version. Raises ShellError if there is none, or if it is too old."""
    server = client.access.server
    try:
        answer = await client.get_with_retry("/version")
    except AccessError as error:
        raise ShellError(str(error)) from None
    if answer.status == 0:
        raise ShellError(f"cannot reach {server}: {answer.message}")
    if answer.status != 200:
        raise ShellError(
            f"{server} refuses the request for its version: {answer.status} {answer.message}"
        )
    version = _version(answer)
    if version is None or version < (1, MINOR_MIN):
        text = " ".join(answer.body[:100].decode("utf-8", "replace").split())
        wanted = f"want Kubernetes 1.{MINOR_MIN} or newer"
        raise ShellError(f"{server}: got version {text}, {wanted}")


def _version(answer: Response) -> tuple[int, int] | None:
    """Returns major and minor version; None if the answer has no readable version."""
    try:
        document: Any = msgspec.json.decode(answer.body)
        return int(document["major"]), int(str(document["minor"]).rstrip("+"))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError):
        return None
