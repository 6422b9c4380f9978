"""Parses label and field selectors of list, watch and deletecollection; errors as upstream's.

Source: apimachinery pkg/labels/selector.go, pkg/fields/selector.go; fields per kind: pkg/apis/*/v1
conversion.go, Kubernetes 1.36.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from stower.api.errors import ApiError, bad_request, go_quote
from stower.model.names import label_value_faults, qualified_name_faults

Object = dict[str, Any]
Labels = Mapping[str, str]

_SYMBOLS: Final = ("!=", "==", "=", "(", ")", ",", "!", ">", "<")
_SPECIAL: Final = re.compile(r"[=!(),<>]")
_END: Final = ""
_BINARY: Final = "in, notin, =, ==, !=, gt, lt"


class Requirement(NamedTuple):
    """One condition on one label."""

    key: str
    operator: str  # exists, !, in, notin, >, <
    values: tuple[str, ...]

    def matches(self, labels: Labels) -> bool:
        """Whether an object with these labels meets it."""
        value = labels.get(self.key)
        if self.operator == "in":
            return value in self.values
        if self.operator == "notin":
            return value not in self.values
        if self.operator == "exists":
            return value is not None
        if self.operator == "!":
            return value is None
        try:
            number, bound = int(value or ""), int(self.values[0])
        except ValueError:
            return False
        return number > bound if self.operator == ">" else number < bound


Selector = tuple[Requirement, ...]


def matches(selector: Selector, labels: Labels) -> bool:
    """Whether all conditions are met."""
    return all(requirement.matches(labels) for requirement in selector)


class _Parser:
    """Reads a label selector token by token."""

    def __init__(self, text: str) -> None:
        self.tokens = self._scan(text)
        self.position = 0

    @staticmethod
    def _scan(text: str) -> list[str]:
        tokens = []
        i = 0
        while i < len(text):
            if text[i].isspace():
                i += 1
                continue
            symbol = next((s for s in _SYMBOLS if text.startswith(s, i)), None)
            if symbol is None:
                end = i
                while end < len(text) and not text[end].isspace() and not _SPECIAL.match(text[end]):
                    end += 1
                symbol = text[i:end]
            tokens.append(symbol)
            i += len(symbol)
        return [*tokens, _END]

    def peek(self) -> str:
        return self.tokens[self.position]

    def take(self) -> str:
        token = self.tokens[self.position]
        self.position = min(self.position + 1, len(self.tokens) - 1)
        return token

    @staticmethod
    def is_word(token: str) -> bool:
        return token != _END and token not in _SYMBOLS

    def parse(self) -> Selector:
        found: list[Requirement] = []
        while True:
            token = self.peek()
            if token == _END:
                return tuple(found)
            if not self.is_word(token) and token != "!":
                raise bad_request(f"found '{token}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self.requirement())
            except ApiError as error:
                raise bad_request(f"unable to parse requirement: {error.message}") from None
            token = self.take()
            if token == _END:
                return tuple(found)
            if token != ",":
                raise bad_request(f"found '{token}', expected: ',' or 'end of string'")
            token = self.peek()
            if not self.is_word(token) and token != "!":
                raise bad_request(f"found '{token}', expected: identifier after ','")

    def requirement(self) -> Requirement:
        negated = self.peek() == "!"
        if negated:
            self.take()
        key = self.take()
        if not self.is_word(key):
            raise bad_request(f"found '{key}', expected: identifier")
        for fault in qualified_name_faults(key):
            raise bad_request(f"<nil>: Invalid value: {go_quote(key)}: {fault}")
        if negated:
            return Requirement(key, "!", ())
        if self.peek() in (_END, ","):
            return Requirement(key, "exists", ())
        operator = self.take()
        if operator in ("in", "notin"):
            return self.check(Requirement(key, operator, self.values()))
        if operator in ("=", "=="):
            return self.check(Requirement(key, "in", (self.exact(),)))
        if operator == "!=":
            return self.check(Requirement(key, "notin", (self.exact(),)))
        if operator in (">", "<"):
            value = self.exact()
            number = int(value) if re.fullmatch(r"[+-]?\d{1,19}", value) else 1 << 63
            if not -(1 << 63) <= number < 1 << 63:
                text = "for 'Gt', 'Lt' operators, the value must be an integer"
                raise bad_request(f"values[0][{key}]: Invalid value: {go_quote(value)}: {text}")
            return self.check(Requirement(key, operator, (value,)))
        raise bad_request(f"found '{operator}', expected: {_BINARY}")

    def check(self, requirement: Requirement) -> Requirement:
        for i, value in enumerate(requirement.values):
            for fault in label_value_faults(value):
                path = f"values[{i}][{requirement.key}]"
                raise bad_request(f"{path}: Invalid value: {go_quote(value)}: {fault}")
        return requirement

    def exact(self) -> str:
        if self.peek() in (_END, ","):
            return ""
        token = self.take()
        if not self.is_word(token):
            raise bad_request(f"found '{token}', expected: identifier")
        return token

    def values(self) -> tuple[str, ...]:
        token = self.take()
        if token != "(":
            raise bad_request(f"found '{token}' expected: '('")
        found: list[str] = []
        while True:
            token = self.take()
            if self.is_word(token):
                found.append(token)
                token = self.take()
            elif token in (",", ")"):
                found.append("")
            if token == ")":
                return tuple(sorted(set(found)))
            if token != ",":
                raise bad_request(f"found '{token}', expected: ',' or ')'")


@lru_cache(maxsize=4096)
def parse_labels(text: str) -> Selector:
    """The label selector of a query. Raises ApiError 400."""
    return _Parser(text).parse()


class FieldRequirement(NamedTuple):
    """One condition on one field."""

    field: str
    equal: bool
    value: str


def parse_fields(text: str) -> tuple[FieldRequirement, ...]:
    """The field selector of a query, before its fields are known. Raises ApiError 400."""
    found = []
    for term in re.split(r"(?<!\\),", text):
        if not term:
            continue
        for operator in ("!=", "==", "="):
            left, middle, right = term.partition(operator)
            if middle:
                if re.search(r"(?<!\\)(?:\\\\)*=", right) or re.search(r"\\(?![\\,=])", right):
                    raise bad_request(f"invalid field selector: {term}")
                value = re.sub(r"\\([\\,=])", r"\1", right)
                found.append(FieldRequirement(left, operator != "!=", value))
                break
        else:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
    return tuple(found)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


class Field(NamedTuple):
    """Where a field that can be selected by is, and the text of one that is absent."""

    path: tuple[str, ...]
    absent: str = ""


def _at(*path: str) -> Field:
    return Field(path)


def _flag(*path: str) -> Field:
    return Field(path, "false")


def _zero(*path: str) -> Field:
    return Field(path, "0")


def _involved_object_fields(prefix: str) -> dict[str, Field]:
    names = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    return {f"{prefix}.{name}": _at("involvedObject", name) for name in names}


Fields = dict[str, Field]


def reader(fields: Fields) -> Callable[[Object], dict[str, str]]:
    """A function that reads the fields of an object, those of one part together."""
    parts: dict[str, list[tuple[str, str, str]]] = {}
    single: list[tuple[str, str, str]] = []
    for name, (path, absent) in fields.items():
        if len(path) == 2:
            parts.setdefault(path[0], []).append((name, path[1], absent))
        else:
            single.append((name, path[0], absent))

    def read(item: Object) -> dict[str, str]:
        found: dict[str, str] = {}
        for part, wanted in parts.items():
            inner = item.get(part) or {}
            for name, key, absent in wanted:
                value = inner.get(key, absent)
                found[name] = value if type(value) is str else _text(value)
        for name, key, absent in single:
            value = item.get(key, absent)
            found[name] = value if type(value) is str else _text(value)
        return found

    return read


NOT_SUPPORTED: Final = "field label not supported: "
# Fields that can be selected by, besides name and namespace, and the complaint about others.
FIELDS: Final[dict[tuple[str, str], tuple[Fields, str]]] = {
    ("", "pods"): (
        {
            "spec.nodeName": _at("spec", "nodeName"),
            "spec.restartPolicy": _at("spec", "restartPolicy"),
            "spec.schedulerName": _at("spec", "schedulerName"),
            "spec.serviceAccountName": _at("spec", "serviceAccountName"),
            "spec.hostNetwork": _flag("spec", "hostNetwork"),
            "status.phase": _at("status", "phase"),
            "status.podIP": _at("status", "podIP"),
            "status.podIPs": _at("status", "podIP"),
            "status.nominatedNodeName": _at("status", "nominatedNodeName"),
            "spec.host": _at("spec", "nodeName"),
        },
        NOT_SUPPORTED,
    ),
    ("", "nodes"): ({"spec.unschedulable": _flag("spec", "unschedulable")}, NOT_SUPPORTED),
    ("", "replicationcontrollers"): (
        {"status.replicas": _zero("status", "replicas")},
        NOT_SUPPORTED,
    ),
    ("", "events"): (
        {
            **_involved_object_fields("involvedObject"),
            **_involved_object_fields("regarding"),
            "reason": _at("reason"),
            "reportingComponent": _at("source", "component"),
            "reportingController": _at("source", "component"),
            "source": _at("source", "component"),
            "type": _at("type"),
        },
        NOT_SUPPORTED,
    ),
    ("", "namespaces"): ({"status.phase": _at("status", "phase")}, NOT_SUPPORTED),
    ("", "secrets"): ({"type": _at("type")}, NOT_SUPPORTED),
    ("", "services"): (
        {"spec.clusterIP": _at("spec", "clusterIP"), "spec.type": _at("spec", "type")},
        NOT_SUPPORTED,
    ),
    ("batch", "jobs"): ({"status.successful": _zero("status", "succeeded")}, "field label %q not"),
    ("certificates.k8s.io", "certificatesigningrequests"): (
        {"spec.signerName": _at("spec", "signerName")},
        NOT_SUPPORTED,
    ),
    ("resource.k8s.io", "resourceslices"): (
        {"spec.nodeName": _at("spec", "nodeName"), "spec.driver": _at("spec", "driver")},
        "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: ",
    ),
}


def reader_of(key: tuple[str, str]) -> Callable[[Object], dict[str, str]] | None:
    """How to read the fields that objects of a resource can be selected by."""
    if key not in FIELDS:
        return None
    if key == ("", "events"):
        return _event_reader
    return reader(FIELDS[key][0])


def _event_reader(item: Object) -> dict[str, str]:
    """An event's source is where it says, or else its reporting component."""
    found = _plain_event(item)
    if not found["source"]:
        component = item.get("reportingComponent") or ""
        for name in ("source", "reportingComponent", "reportingController"):
            found[name] = component
    return found


_plain_event: Final = reader(FIELDS["", "events"][0])


# Events have other fields in either of their APIs.
_EVENT_FIELDS: Final = {
    "events.k8s.io": ("involvedObject.", "reportingComponent", "source"),
    "": ("regarding.", "reportingController"),
}


def check_fields(
    requirements: tuple[FieldRequirement, ...], key: tuple[str, str], group: str
) -> None:
    """Raise ApiError 400 for a field that nobody can select by in the API of the group."""
    fields, complaint = FIELDS.get(key, ({}, ""))
    hidden = _EVENT_FIELDS[group] if key == ("", "events") else ()
    for field, _, _ in requirements:
        if hidden and field.startswith(hidden):
            raise bad_request(f"{complaint}{field}")
        if field == "metadata.name" or field in fields:
            continue
        if field == "metadata.namespace" and key not in (("", "nodes"), ("", "namespaces")):
            continue
        if complaint.endswith("not"):
            raise bad_request(f"field label {go_quote(field)} not supported for Job")
        if complaint:
            raise bad_request(f"{complaint}{field}")
        raise bad_request(
            f'{go_quote(field)} is not a known field selector: only "metadata.name", '
            '"metadata.namespace"'
        )


def check_custom_fields(
    requirements: tuple[FieldRequirement, ...], paths: list[str], namespaced: bool
) -> None:
    """Raise ApiError 400 for a field that custom resources cannot be selected by. `paths`: of the
    definition. Source: apiextensions-apiserver pkg/apiserver/conversion/converter.go."""
    known = {"metadata.name", *(path.removeprefix(".") for path in paths)}
    if namespaced:
        known.add("metadata.namespace")
    for field, _, _ in requirements:
        if field not in known:
            raise bad_request(f"{NOT_SUPPORTED}{field}")
