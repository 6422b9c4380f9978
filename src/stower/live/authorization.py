"""Who may ask a scheduler about itself: whoever shows its token, or whom the API server knows and
lets do so.

Source: kube-scheduler's delegated authentication and authorization (TokenReview,
SubjectAccessReview), with the same times for which answers are kept.
"""

import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec

from stower.live.access import AccessError
from stower.live.client import Client

TOKEN_REVIEWS_PATH: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS_PATH: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
CACHE_TTL_SECONDS: Final = 10.0
CACHE_SIZE_MAX: Final = 1_000
REVIEWS_IN_FLIGHT_MAX: Final = 10  # strangers at once; each costs the API server two requests
TOKEN_LENGTH_MAX: Final = 16_384
SUCCESS_CODES: Final = (200, 201)


class AuthorizationError(Exception):
    """Somebody is not let in. `status`: 401 (who is it?), 403 (not this one) or 503 (nobody
    knows)."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Authorizer(Protocol):
    """Lets in, or not."""

    async def check(self, authorization: str, path: str, verb: str) -> None:
        """`authorization`: the header; `verb`: in lower case. Raises Refused."""


def parse_bearer_token(authorization: str) -> str:
    """The token of a header. Raises Refused."""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip() or len(token) > TOKEN_LENGTH_MAX:
        raise AuthorizationError(401, "want a bearer token")
    return token.strip()


class StaticTokenAuthorizer:
    """Whoever has the token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def check(self, authorization: str, path: str, verb: str) -> None:
        """See Doorkeeper."""
        given = parse_bearer_token(authorization).encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, self._token):
            raise AuthorizationError(401, "the token is another")


class DelegatingAuthorizer:
    """Whom the API server knows by the token, and lets do this on the path."""

    def __init__(self, client: Client, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock_s = clock_s
        self._cache: dict[tuple[bytes, str, str], tuple[float, AuthorizationError | None]] = {}
        self._reviews_in_flight: dict[tuple[bytes, str, str], asyncio.Task[None]] = {}

    async def check(self, authorization: str, path: str, verb: str) -> None:
        """See Doorkeeper."""
        token = parse_bearer_token(authorization)
        key = (hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest(), path, verb)
        until_s, refused = self._cache.get(key, (0.0, None))
        if self._clock_s() < until_s:
            if refused is not None:
                raise refused
            return
        task = self._reviews_in_flight.get(key)
        if task is None and len(self._reviews_in_flight) >= REVIEWS_IN_FLIGHT_MAX:
            raise AuthorizationError(503, "too many ask at once who they are")
        if task is None:  # many pages of one person ask once
            task = self._reviews_in_flight[key] = asyncio.create_task(
                self._check_uncached(key, token, path, verb)
            )
            task.add_done_callback(lambda _: self._reviews_in_flight.pop(key, None))
        await asyncio.shield(task)

    async def _check_uncached(
        self, key: tuple[bytes, str, str], token: str, path: str, verb: str
    ) -> None:
        refused: AuthorizationError | None = None
        try:
            user = await self._authenticate(token)
            await self._authorize(user, path, verb)
        except AuthorizationError as found:
            refused = found
            if found.status == 503:
                raise
        while (
            len(self._cache) >= CACHE_SIZE_MAX
        ):  # the oldest; who is let in is asked again at most
            del self._cache[next(iter(self._cache))]
        self._cache.pop(key, None)
        self._cache[key] = (self._clock_s() + CACHE_TTL_SECONDS, refused)
        if refused is not None:
            raise refused

    async def _authenticate(self, token: str) -> dict[str, Any]:
        status = await self._review(TOKEN_REVIEWS_PATH, "TokenReview", {"token": token})
        user = status.get("user")
        if status.get("authenticated") is not True or not isinstance(user, dict):
            raise AuthorizationError(401, "nobody is known by the token")
        return user

    async def _authorize(self, user: dict[str, Any], path: str, verb: str) -> None:
        spec = {
            "user": user.get("username", ""),
            "uid": user.get("uid", ""),
            "groups": user.get("groups") or [],
            "extra": user.get("extra") or {},
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        status = await self._review(ACCESS_REVIEWS_PATH, "SubjectAccessReview", spec)
        if status.get("allowed") is not True:
            raise AuthorizationError(403, f'{spec["user"]} may not "{verb}" path "{path}"')

    async def _review(self, path: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        version = path.split("/")[2] + "/v1"
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        try:
            answer = await self._client.request("POST", path, body)
            if answer.status in SUCCESS_CODES:
                status = msgspec.json.decode(answer.body)["status"]
                return dict(status)
            why = answer.message or str(answer.status)
        except AccessError as error:
            why = str(error)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
            why = str(error)
        raise AuthorizationError(503, f"{kind}: {why}")
