"""Validates projected volumes: secrets, config maps, the pod's fields, tokens, certificates.

Source: validateProjectionSources in pkg/apis/core/validation, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Final

from stower.api.errors import FieldError, unsupported
from stower.api.validation import paths
from stower.api.validation.downward_api import volume_file
from stower.api.validation.rules import (
    Faults,
    Object,
    forbidden,
    invalid,
    label_selector,
    named,
    required,
    too_long,
)
from stower.model import names

TOKEN_SECONDS_MIN: Final = 600
TOKEN_SECONDS_MAX: Final = 2**32
KEY_TYPES: Final = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
CERTIFICATE_SECONDS_MIN: Final = 3600
CERTIFICATE_SECONDS_MAX: Final = 91 * 24 * 3600
KUBERNETES_SECONDS_MAX: Final = 24 * 3600
SIGNER_BYTES_MAX: Final = 253 + (253 + 63 + 1) + 1
DOMAIN_BYTES_MAX: Final = 253
CONFLICT: Final = "conflicting duplicate paths"
SOURCES: Final = (
    "secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle",
    "podCertificate",
)  # fmt: skip


def key_to_path(path: str, item: Object) -> Iterator[FieldError]:
    """A key of a secret or config map, and the file that it becomes."""
    if not item.get("key"):
        yield required(f"{path}.key")
    where = item.get("path", "")
    if not where:
        yield required(f"{path}.path")
    yield from paths.not_reserved(f"{path}.path", where)
    yield from paths.mode(f"{path}.mode", item.get("mode"))


class _Files:
    """The files of one volume: two sources must not make the same."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.seen: set[str] = set()

    def add(self, where: str, shown: str) -> Faults:
        """A file of a source; `shown`: what the message quotes."""
        if where in self.seen:
            return [invalid(self.path, shown, CONFLICT)]
        self.seen.add(where)
        return []


def projected(path: str, source: Object, any_token_path: bool) -> Iterator[FieldError]:
    """A projected volume. `any_token_path`: the pod had such a path before it was checked."""
    yield from paths.mode(f"{path}.defaultMode", source.get("defaultMode"))
    files = _Files(path)
    for i, part in enumerate(source.get("sources") or ()):
        at = f"{path}.sources[{i}]"
        for kind in ("secret", "configMap"):
            if kind in part:
                yield from _keys(f"{at}.{kind}", part[kind], files)
        if "downwardAPI" in part:
            for item in part["downwardAPI"].get("items") or ():
                yield from volume_file(f"{at}.downwardAPI", item)
                if where := item.get("path"):
                    yield from files.add(where, where)
        if "serviceAccountToken" in part:
            yield from _token(path, at, part["serviceAccountToken"], any_token_path)
        if "clusterTrustBundle" in part:
            yield from _trust_bundle(f"{at}.clusterTrustBundle", part["clusterTrustBundle"], files)
        if "podCertificate" in part:
            yield from _certificate(f"{at}.podCertificate", part["podCertificate"], files)
        if sum(kind in part for kind in SOURCES) > 1:
            yield forbidden(at, "may not specify more than 1 volume type per source")


def _keys(path: str, source: Object, files: _Files) -> Iterator[FieldError]:
    name = source.get("name", "")
    if not name:
        yield required(f"{path}.name")
    for j, item in enumerate(source.get("items") or ()):
        yield from key_to_path(f"{path}.items[{j}]", item)
        if item.get("path"):
            yield from files.add(item["path"], name)


def _token(path: str, at: str, source: Object, any_path: bool) -> Iterator[FieldError]:
    seconds = source.get("expirationSeconds", 0)
    where = f"{at}.serviceAccountToken.expirationSeconds"
    if seconds < TOKEN_SECONDS_MIN:
        yield invalid(where, seconds, "may not specify a duration less than 10 minutes")
    if seconds > TOKEN_SECONDS_MAX:
        yield invalid(where, seconds, "may not specify a duration larger than 2^32 seconds")
    if not source.get("path"):
        yield required(f"{path}.path")  # of the volume: upstream's path
    elif not any_path:
        yield from paths.not_reserved(f"{path}.path", source["path"])


def _trust_bundle(path: str, source: Object, files: _Files) -> Iterator[FieldError]:
    name, signer = source.get("name"), source.get("signerName")
    selector = source.get("labelSelector")
    if name is not None and signer is not None:
        yield invalid(path, source, "only one of name and signerName may be used")
    elif name is not None:
        if not name:
            yield required(f"{path}.name", "must be a valid object name")
        for fault in _bundle_name_faults(name):
            text = f"not a valid clustertrustbundlename: {fault}"
            yield invalid(f"{path}.name", name, text)
        if selector is not None:
            text = "labelSelector must be unset if name is specified"
            yield invalid(f"{path}.labelSelector", selector, text)
    elif signer is not None:
        if not signer:
            yield required(f"{path}.signerName", "must be a valid signer name")
        yield from signer_name(f"{path}.signerName", signer)
        yield from label_selector(f"{path}.labelSelector", selector)
    else:
        yield required(path, "either name or signerName must be specified")
    where = source.get("path", "")
    if not where:
        yield required(f"{path}.path")
    yield from paths.not_reserved(f"{path}.path", where)
    yield from files.add(where, where)


def _bundle_name_faults(name: str) -> Iterator[str]:
    """A bundle of a signer has the signer's name in front."""
    signer, colon, rest = name.rpartition(":")
    if colon and not signer:  # no signer, and yet a colon
        yield 'ClusterTrustBundle without signer name must not have ":" in its name'
        return
    yield from names.subdomain_faults(rest)


def signer_name(path: str, name: str) -> Iterator[FieldError]:
    """The name of a signer: a domain and a path. Source: ValidateSignerName."""
    if not name:
        yield required(path)
        return
    parts = name.split("/")
    if len(parts) != 2:
        text = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        yield invalid(path, name, text)
        return
    domain, rest = parts
    if len(domain) > DOMAIN_BYTES_MAX:
        yield too_long(path, DOMAIN_BYTES_MAX)
    yield from _first_fault(path, domain, domain.split("."), names.label_faults)
    if "." not in domain:
        text = "should be a domain with at least two segments separated by dots"
        yield invalid(path, domain, text)
    yield from _first_fault(path, rest, rest.split("."), names.subdomain_faults)
    if len(name) > SIGNER_BYTES_MAX:
        yield too_long(path, SIGNER_BYTES_MAX)


def _first_fault(path: str, shown: str, labels: list[str], rule: names.Rule) -> Faults:
    """The faults of the first label that has any."""
    for label in labels:
        if found := list(rule(label)):
            return [invalid(path, shown, f'validating label "{label}": {text}') for text in found]
    return []


def _certificate(path: str, source: Object, files: _Files) -> Iterator[FieldError]:
    signer = source.get("signerName", "")
    yield from signer_name(f"{path}.signerName", signer)
    yield from _user_annotations(f"{path}.userAnnotations", source.get("userAnnotations") or {})
    if source.get("keyType", "") not in KEY_TYPES:
        yield unsupported(f"{path}.keyType", source.get("keyType", ""), KEY_TYPES)
    seconds = source.get("maxExpirationSeconds")
    if seconds is not None:
        host = signer.partition("/")[0]
        own = host == "kubernetes.io" or host.endswith(".kubernetes.io")
        limit = KUBERNETES_SECONDS_MAX if own else CERTIFICATE_SECONDS_MAX
        at = f"{path}.maxExpirationSeconds"
        if seconds < CERTIFICATE_SECONDS_MIN:
            text = f"if provided, maxExpirationSeconds must be >= {CERTIFICATE_SECONDS_MIN}"
            yield invalid(at, seconds, text)
        if seconds > limit:
            yield invalid(at, seconds, f"if provided, maxExpirationSeconds must be <= {limit}")
    fields = ("credentialBundlePath", "keyPath", "certificateChainPath")
    for field in fields:
        if where := source.get(field):
            yield from paths.not_reserved(f"{path}.{field}", where)
            yield from files.add(where, where)
    if not any(source.get(field) for field in fields):
        text = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        yield required(path, text)


def _user_annotations(path: str, given: Object) -> Iterator[FieldError]:
    for key in map(str.lower, given):
        if not key:
            yield required(path)
        elif faults := named(path, key, names.qualified_name_faults):
            yield from faults
        elif "/" not in key:
            yield invalid(path, key, 'must be a domain-prefixed key (such as "acme.io/foo")')
