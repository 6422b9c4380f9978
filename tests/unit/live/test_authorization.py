"""Authorization of requests to the scheduler's own endpoints, and how long an answer holds."""

import asyncio
import json
from typing import Any

import pytest

from stower.live import authorization as module
from stower.live.access import AccessError
from stower.live.authorization import (
    CACHE_TTL_SECONDS,
    AuthorizationError,
    DelegatingAuthorizer,
    StaticTokenAuthorizer,
    parse_bearer_token,
)
from stower.live.client import Response

USER = {"username": "jane", "uid": "7", "groups": ["ops"], "extra": {"a": ["b"]}}
KNOWN = {"status": {"authenticated": True, "user": USER}}
ALLOWED = {"status": {"allowed": True}}


class Reviews:
    """An API server that answers reviews by path; `bodies` are those that it was sent."""

    def __init__(self, token: Any = KNOWN, access: Any = ALLOWED, status: int = 201) -> None:
        self.token, self.access, self.status = token, access, status
        self.bodies: list[dict[str, Any]] = []

    async def request(self, method: str, path: str, body: bytes) -> Response:
        self.bodies.append(json.loads(body))
        answer = self.token if path.endswith("/tokenreviews") else self.access
        await asyncio.sleep(0)
        if isinstance(answer, Exception):
            raise answer
        return Response(
            self.status, answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        )


def delegating(reviews: Reviews, now_s: list[float] | None = None) -> DelegatingAuthorizer:
    client: Any = reviews
    clock = now_s if now_s is not None else [0.0]
    return DelegatingAuthorizer(client, lambda: clock[0])


async def status_of(authorizer: Any, token: str = "t", path: str = "/metrics") -> int:
    """200, or the status of the refusal."""
    try:
        await authorizer.check(f"Bearer {token}", path, "get")
    except AuthorizationError as error:
        return error.status
    return 200


@pytest.mark.parametrize(
    "header", ["", "Basic abc", "Bearer", "Bearer  ", "Bearer " + "x" * 20_000]
)
def test_a_header_without_a_bearer_token_is_not_authenticated(header: str) -> None:
    with pytest.raises(
        AuthorizationError, match="want the header Authorization: Bearer TOKEN"
    ) as found:
        parse_bearer_token(header)
    assert 401 == found.value.status


def test_the_scheme_of_a_header_may_be_written_in_any_case() -> None:
    assert "abc" == parse_bearer_token("bEaReR  abc ")


def test_a_static_token_is_compared_as_a_whole() -> None:
    authorizer = StaticTokenAuthorizer("secret")
    statuses = [
        asyncio.run(status_of(authorizer, token)) for token in ("secret", "secre", "sécret")
    ]
    assert [200, 401, 401] == statuses


def test_a_user_is_authenticated_and_then_authorized_for_the_path() -> None:
    reviews = Reviews()
    assert 200 == asyncio.run(status_of(delegating(reviews)))
    token, access = reviews.bodies
    assert ("authentication.k8s.io/v1", "TokenReview") == (token["apiVersion"], token["kind"])
    assert {"token": "t"} == token["spec"]
    assert ("authorization.k8s.io/v1", "SubjectAccessReview") == (
        access["apiVersion"],
        access["kind"],
    )
    assert {
        "user": "jane", "uid": "7", "groups": ["ops"], "extra": {"a": ["b"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    } == access["spec"]  # fmt: skip


@pytest.mark.parametrize(
    ("token", "access", "status", "why"),
    [
        (
            {"status": {"authenticated": False}},
            ALLOWED,
            401,
            "the API server does not accept the bearer token",
        ),
        (
            {"status": {"authenticated": True}},
            ALLOWED,
            401,
            "the API server does not accept the bearer token",
        ),
        (KNOWN, {"status": {"allowed": False}}, 403, 'user "jane" cannot get path "/metrics"'),
        (KNOWN, {"status": {"allowed": "yes"}}, 403, 'user "jane" cannot get path "/metrics"'),
        ({"metadata": {}}, ALLOWED, 503, "TokenReview: 'status'"),
        (KNOWN, b"no JSON", 503, "SubjectAccessReview: "),
        (AccessError("no token"), ALLOWED, 503, "TokenReview: no token"),
    ],
)
def test_a_refusal_has_a_status_and_a_reason(
    token: Any, access: Any, status: int, why: str
) -> None:
    with pytest.raises(AuthorizationError, match=f"^{why}") as found:
        asyncio.run(delegating(Reviews(token, access)).check("Bearer t", "/metrics", "get"))
    assert status == found.value.status


def test_a_review_that_the_server_refuses_is_no_answer() -> None:
    reviews = Reviews({"message": "not you"}, status=403)
    with pytest.raises(AuthorizationError, match="TokenReview: not you"):
        asyncio.run(delegating(reviews).check("Bearer t", "/metrics", "get"))


def test_an_answer_is_kept_for_its_lifetime() -> None:
    """A refusal too."""

    async def story(access: Any) -> list[tuple[int, int]]:
        now_s, reviews = [0.0], Reviews(access=access)
        authorizer = delegating(reviews, now_s)
        found = []
        for now_s[0] in (0.0, CACHE_TTL_SECONDS - 0.1, CACHE_TTL_SECONDS):
            found.append((await status_of(authorizer), len(reviews.bodies)))
        return found

    assert [(200, 2), (200, 2), (200, 4)] == asyncio.run(story(ALLOWED))
    assert [(403, 2), (403, 2), (403, 4)] == asyncio.run(story({"status": {}}))


def test_an_answer_holds_for_its_token_and_path_alone() -> None:
    async def story() -> int:
        reviews = Reviews()
        authorizer = delegating(reviews)
        for token, path in (("a", "/x"), ("b", "/x"), ("a", "/y"), ("a", "/x")):
            assert 200 == await status_of(authorizer, token, path)
        return len(reviews.bodies)

    assert 6 == asyncio.run(story())


def test_a_failed_review_is_not_kept() -> None:
    async def story() -> tuple[int, int]:
        reviews = Reviews(AccessError("no token"))
        authorizer = delegating(reviews)
        first = await status_of(authorizer)
        reviews.token = KNOWN
        return first, await status_of(authorizer)

    assert (503, 200) == asyncio.run(story())


def test_requests_of_one_user_share_a_review() -> None:
    async def story() -> tuple[list[int], int]:
        reviews = Reviews()
        authorizer = delegating(reviews)
        statuses = await asyncio.gather(*(status_of(authorizer) for _ in range(30)))
        return statuses, len(reviews.bodies)

    assert ([200] * 30, 2) == asyncio.run(story())


def test_a_request_that_is_cancelled_does_not_end_the_review_for_others() -> None:
    async def story() -> int:
        authorizer = delegating(Reviews())
        impatient = asyncio.create_task(status_of(authorizer))
        patient = asyncio.create_task(status_of(authorizer))
        await asyncio.sleep(0)
        impatient.cancel()
        return await patient

    assert 200 == asyncio.run(story())


def test_the_oldest_answers_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_SIZE_MAX", 2)

    async def story() -> list[int]:
        reviews = Reviews()
        authorizer = delegating(reviews)
        counts = []
        for token in ("a", "b", "c", "c", "b", "a"):
            await status_of(authorizer, token)
            counts.append(len(reviews.bodies))
        return counts

    assert [2, 4, 6, 6, 6, 8] == asyncio.run(story())


def test_a_token_that_is_not_ascii_is_nobodys() -> None:
    """Its bytes are not UTF-8 either: it was sent to the API server, which raised."""
    reviews = Reviews()
    assert 401 == asyncio.run(status_of(delegating(reviews), "t\udcff"))
    assert [] == reviews.bodies
