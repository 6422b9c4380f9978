"""Defines UserInfo: who makes a request."""

from typing import Any, Final, NamedTuple

from stower.model.names import label_faults, subdomain_faults

MASTERS: Final = "system:masters"
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
ANONYMOUS: Final = "system:anonymous"
ACCOUNT_PREFIX: Final = "system:serviceaccount:"
ACCOUNT_GROUP: Final = "system:serviceaccounts"
Extra = tuple[tuple[str, tuple[str, ...]], ...]


class UserInfo(NamedTuple):
    """A user as authentication.k8s.io/v1 describes one. `extra` is sorted by key."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Extra = ()

    def to_object(self) -> dict[str, Any]:
        """Returns the UserInfo of reviews and of the audit log."""
        found: dict[str, Any] = {"username": self.name}
        if self.uid:
            found["uid"] = self.uid
        if self.groups:
            found["groups"] = list(self.groups)
        if self.extra:
            found["extra"] = {key: list(values) for key, values in self.extra}
        return found


ADMIN: Final = UserInfo("admin", (MASTERS, AUTHENTICATED), "admin-uid")
SERVER: Final = UserInfo("system:apiserver", (MASTERS, AUTHENTICATED))


def account_groups(namespace: str) -> tuple[str, ...]:
    """Returns the groups that every service account of a namespace belongs to."""
    return (ACCOUNT_GROUP, f"{ACCOUNT_GROUP}:{namespace}")


def split_account(user: str) -> tuple[str, str] | None:
    """Returns namespace and name of the service account that a user name stands for."""
    namespace, colon, name = user.removeprefix(ACCOUNT_PREFIX).partition(":")
    if not user.startswith(ACCOUNT_PREFIX) or not colon:
        return None
    if any(label_faults(namespace)) or any(subdomain_faults(name)):
        return None
    return namespace, name
