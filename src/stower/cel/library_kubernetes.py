"""The CEL functions that Kubernetes adds: quantities, semantic versions, IP addresses and CIDRs,
URLs, and name formats.

Source: apiserver pkg/cel/library (quantity, semverlib, ip, cidr, urls, format), Kubernetes 1.36.
"""

import re
from datetime import date
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

from stower.cel.library_standard import texts
from stower.cel.library_times import INT_MAX, INT_MIN, Function
from stower.cel.values import (
    NOTHING,
    CelError,
    CidrValue,
    ComputedQuantity,
    NamedFormat,
    OptionalValue,
    Semver,
    Url,
    no_overload,
    parse_cidr,
    parse_ip,
    read_semver,
)
from stower.model.names import (
    label_1035_faults,
    label_faults,
    label_value_faults,
    qualified_name_faults,
    subdomain_faults,
)
from stower.model.quantity import Quantity, QuantityError, parse_quantity


def of_type(kind: type | tuple[type, ...], function: Function) -> Function:
    """Returns a function that raises no_overload unless its first value is of this type."""

    def call_checked(target: Any, *args: Any) -> Any:
        if not isinstance(target, kind):
            raise no_overload()
        return function(target, *args)

    return call_checked


def _make_parse_test(parse: Function) -> Function:
    """Returns a function that tests whether a text can be parsed."""

    def function(text: str, *args: Any) -> bool:
        try:
            parse(text, *args)
        except CelError:
            return False
        return True

    return function


# -------------------------------------------------------------------------------------- quantity


def _quantity(text: str) -> Quantity:
    try:
        return parse_quantity(text)
    except QuantityError as error:
        raise CelError(str(error)) from None


def _other_quantity(other: Any) -> Quantity:
    if type(other) is int:
        return Quantity.of(other)
    if not isinstance(other, Quantity):
        raise no_overload()
    return other


def _plus(quantity: Quantity, other: Any) -> ComputedQuantity:
    return ComputedQuantity.from_quantity(quantity.add(_other_quantity(other)))


def _minus(quantity: Quantity, other: Any) -> ComputedQuantity:
    return ComputedQuantity.from_quantity(quantity.sub(_other_quantity(other)))


def _as_integer(quantity: Quantity) -> int:
    whole = _exact_amount(quantity)
    if whole is None:
        raise CelError("cannot convert value to integer")
    return whole


def _exact_amount(quantity: Quantity) -> int | None:
    """Returns the amount if upstream stores it as an int64, else None. This depends on the internal
    form of the quantity, not on its value."""
    if quantity.big or quantity.scale < 0:
        return None
    whole: int = quantity.mantissa * 10**quantity.scale
    return whole if INT_MIN <= whole <= INT_MAX else None


def _float(quantity: Quantity) -> float:
    mantissa, scale = quantity.mantissa, quantity.scale
    return mantissa / 10**-scale if scale < 0 else float(mantissa * 10**scale)


def _compare(target: Any, other: Any) -> int:
    """Returns -1, 0 or 1 for two quantities or two versions."""
    if isinstance(target, Quantity) and isinstance(other, Quantity):
        return target.cmp(other)
    if type(target) is Semver and type(other) is Semver:
        return (target.key > other.key) - (target.key < other.key)
    raise no_overload()


# --------------------------------------------------------------------------------------- version


def _semver(text: str, normalizes: Any = False) -> Semver:
    if type(normalizes) is not bool:
        raise no_overload()
    return read_semver(_normalized(text) if normalizes else text)


def _normalized(text: str) -> str:
    """Returns the version without a leading v, with three numbers, and without leading zeros."""
    text = text.removeprefix("v")
    parts = text.split(".", 2)
    # A number may be followed by what a version has at its end.
    head = [part.lstrip("0") if len(part) > 1 else part for part in parts]
    head = [
        part if part[:1] in tuple("0123456789") or len(before) < 2 else f"0{part}"
        for part, before in zip(head, parts)
    ]
    if len(head) < 3:
        if any(sign in head[-1] for sign in "+-"):
            raise CelError("short version cannot contain PreRelease/Build meta data")
        head += ["0"] * (3 - len(head))
    return ".".join(head)


def _part_of_version(at: int) -> Function:
    """Returns a number of the version as an int64."""
    return of_type(Semver, lambda version: (version.numbers[at] + 2**63) % 2**64 - 2**63)


# ------------------------------------------------------------------------------------- addresses


def _is_canonical(text: str) -> bool:
    return str(parse_ip(text)) == text


_IPS: Final = (IPv4Address, IPv6Address)


def _is_global(ip: Any) -> bool:
    is_broadcast = ip == IPv4Address("255.255.255.255")
    return not (
        is_broadcast or ip.is_unspecified or ip.is_loopback or ip.is_multicast or ip.is_link_local
    )


def _is_link_local_multicast(ip: Any) -> bool:
    if ip.version == 4:
        return bool(ip.packed[:3] == b"\xe0\x00\x00")
    return bool(ip.packed[0] == 0xFF and ip.packed[1] & 0x0F == 0x02)


def _ip(value: Any) -> Any:
    if type(value) is CidrValue:
        return value.address
    if type(value) is not str:
        raise no_overload()
    return parse_ip(value)


def _contains_ip(cidr: CidrValue, other: Any) -> bool:
    if type(other) is str:
        other = parse_ip(other)
    if not isinstance(other, _IPS):
        raise no_overload()
    return other.version == cidr.network.version and other in cidr.network


def _contains_cidr(cidr: CidrValue, other: Any) -> bool:
    if type(other) is str:
        other = parse_cidr(other)
    if type(other) is not CidrValue:
        raise no_overload()
    inner = other.network
    return inner.version == cidr.network.version and inner.subnet_of(cidr.network)  # type: ignore[arg-type]


def _masked(cidr: CidrValue) -> CidrValue:
    return CidrValue(cidr.network.network_address, cidr.network)


# ------------------------------------------------------------------------------------------- URL

_SCHEME: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(.*)\Z", re.DOTALL)
_BYTE: Final = re.compile(r"%([0-9a-fA-F]{2})")
_ESCAPED: Final = re.compile(r"%(?![0-9a-fA-F]{2})")
# What Go leaves in a host; escapes are for what is not ASCII, and for the sign of a zone.
_OF_HOST: Final = r"(?:[A-Za-z0-9._~!$&'()*+,;=<>\"-]|[^\x00-\x7F]|%[89A-Fa-f][0-9A-Fa-f]|%25)"
_HOST: Final = re.compile(rf"(\[(?:{_OF_HOST}|:)*\]|{_OF_HOST}*)(?::([0-9]*))?\Z")
_USER: Final = re.compile(r"(?:[A-Za-z0-9._:~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})*\Z")
_PATH_KEPT: Final = re.compile(r"[A-Za-z0-9_.~$&+,/:;=@!'()*\[\]-]")


def _url(text: str) -> Url:
    """Parses an absolute URL or an absolute path, like Go's url.ParseRequestURI."""
    problem = CelError(
        f'URL parse error during conversion from string: parse "{text}": invalid URI'
    )
    if not text or any(ord(c) < 0x20 or ord(c) == 0x7F for c in text):
        raise problem
    if text == "*":
        return Url(text, "", "", "", "", "*", ())
    # Only what is checked has its fragment within the path or the query.
    plain, _, fragment = text.partition("#")
    if _ESCAPED.search(fragment):
        raise problem
    match = _SCHEME.match(plain)
    scheme, rest = (match[1].lower(), match[2]) if match else ("", plain)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if not scheme:
            raise CelError(
                f'URL parse error during conversion from string: parse "{text}": '
                "invalid URI for request"
            )
        return Url(text, scheme, "", "", "", "", _query(query))
    host = port = hostname = ""
    path = rest
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        path = slash + path
        user, _, host = authority.rpartition("@")
        parts = _HOST.match(host)
        if parts is None or not _USER.match(user):
            raise problem
        host = _unescaped(host)
        hostname, port = _unescaped(parts[1]).strip("[]"), parts[2] or ""
    if _ESCAPED.search(path):
        raise problem
    return Url(text, scheme, host, hostname, port, _escaped(path), _query(query))


def _escaped(path: str) -> str:
    if all(c == "%" or _PATH_KEPT.match(c) for c in path):
        return path
    return "".join(
        c if c == "%" or _PATH_KEPT.match(c) else "".join(f"%{b:02X}" for b in c.encode())
        for c in path
    )


def _query(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, list[str]] = {}
    for pair in text.split("&"):
        key, _, value = pair.partition("=")
        if not pair or ";" in pair or _ESCAPED.search(pair):
            continue
        decoded = [_unescaped(part.replace("+", " ")) for part in (key, value)]
        found.setdefault(decoded[0], []).append(decoded[1])
    return tuple((key, tuple(values)) for key, values in found.items())


def _unescaped(text: str) -> str:
    codes = _BYTE.sub(lambda match: chr(int(match[1], 16)), text.encode().decode("latin-1"))
    return codes.encode("latin-1").decode(errors="replace")


# --------------------------------------------------------------------------------------- formats

_UUID: Final = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\Z", re.I
)
_BASE64: Final = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})\Z"
)


def _prefix(problems: Function) -> Function:
    """Validates the prefix of a generated name: a trailing dash is allowed."""
    return lambda text: problems(f"{text[:-2]}a" if text[1:].endswith("-") else text)


def _uri(text: str) -> list[str]:
    try:
        _url(text)
    except CelError as error:
        return [str(error).removeprefix("URL parse error during conversion from string: ")]
    return []


_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})\Z", re.ASCII)
# The sign before a fraction is any, upstream too.
_TIME: Final = re.compile(
    r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})\Z", re.ASCII
)


def _date(text: str) -> list[str]:
    match = _DATE.match(text)
    try:
        if match is not None:
            # Python has no year 0, which is a leap year.
            date(int(match[1]) or 4, int(match[2]), int(match[3]))
            return []
    except ValueError:
        pass
    return ["invalid date"]


def _datetime(text: str) -> list[str]:
    day, _, rest = text.lower().partition("t")
    match = _TIME.match(rest.partition("t")[0])
    if match is None or _date(day) or match[1] > "23" or match[2] > "59" or match[3] > "59":
        return ["invalid datetime"]
    return []


_FORMATS: Final[dict[str, Function]] = {
    "dns1123Label": label_faults, "dns1123Subdomain": subdomain_faults,
    "dns1035Label": label_1035_faults, "qualifiedName": qualified_name_faults,
    "dns1123LabelPrefix": _prefix(label_faults),
    "dns1123SubdomainPrefix": _prefix(subdomain_faults),
    "dns1035LabelPrefix": _prefix(label_1035_faults), "labelValue": label_value_faults,
    "uri": _uri,
    "uuid": lambda t: [] if _UUID.match(t) else ["does not match the UUID format"],
    "byte": lambda t: [] if _BASE64.match(t) else ["invalid base64"],
    "date": _date, "datetime": _datetime,
}  # fmt: skip


def _validate(format_: NamedFormat, text: Any) -> OptionalValue:
    if type(text) is not str:
        raise no_overload()
    problems = list(_FORMATS[format_.name](text))
    return OptionalValue(problems) if problems else NOTHING


def _named_format(name: str) -> OptionalValue:
    return OptionalValue(NamedFormat(name)) if name in _FORMATS else NOTHING


def _format(name: str) -> Function:
    return lambda: NamedFormat(name)


FUNCTIONS: Final[dict[str, Function]] = {
    "quantity": texts(_quantity), "isQuantity": texts(_make_parse_test(_quantity)),
    "sign": of_type(Quantity, lambda q: q.sign), "compareTo": _compare,
    "isGreaterThan": lambda a, b: _compare(a, b) > 0,
    "isLessThan": lambda a, b: _compare(a, b) < 0,
    "asApproximateFloat": of_type(Quantity, _float), "asInteger": of_type(Quantity, _as_integer),
    "isInteger": of_type(Quantity, lambda q: _exact_amount(q) is not None),
    "add": of_type(Quantity, _plus),
    "sub": of_type(Quantity, _minus),
    "semver": texts(_semver, bool), "isSemver": texts(_make_parse_test(_semver), bool),
    "major": _part_of_version(0), "minor": _part_of_version(1), "patch": _part_of_version(2),
    "ip": _ip, "isIP": texts(_make_parse_test(parse_ip)), "ip.isCanonical": texts(_is_canonical),
    "family": of_type(_IPS, lambda ip: ip.version),
    "isUnspecified": of_type(_IPS, lambda ip: ip.is_unspecified),
    "isLoopback": of_type(_IPS, lambda ip: ip.is_loopback),
    "isLinkLocalMulticast": of_type(_IPS, _is_link_local_multicast),
    "isLinkLocalUnicast": of_type(_IPS, lambda ip: ip.is_link_local),
    "isGlobalUnicast": of_type(_IPS, _is_global),
    "cidr": texts(parse_cidr), "isCIDR": texts(_make_parse_test(parse_cidr)),
    "containsIP": of_type(CidrValue, _contains_ip),
    "containsCIDR": of_type(CidrValue, _contains_cidr),
    "prefixLength": of_type(CidrValue, lambda cidr: cidr.network.prefixlen),
    "masked": of_type(CidrValue, _masked),
    "url": texts(_url), "isURL": texts(_make_parse_test(_url)),
    "getScheme": of_type(Url, lambda url: url.scheme),
    "getHost": of_type(Url, lambda url: url.host),
    "getHostname": of_type(Url, lambda url: url.hostname),
    "getPort": of_type(Url, lambda url: url.port),
    "getEscapedPath": of_type(Url, lambda url: url.escaped_path),
    "getQuery": of_type(Url, lambda url: {key: list(values) for key, values in url.query}),
    "validate": of_type(NamedFormat, _validate), "format.named": texts(_named_format),
    **{f"format.{name}": _format(name) for name in _FORMATS},
}  # fmt: skip
