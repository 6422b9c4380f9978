"""Issues and verifies bearer tokens of service accounts.

A token is a JSON web token (RFC 7519) with an HMAC-SHA256 signature. Source:
pkg/serviceaccount/claims.go, Kubernetes 1.36.
"""

import base64
import hashlib
import hmac
from typing import Any, Final, NamedTuple

import msgspec

from stower.api.store import Record, Store
from stower.api.users import ACCOUNT_PREFIX, AUTHENTICATED, UserInfo, account_groups
from stower.model.times import SECOND_NS, parse_time

AUDIENCE: Final = "https://kubernetes.default.svc.cluster.local"  # this server's
LEEWAY_SECONDS: Final = 60  # after its deletion time, an object still counts as there
CLAIM: Final = "kubernetes.io"
EXTRA: Final = "authentication.kubernetes.io/"
# What a token can be bound to besides its account: claim, collection, whether it is namespaced.
BOUND_KINDS: Final = {
    "Pod": ("pod", ("", "pods"), True),
    "Secret": ("secret", ("", "secrets"), True),
    "Node": ("node", ("", "nodes"), False),
}
ACCOUNTS: Final = ("", "serviceaccounts")


class BadTokenError(Exception):
    """A token is not valid. Its text is for the client."""


class Owner(NamedTuple):
    """The owner of a token, and those of the wanted audiences that the token is for."""

    user: UserInfo
    audiences: tuple[str, ...]


def _encode(value: bytes) -> bytes:
    return base64.urlsafe_b64encode(value).rstrip(b"=")


_HEADER: Final = _encode(msgspec.json.encode({"alg": "HS256", "typ": "JWT"}))


class TokenIssuer:
    """Signs tokens with one secret. An empty secret makes every token invalid."""

    def __init__(self, secret: str, store: Store) -> None:
        self._secret = secret.encode()
        self._store = store

    def issue(
        self,
        account: Record,
        bound: tuple[str, Record] | None,
        audiences: tuple[str, ...],
        token_id: str,
        now_s: int,
        expiry_s: int,
    ) -> str:
        """Returns a token of a service account.

        `bound` is a key of BOUND_KINDS and the object, without which the token is invalid. Times
        are in seconds since the epoch.
        """
        namespace, _, name = account.key.partition("/")
        inner: dict[str, Any] = {
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": account.uid},
        }
        if bound is not None:
            kind, record = bound
            inner[BOUND_KINDS[kind][0]] = {"name": _name_of(record), "uid": record.uid}
            node = record.fields.get("spec.nodeName") if kind == "Pod" else None
            if node:
                found = self._store.collection(("", "nodes")).records.get(node)
                inner["node"] = {"name": node, "uid": found.uid if found is not None else ""}
        claims = {
            "aud": audiences, "exp": expiry_s, "iat": now_s, "iss": AUDIENCE, "jti": token_id,
            CLAIM: inner, "nbf": now_s, "sub": f"{ACCOUNT_PREFIX}{namespace}:{name}",
        }  # fmt: skip
        head = _HEADER + b"." + _encode(msgspec.json.encode(claims))
        return (head + b"." + self._sign(head)).decode()

    def owner_of(
        self, token: bytes, now_ns: int, audiences: tuple[str, ...] = (AUDIENCE,)
    ) -> Owner:
        """Returns the owner of a token. Raises BadTokenError.

        A token is invalid that this server did not issue, that has expired, that is for none of
        the audiences, or whose account or bound object is gone, even if one of the same name was
        created since.
        """
        head, _, signature = token.rpartition(b".")
        if not self._secret or not hmac.compare_digest(signature, self._sign(head)):
            raise BadTokenError("invalid bearer token")
        claims = _read_claims(head)
        if claims["exp"] * SECOND_NS <= now_ns:
            raise BadTokenError("service account token has expired")
        wanted = tuple(one for one in audiences if one in claims["aud"])
        if not wanted:
            raise BadTokenError(
                f"token audiences {claims['aud']} is invalid for the target audiences "
                f"{list(audiences)}"
            )
        inner = claims[CLAIM]
        namespace, account = inner["namespace"], inner["serviceaccount"]
        self._check_there(ACCOUNTS, f"{namespace}/{account['name']}", account["uid"], now_ns)
        extra = {"credential-id": f"JTI={claims['jti']}"}
        for claim, key, is_namespaced in BOUND_KINDS.values():
            reference = inner.get(claim)
            if reference is None:
                continue
            name, uid = reference["name"], reference["uid"]
            if claim != "node" or "pod" not in inner:
                path = f"{namespace}/{name}" if is_namespaced else name
                self._check_there(key, path, uid, now_ns)
            if claim != "secret":
                extra |= {f"{claim}-name": name, f"{claim}-uid": uid}
        user = UserInfo(
            f"{ACCOUNT_PREFIX}{namespace}:{account['name']}",
            (*account_groups(namespace), AUTHENTICATED),
            account["uid"],
            tuple(sorted((EXTRA + name, (value,)) for name, value in extra.items() if value)),
        )
        return Owner(user, wanted)

    def _check_there(self, key: tuple[str, str], path: str, uid: str, now_ns: int) -> None:
        """Checks that the object of a claim exists. Raises BadTokenError."""
        record = self._store.collection(key).records.get(path)
        if record is None or record.uid != uid:
            raise BadTokenError("service account token has been invalidated")
        if b'"deletionTimestamp"' in record.raw:
            deleted = parse_time(record.decode()["metadata"].get("deletionTimestamp") or "")
            if deleted is not None and deleted.timestamp() < now_ns / SECOND_NS - LEEWAY_SECONDS:
                raise BadTokenError("service account token has been invalidated")

    def _sign(self, head: bytes) -> bytes:
        return _encode(hmac.new(self._secret, head, hashlib.sha256).digest())


def _name_of(record: Record) -> str:
    return record.key.rpartition("/")[2]


def _read_claims(head: bytes) -> dict[str, Any]:
    """Returns the claims of a token whose signature is right. Raises BadTokenError."""
    header, _, payload = head.partition(b".")
    if header != _HEADER:
        raise BadTokenError("invalid bearer token")
    padded = payload + b"=" * (-len(payload) % 4)
    claims: dict[str, Any] = msgspec.json.decode(base64.urlsafe_b64decode(padded))
    return claims
