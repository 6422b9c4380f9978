"""Issues and verifies bearer tokens of service accounts.

A token is its claims as base64url JSON, a dot and an HMAC-SHA256 of the claims.
"""

import base64
import hashlib
import hmac

import msgspec

from stower.api.store import Store
from stower.model.times import SECOND_NS

ACCOUNTS = ("", "serviceaccounts")


class TokenIssuer:
    """Signs tokens with one secret. An empty secret makes every token invalid."""

    def __init__(self, secret: str, store: Store) -> None:
        self._secret = secret
        self._store = store

    def issue(self, namespace: str, name: str, uid: str, expiry_s: int) -> str:
        """Returns a token of a service account; `expiry_s` is in seconds since the epoch."""
        claims = {
            "sub": f"system:serviceaccount:{namespace}:{name}",
            "uid": uid,
            "exp": expiry_s,
        }
        head = base64.urlsafe_b64encode(msgspec.json.encode(claims)).rstrip(b"=").decode()
        return f"{head}.{self._signature(head)}"

    def user_of(self, token: str, now_ns: int) -> tuple[str, tuple[str, ...]] | None:
        """Returns name and groups of the token's service account.

        None for a token that this server did not issue, that has expired, or whose service account
        was deleted, even if an account of that name was created since.
        """
        head, _, signature = token.partition(".")
        if not self._secret or not hmac.compare_digest(signature, self._signature(head)):
            return None
        try:
            claims = msgspec.json.decode(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
            name = str(claims["sub"])
            if int(claims["exp"]) * SECOND_NS <= now_ns:
                return None
        except (ValueError, KeyError, TypeError, msgspec.DecodeError):
            return None
        namespace, account = name.split(":")[2:4]
        record = self._store.collection(ACCOUNTS).records.get(f"{namespace}/{account}")
        if record is None or record.uid != claims.get("uid"):
            return None
        accounts = "system:serviceaccounts"
        return name, (accounts, f"{accounts}:{namespace}", "system:authenticated")

    def _signature(self, head: str) -> str:
        return hmac.new(self._secret.encode(), head.encode(), hashlib.sha256).hexdigest()
