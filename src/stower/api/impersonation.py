"""Carries out a request as another user, where the caller's roles allow to impersonate that user.

Source: apiserver pkg/endpoints/filters/impersonation/impersonation.go, Kubernetes 1.36.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from stower.api.errors import bad_request
from stower.api.rbac import Rbac
from stower.api.request_info import RequestInfo
from stower.api.users import (
    ANONYMOUS,
    AUTHENTICATED,
    UNAUTHENTICATED,
    UserInfo,
    account_groups,
    split_account,
)

PREFIX: Final = "impersonate-"
USER: Final = "impersonate-user"
GROUP: Final = "impersonate-group"
UID: Final = "impersonate-uid"
EXTRA: Final = "impersonate-extra-"
REVIEWS: Final = "authentication.k8s.io"
Headers = Sequence[tuple[str, str]]  # name in lower case, value


def impersonate(rbac: Rbac | None, caller: UserInfo, headers: Headers) -> UserInfo:
    """Returns the user whom the Impersonate headers of a request name.

    Extra keys are percent-decoded. Raises ApiError 400 for headers without a user or of unknown
    names, 403 where the caller may not impersonate the user, one of the groups, the uid or one of
    the extra values.
    """
    name = _first(headers, USER)
    groups = tuple(value for key, value in headers if key == GROUP)
    uid = _first(headers, UID)
    extra: dict[str, tuple[str, ...]] = {}
    for key, value in headers:
        if key.startswith(EXTRA):
            inner = key.removeprefix(EXTRA)
            extra[inner] = (*extra.get(inner, ()), value)
        elif key not in (USER, GROUP, UID):
            raise bad_request(f"unknown header {key}; impersonate with {USER}, {GROUP}, {UID} or "
                              f"{EXTRA}KEY")  # fmt: skip
    if not name:
        raise bad_request(f"the request impersonates groups, uid or extra without {USER}")
    if rbac is not None:
        for asked in _needed_rights(name, groups, uid, extra):
            rbac.check(caller, asked)
    account = split_account(name)
    if account is not None and not groups:
        groups = account_groups(account[0])
    return UserInfo(name, _add_implied_group(name, groups), uid, tuple(sorted(extra.items())))


def _first(headers: Headers, name: str) -> str:
    return next((value for key, value in headers if key == name), "")


def _needed_rights(
    name: str, groups: Sequence[str], uid: str, extra: dict[str, tuple[str, ...]]
) -> Iterator[RequestInfo]:
    """Yields what the caller must be allowed to do."""
    account = split_account(name)
    if account is not None:
        yield RequestInfo("impersonate", "", "v1", "serviceaccounts", "", *account)
    else:
        yield RequestInfo("impersonate", "", "v1", "users", name=name)
    for group in groups:
        yield RequestInfo("impersonate", "", "v1", "groups", name=group)
    for key, values in extra.items():
        for value in values:
            yield RequestInfo("impersonate", REVIEWS, "v1", "userextras", key, name=value)
    if uid:
        yield RequestInfo("impersonate", REVIEWS, "v1", "uids", name=uid)


def _add_implied_group(name: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    if name == ANONYMOUS:
        return groups if UNAUTHENTICATED in groups else (*groups, UNAUTHENTICATED)
    if AUTHENTICATED in groups or UNAUTHENTICATED in groups:
        return groups
    return (*groups, AUTHENTICATED)
