"""Authorizes requests to the scheduler's own endpoints: by a static token, or by TokenReview and
SubjectAccessReview on the API server.

Source: kube-scheduler's delegated authentication and authorization, with the same lifetime of
cached answers.
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
REVIEWS_IN_FLIGHT_MAX: Final = 10  # each review costs the API server two requests
TOKEN_LENGTH_MAX: Final = 16_384
SUCCESS_CODES: Final = (200, 201)


class AuthorizationError(Exception):
    """A request is refused. `status`: 401 (not authenticated), 403 (not authorized) or 503 (the
    API server gave no answer, or too many reviews are in flight)."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Authorizer(Protocol):
    """Permits or refuses requests."""

    async def check(self, authorization: str, path: str, verb: str) -> None:
        """Returns if the request is permitted; raises AuthorizationError if it is not.

        `authorization`: the value of the header; `verb`: the HTTP method in lower case.
        """


def parse_bearer_token(authorization: str) -> str:
    """Returns the bearer token of an Authorization header. Raises AuthorizationError."""
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip() or len(token) > TOKEN_LENGTH_MAX:
        raise AuthorizationError(401, "want the header Authorization: Bearer TOKEN")
    return token.strip()


class StaticTokenAuthorizer:
    """Permits every request that has a given token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def check(self, authorization: str, path: str, verb: str) -> None:
        """See Authorizer."""
        token = parse_bearer_token(authorization).encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(token, self._token):
            raise AuthorizationError(401, "wrong bearer token")


class DelegatingAuthorizer:
    """Permits requests whose token the API server authenticates (TokenReview) and whose user it
    authorizes for the verb and the path (SubjectAccessReview). Owns a cache of the answers."""

    def __init__(self, client: Client, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock_s = clock_s
        self._cache: dict[tuple[bytes, str, str], tuple[float, AuthorizationError | None]] = {}
        self._reviews_in_flight: dict[tuple[bytes, str, str], asyncio.Task[None]] = {}

    async def check(self, authorization: str, path: str, verb: str) -> None:
        """See Authorizer."""
        token = parse_bearer_token(authorization)
        key = (hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest(), path, verb)
        expires_at_s, denial = self._cache.get(key, (0.0, None))
        if self._clock_s() < expires_at_s:
            if denial is not None:
                raise denial
            return
        task = self._reviews_in_flight.get(key)
        if task is None and len(self._reviews_in_flight) >= REVIEWS_IN_FLIGHT_MAX:
            raise AuthorizationError(
                503, f"{REVIEWS_IN_FLIGHT_MAX} reviews of requests are in flight already"
            )
        if task is None:  # concurrent requests of one user share a review
            task = self._reviews_in_flight[key] = asyncio.create_task(
                self._check_uncached(key, token, path, verb)
            )
            task.add_done_callback(lambda _: self._reviews_in_flight.pop(key, None))
        await asyncio.shield(task)

    async def _check_uncached(
        self, key: tuple[bytes, str, str], token: str, path: str, verb: str
    ) -> None:
        denial: AuthorizationError | None = None
        try:
            user = await self._authenticate(token)
            await self._authorize(user, path, verb)
        except AuthorizationError as error:
            denial = error
            if error.status == 503:
                raise
        # Drops the oldest entries; a user without an entry is only reviewed again.
        while len(self._cache) >= CACHE_SIZE_MAX:
            del self._cache[next(iter(self._cache))]
        self._cache.pop(key, None)
        self._cache[key] = (self._clock_s() + CACHE_TTL_SECONDS, denial)
        if denial is not None:
            raise denial

    async def _authenticate(self, token: str) -> dict[str, Any]:
        if not token.isascii():  # no token is
            raise AuthorizationError(401, "the bearer token has characters beyond ASCII")
        status = await self._review(TOKEN_REVIEWS_PATH, "TokenReview", {"token": token})
        user = status.get("user")
        if status.get("authenticated") is not True or not isinstance(user, dict):
            raise AuthorizationError(401, "the API server does not accept the bearer token")
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
            raise AuthorizationError(403, f'user "{spec["user"]}" cannot {verb} path "{path}"')

    async def _review(self, path: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        version = path.split("/")[2] + "/v1"
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        try:
            answer = await self._client.request("POST", path, body)
            if answer.status in SUCCESS_CODES:
                status = msgspec.json.decode(answer.body)["status"]
                return dict(status)
            reason = answer.message or str(answer.status)
        except AccessError as error:
            reason = str(error)
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, RecursionError) as error:
            reason = str(error)
        raise AuthorizationError(503, f"{kind}: {reason}")
