"""Tells who makes a request: from a client certificate, the server's token or an account's.

Source: apiserver pkg/authentication/request, Kubernetes 1.36.
"""

import hmac
from dataclasses import dataclass
from typing import Any

from stower.api.errors import ApiError
from stower.api.server import Api
from stower.api.users import ADMIN, AUTHENTICATED, UserInfo


@dataclass(frozen=True)
class Access:
    """The token that the server was started with, and whose it is."""

    token: str
    user: UserInfo = ADMIN


class Authenticator:
    """Finds the user of a request. Knows no request but its header and certificate."""

    def __init__(self, api: Api, access: Access) -> None:
        self._api = api
        self._token = access.token.encode()
        self._user = access.user

    def user_of(self, header: bytes, certificate: Any, now_ns: int) -> UserInfo:
        """Returns the user of an Authorization header or a client's certificate.

        Raises ApiError 401.
        """
        found = _read_certificate(certificate) or self._by_token(header, now_ns)
        if found is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return found

    def _by_token(self, header: bytes, now_ns: int) -> UserInfo | None:
        kind, _, rest = header.strip().partition(b" ")
        token = rest.partition(b" ")[0]
        if kind.lower() != b"bearer" or not token:
            return None
        if hmac.compare_digest(token, self._token):
            return self._user
        # Accounts have roles, or no say: without roles, everybody may do everything.
        return self._api.token_user(token, now_ns) if self._api.rbac is not None else None


def _read_certificate(certificate: Any) -> UserInfo | None:
    """Returns the user whom a client's certificate names."""
    if not certificate:
        return None
    subject = [pair for part in certificate.get("subject", ()) for pair in part]
    names = [value for key, value in subject if key == "commonName"]
    groups = tuple(value for key, value in subject if key == "organizationName")
    return UserInfo(names[0], (*groups, AUTHENTICATED)) if names else None
