"""Checks texts against the formats of OpenAPI that schemas of custom resources may name.

Source: apiextensions-apiserver pkg/apiserver/validation/formats.go and kube-openapi
pkg/validation/strfmt, Kubernetes 1.36. Other formats say nothing.
"""

import re
from collections.abc import Callable
from datetime import date
from typing import Final

from stower.cel.patterns import compile_pattern
from stower.model import names

FormatRule = Callable[[str], bool]


def is_of_format(text: str, name: str) -> bool:
    """Whether the text has the format; of a format that is not known, every text has it."""
    rule = RULES.get(name.replace("-", ""))
    return rule is None or rule(text)


def _matching(pattern: str, flags: int = re.ASCII) -> FormatRule:
    compiled = re.compile(pattern + r"\Z", flags)
    return lambda text: compiled.match(text) is not None


_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_CLOCK: Final = re.compile(
    r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))\Z"
)


def _date(text: str) -> bool:
    if not _DATE.match(text):
        return False
    year, month, day = map(int, text.split("-"))
    try:
        date(year or 4, month, day)  # Go has a year 0, which is a leap year
    except ValueError:
        return False
    return True


def _date_time(text: str) -> bool:
    day, *rest = text.lower().split("t")
    clock = _CLOCK.match(rest[0]) if rest else None
    if clock is None or not _date(day):
        return False
    return clock[1] <= "23" and clock[2] <= "59" and clock[3] <= "59"


_GO_DURATION: Final = re.compile(
    r"[-+]?(?:0|(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|μs|ms|s|m|h))+)\Z"
)
_DURATION_PART: Final = re.compile(r"([0-9]+)\s*([A-Za-zµ]+)")
_UNITS: Final = frozenset(("ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"))
_UNIT_STARTS: Final = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")


def _duration(text: str) -> bool:
    if _GO_DURATION.match(text):
        return True
    units = [unit.lower() for _, unit in _DURATION_PART.findall(text)]
    return any(unit in _UNITS or unit.startswith(_UNIT_STARTS) for unit in units)


_HOSTNAME: Final = re.compile(
    r"(?:[^\W_](?:-?[^\W_]{0,62})?|(?:[^\W_](?:(?:[^\W_]|-){0,61}[^\W_])?\.)+[^\W\d_]{2,63})\Z"
)


def _hostname(text: str) -> bool:
    if len(text.encode()) > 255 or not _HOSTNAME.match(text):
        return False
    return all(len(part.encode()) <= 63 for part in text.split("."))


_ATOM: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\x{80}-\x{10FFFF}-]+"
_QUOTED: Final = r'"(?:[^"\\\r\n]|\\.)*"'
_ADDRESS: Final = rf"(?:{_ATOM}(?:\.{_ATOM})*|{_QUOTED})@(?:{_ATOM}(?:\.{_ATOM})*|\[[^\[\]\\]*\])"
# RE2's: with Python's, the words before an address would take quadratic time.
_EMAIL: Final = rf"\A\s*(?:{_ADDRESS}|(?:(?:{_ATOM}\.?|{_QUOTED})\s*)*<{_ADDRESS}>)\s*\z"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_HOST: Final = re.compile(r"(?:[^\s<>\"\[\]^`{}|\\:]*|\[[A-Za-z0-9:.%~_-]*\])(?::[0-9]*)?\Z")


def _uri(text: str) -> bool:
    """An absolute URI or path. Source: net/url ParseRequestURI."""
    if not text or _CONTROL.search(text):
        return False
    if text == "*":
        return True
    if text.startswith(":"):
        return False
    scheme = _SCHEME.match(text)
    rest = text[scheme.end() :] if scheme else text
    rest = rest.partition("?")[0]
    if not rest.startswith("/"):
        return scheme is not None
    path = rest
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, _, tail = rest[2:].partition("/")
        path = f"/{tail}"
        if not _HOST.match(authority.rpartition("@")[2]):
            return False
    return _BAD_ESCAPE.search(path) is None


_MAC: Final = re.compile(
    r"(?:[0-9A-Fa-f]{2}([:-])[0-9A-Fa-f]{2}(?:\1[0-9A-Fa-f]{2}){4}(?:(?:\1[0-9A-Fa-f]{2}){2})?"
    r"(?:(?:\1[0-9A-Fa-f]{2}){12})?|[0-9A-Fa-f]{4}(?:\.[0-9A-Fa-f]{4}){2}"
    r"(?:\.[0-9A-Fa-f]{4})?(?:(?:\.[0-9A-Fa-f]{4}){6})?)\Z"
)


def _mac(text: str) -> bool:
    """An address of 6, 8 or 20 bytes."""
    digits = re.sub(r"[:.-]", "", text)
    return _MAC.match(text) is not None and len(digits) in (12, 16, 40)


def _is_v4(text: str) -> bool:
    return names.parse_ip(text) is not None and "." in text


def _is_v6(text: str) -> bool:
    return names.parse_ip(text) is not None and ":" in text


def _cidr(text: str) -> bool:
    return names.CIDR_TEXT not in names.cidr_faults(text)


def _isbn10(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.match(r"[0-9]{9}[0-9X]\Z", digits):
        return False
    total = sum((i + 1) * int(digit) for i, digit in enumerate(digits[:9]))
    return (total + 10 * (10 if digits[9] == "X" else int(digits[9]))) % 11 == 0


def _isbn13(text: str) -> bool:
    digits = re.sub(r"[\s-]+", "", text)
    if not re.match(r"[0-9]{13}\Z", digits):
        return False
    return sum(int(digit) * (1, 3)[i % 2] for i, digit in enumerate(digits)) % 10 == 0


_CARD: Final = re.compile(
    r"(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})\Z"
)


def _credit_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    if not _CARD.match(digits):
        return False
    doubled = (int(d) * (1 + i % 2) for i, d in enumerate(reversed(digits)))
    return sum(n if n < 10 else n % 10 + 1 for n in doubled) % 10 == 0


def _uuid(third: str, fourth: str) -> FormatRule:
    return _matching(
        rf"[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{third}-?{fourth}-?[0-9a-f]{{12}}",
        re.ASCII | re.IGNORECASE,
    )


_NUMBER: Final = _matching(r"\d{3}[- ]?\d{2}[- ]?\d{4}")
_ANY: Final = "[0-9a-f]{4}"
_VARIANT: Final = "[89ab][0-9a-f]{3}"
_BYTE: Final = r"(?:0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])"
_QUARTET: Final = r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"
RULES: Final[dict[str, FormatRule]] = {  # by the name without dashes
    "bsonobjectid": _matching(r"[0-9A-Fa-f]{24}"),
    "byte": _matching(_QUARTET),
    "cidr": _cidr,
    "creditcard": _credit_card,
    "date": _date,
    "datetime": _date_time,
    "duration": _duration,
    "email": lambda text: compile_pattern(_EMAIL).occurs_in(text),
    "hexcolor": _matching(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": _hostname,
    "ipv4": _is_v4,
    "ipv6": _is_v6,
    "isbn": lambda text: _isbn10(text) or _isbn13(text),
    "isbn10": _isbn10,
    "isbn13": _isbn13,
    "k8slongname": lambda text: not any(True for _ in names.subdomain_faults(text)),
    "k8sshortname": lambda text: not any(True for _ in names.short_name_faults(text)),
    "mac": _mac,
    "rgbcolor": _matching(rf"rgb\(\s*{_BYTE}\s*,\s*{_BYTE}\s*,\s*{_BYTE}\s*\)"),
    "ssn": lambda text: len(text) == 11 and _NUMBER(text),
    "uri": _uri,
    "uuid": _uuid(_ANY, _ANY),
    "uuid3": _uuid("3[0-9a-f]{3}", _ANY),
    "uuid4": _uuid("4[0-9a-f]{3}", _VARIANT),
    "uuid5": _uuid("5[0-9a-f]{3}", _VARIANT),
}
