"""Asks an API server whether this account may do something (SelfSubjectAccessReview)."""

from typing import Any, Final, NamedTuple

import msgspec

from stower.live.client import Client

REVIEWS: Final = "/apis/authorization.k8s.io/v1/"
REVIEW: Final = f"{REVIEWS}selfsubjectaccessreviews"
SERVICE_ACCOUNT: Final = "system:serviceaccount:"


class Right(NamedTuple):
    """A verb on a resource, in all namespaces if `namespace` is empty; of one object if it has a
    name."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""


def group_of(api_version: str) -> str:
    """Returns the API group of an apiVersion; "" for the core group."""
    return api_version.rpartition("/")[0]


class _Status(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Status


async def is_permitted(client: Client, right: Right, account: str = "") -> bool | None:
    """Returns whether an account has a right, this one without a name; None if the server does not
    say. Raises AccessError."""
    asked = {key: value for key, value in right._asdict().items() if value}
    spec: dict[str, Any] = {"resourceAttributes": asked}
    kind, path = "SelfSubjectAccessReview", REVIEW
    if account:
        kind, path = "SubjectAccessReview", f"{REVIEWS}subjectaccessreviews"
        spec |= {"user": account, "groups": _groups(account)}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    answer = await client.request("POST", path, msgspec.json.encode(body))
    review = answer.read(_Review)
    return review.status.allowed if review is not None else None


def _groups(account: str) -> list[str]:
    """The groups that a server gives to every account, and to a service account."""
    groups = ["system:authenticated"]
    if account.startswith(SERVICE_ACCOUNT):
        namespace = account.removeprefix(SERVICE_ACCOUNT).partition(":")[0]
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    return groups
