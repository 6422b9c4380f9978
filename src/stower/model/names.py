"""Validates names, labels and annotations, with the API server's messages.

Source: apimachinery pkg/util/validation/validation.go, pkg/api/validation, Kubernetes 1.36.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Final

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_LABEL_1035: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_QUALIFIED: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")
_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z")
_ENV: Final = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*\Z")
_PRINTABLE_ENV: Final = re.compile(r"[ -<>-~]+\Z")
_CONFIG_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+\Z")
_PORT: Final = re.compile(r"[-a-z0-9]+\Z")
_DIGITS: Final = re.compile(r"[0-9]{1,9}\Z")
_HTTP_HEADER: Final = re.compile(r"[-A-Za-z0-9]+\Z")
_SEARCH: Final = re.compile(
    r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*\Z"
)

LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
LABEL_1035_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
    "regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
QUALIFIED_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

Rule = Callable[[str], Iterable[str]]


def _too_long(limit: int) -> str:
    return f"must be no more than {limit} characters"


def _too_many_bytes(limit: int) -> str:
    """The same in the words of what upstream has newly written."""
    return f"must be no more than {limit} bytes"


def label_faults(text: str) -> Iterator[str]:
    """What keeps the text from being a DNS label (RFC 1123)."""
    if len(text) > 63:
        yield _too_long(63)
    if not _LABEL.match(text):
        yield "must not contain dots" if _SUBDOMAIN.match(text) else LABEL_TEXT


def short_name_faults(text: str) -> Iterator[str]:
    """The same in upstream's newer words."""
    if len(text) > 63:
        yield _too_many_bytes(63)
    if not _LABEL.match(text):
        yield "must not contain dots" if _SUBDOMAIN.match(text) else LABEL_TEXT


def label_1035_faults(text: str) -> Iterator[str]:
    """What keeps the text from being a DNS label that starts with a letter (RFC 1035)."""
    if len(text) > 63:
        yield _too_long(63)
    if not _LABEL_1035.match(text):
        yield LABEL_1035_TEXT


def subdomain_faults(text: str) -> Iterator[str]:
    """What keeps the text from being a DNS subdomain."""
    if len(text) > 253:
        yield _too_long(253)
    if not _SUBDOMAIN.match(text):
        yield SUBDOMAIN_TEXT


def long_name_faults(text: str) -> Iterator[str]:
    """What keeps the text from being a DNS subdomain, in upstream's newer words."""
    if len(text) > 253:
        yield _too_many_bytes(253)
    if not _SUBDOMAIN.match(text):
        yield SUBDOMAIN_TEXT


def path_segment_faults(text: str) -> Iterator[str]:
    """What keeps the text from being one part of a path."""
    if text in (".", ".."):
        yield f"may not be '{text}'"
    for part in ("/", "%"):
        if part in text:
            yield f"may not contain '{part}'"


@lru_cache(maxsize=65536)
def qualified_name_faults(text: str) -> tuple[str, ...]:
    """What keeps the text from being the key of a label or annotation, or a resource's name."""
    return tuple(_qualified_name_faults(text))


def _qualified_name_faults(text: str) -> Iterator[str]:
    parts = text.split("/")
    if len(parts) > 2:
        yield (
            "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must "
            "start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or "
            "'123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') "
            "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )
        return
    if len(parts) == 2:
        if not parts[0]:
            yield "prefix part must be non-empty"
        else:
            yield from (f"prefix part {fault}" for fault in long_name_faults(parts[0]))
    name = parts[-1]
    if not name:
        yield "name part must be non-empty"
    elif len(name) > 63:
        yield f"name part {_too_many_bytes(63)}"
    if not _QUALIFIED.match(name):
        yield QUALIFIED_TEXT


@lru_cache(maxsize=65536)
def label_value_faults(text: str) -> tuple[str, ...]:
    """What keeps the text from being the value of a label."""
    faults = [_too_many_bytes(63)] if len(text) > 63 else []
    return tuple(faults if _VALUE.match(text) else [*faults, VALUE_TEXT])


def env_name_faults(text: str) -> Iterator[str]:
    """What keeps the text from being the name of an environment variable."""
    if not _PRINTABLE_ENV.match(text):
        yield (
            "a valid environment variable name must consist only of printable ASCII characters "
            "other than '='"
        )


def search_domain_faults(text: str) -> Iterator[str]:
    """What keeps the text from being a DNS search domain: a subdomain, underscores allowed."""
    if len(text) > 253:
        yield _too_long(253)
    if not _SEARCH.match(text):
        label = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
        yield (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
            "'_', '-' or '.', and must start and end with an alphanumeric character (e.g. "
            f"'example.com', regex used for validation is '{label}(\\.{label})*')"
        )


def http_header_faults(text: str) -> Iterator[str]:
    """What keeps the text from being the name of an HTTP header."""
    if not _HTTP_HEADER.match(text):
        yield (
            "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. "
            "'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"
        )


def config_key_faults(text: str) -> Iterator[str]:
    """What keeps the text from being a key of a ConfigMap or Secret."""
    if len(text) > 253:
        yield _too_long(253)
    if not _CONFIG_KEY.match(text):
        yield (
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. "
            "'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is "
            "'[-._a-zA-Z0-9]+')"
        )
    if text in (".", ".."):
        yield f"must not be '{text}'"
    elif text.startswith(".."):
        yield "must not start with '..'"


def port_name_faults(text: str) -> Iterator[str]:
    """What keeps the text from being the name of a port. Source: RFC 6335."""
    if len(text) > 15:
        yield _too_long(15)
    if not _PORT.match(text):
        yield "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    if not re.search(r"[a-z]", text):
        yield "must contain at least one letter (a-z)"
    if "--" in text:
        yield "must not contain consecutive hyphens"
    if text and (text[0] == "-" or text[-1] == "-"):
        yield "must not begin or end with a hyphen"


def port_number_faults(number: int) -> Iterator[str]:
    """What keeps the number from being a port."""
    if not 1 <= number <= 65535:
        yield "must be between 1 and 65535, inclusive"


_OCTETS: Final = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}\Z")
IP_TEXT: Final = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
CIDR_TEXT: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def parse_ip(text: str) -> IpAddress | None:
    """The address, with zeros in front of the parts of an IPv4 address allowed, or None.

    Source: k8s.io/utils/net ParseIPSloppy.
    """
    if _OCTETS.match(text):
        text = ".".join(part.lstrip("0") or "0" for part in text.split("."))
    try:
        return None if "%" in text else ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_mapped(address: IpAddress) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None


def ip_family(text: str) -> int | None:
    """4 or 6; None: the text is no IP address. A mapped address is one of IPv4."""
    address = parse_ip(text)
    if address is None:
        return None
    return 4 if _is_mapped(address) else address.version


def _has_leading_zeros(text: str) -> bool:
    return any(len(part) > 1 and part[0] == "0" for part in text.split("."))


_OCTET: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_PLAIN_IPV4: Final = re.compile(rf"{_OCTET}(?:\.{_OCTET}){{3}}", re.ASCII)


def ip_faults(text: str) -> Iterator[str]:
    """What keeps the text from being an IP address. Source: IsValidIPForLegacyField, strict."""
    if _PLAIN_IPV4.fullmatch(text):
        return  # as nearly all are: a tenth of the time
    address = parse_ip(text)
    if address is None:
        yield IP_TEXT
    elif address.version == 4 and _has_leading_zeros(text):
        yield "must not have leading 0s"
    elif _is_mapped(address):
        yield "must not be an IPv4-mapped IPv6 address"


def cidr_faults(text: str) -> Iterator[str]:
    """What keeps the text from being a network. Source: IsValidCIDRForLegacyField, strict."""
    head, _, bits = text.partition("/")
    address = parse_ip(head)
    if address is None or not _DIGITS.match(bits) or int(bits) > address.max_prefixlen:
        yield CIDR_TEXT
        return
    zeros = len(bits) > 1 and bits[0] == "0"
    if zeros or (address.version == 4 and _has_leading_zeros(head)):
        yield "must not have leading 0s in IP or prefix length"
    elif _is_mapped(address):
        yield "must not have an IPv4-mapped IPv6 address"
    elif int(address) & ((1 << (address.max_prefixlen - int(bits))) - 1):
        yield "must not have bits set beyond the prefix length"
