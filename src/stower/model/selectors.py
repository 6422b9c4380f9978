"""Label selectors and node selectors: parsing, validation, and matching against labels.

Source: apimachinery pkg/labels/selector.go; component-helpers scheduling/corev1/nodeaffinity.

Must not know about columns: `state` compiles the same requirements into comparisons over rows.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from stower.model.numbers import Int32

IN: Final = "In"
NOT_IN: Final = "NotIn"
EXISTS: Final = "Exists"
DOES_NOT_EXIST: Final = "DoesNotExist"
GT: Final = "Gt"
LT: Final = "Lt"

NODE_NAME_FIELD: Final = "metadata.name"

# Longest text that is read as a number: a label value has at most 63 characters.
INTEGER_LENGTH_MAX: Final = 63
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NAME: Final = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", re.ASCII)
_DOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class Requirement(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One condition on one label key (or node field)."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet the condition; an unparsable one meets none."""
        value = labels.get(self.key)
        values = self.values or ()
        match self.operator:
            case "In":
                return value is not None and value in values
            case "NotIn":
                return value is None or value not in values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                bound = parse_int64(values[0]) if len(values) == 1 else None
                number = None if value is None else parse_int64(value)
                if bound is None or number is None:
                    return False
                return number > bound if self.operator == GT else number < bound
        return False


class LabelSelector(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """All of its conditions must hold; an empty one matches everything."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Requirement, ...] | None = None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet every condition."""
        for key, value in (self.match_labels or {}).items():
            if labels.get(key) != value:
                return False
        return all(r.matches(labels) for r in self.match_expressions or ())


class NodeSelectorTerm(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Conditions on a node's labels and fields, all of which must hold; an empty term matches
    none.
    """

    match_expressions: tuple[Requirement, ...] | None = None
    match_fields: tuple[Requirement, ...] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.match_expressions and not self.match_fields


class NodeSelector(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] | None = None


class PreferredSchedulingTerm(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A term that adds its weight (1-100) to a node's score."""

    weight: Int32 = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


def parse_int64(text: str) -> int | None:
    """The decimal integer that `text` writes, as Go's ParseInt: None if none or beyond 64 bits."""
    if len(text) > INTEGER_LENGTH_MAX or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def label_key_fault(key: str) -> str | None:
    """What is wrong with a label key (a qualified name), or None."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix or (slash and not prefix):
        return "a qualified name such as example.com/name"
    if prefix and (len(prefix) > 253 or not _DOMAIN.fullmatch(prefix)):
        return "a DNS subdomain before the slash"
    if len(name) > 63 or not _NAME.fullmatch(name):
        return "at most 63 characters of [-A-Za-z0-9_.], alphanumeric at both ends"
    return None


def label_value_fault(value: str) -> str | None:
    """What is wrong with a label value, or None."""
    if value and (len(value) > 63 or not _NAME.fullmatch(value)):
        return "empty, or at most 63 characters of [-A-Za-z0-9_.], alphanumeric at both ends"
    return None


def requirement_fault(requirement: Requirement) -> tuple[str, object, str] | None:
    """(field, found, wanted) of a node label condition that upstream cannot parse, or None.

    Source: labels.NewRequirement; nodeaffinity.nodeSelectorRequirementsAsSelector.
    """
    key_fault = label_key_fault(requirement.key)
    if key_fault:
        return "key", requirement.key, key_fault
    values = requirement.values or ()
    match requirement.operator:
        case "In" | "NotIn":
            if not values:
                return "values", list(values), "at least one value for In and NotIn"
        case "Exists" | "DoesNotExist":
            if values:
                return "values", list(values), "no values for Exists and DoesNotExist"
        case "Gt" | "Lt":
            if len(values) != 1 or parse_int64(values[0]) is None:
                return "values", list(values), "exactly one integer for Gt and Lt"
        case _:
            return "operator", requirement.operator, "In, NotIn, Exists, DoesNotExist, Gt or Lt"
    for value in values:
        value_fault = label_value_fault(value)
        if value_fault:
            return "values", value, value_fault
    return None


def field_requirement_fault(requirement: Requirement) -> tuple[str, object, str] | None:
    """(field, found, wanted) of a node field condition that upstream cannot parse, or None."""
    if requirement.operator not in (IN, NOT_IN):
        return "operator", requirement.operator, "In or NotIn for a field"
    if len(requirement.values or ()) != 1:
        return "values", list(requirement.values or ()), "exactly one value for a field"
    return None


def term_is_parsable(term: NodeSelectorTerm) -> bool:
    """Whether upstream can evaluate the term; one that it cannot matches no node."""
    return all(requirement_fault(r) is None for r in term.match_expressions or ()) and all(
        field_requirement_fault(r) is None for r in term.match_fields or ()
    )


def term_matches(term: NodeSelectorTerm, labels: Mapping[str, str], name: str) -> bool:
    """Whether a node with these labels and this name matches the term: the scalar rule."""
    if term.is_empty or not term_is_parsable(term):
        return False
    fields = {NODE_NAME_FIELD: name} if name else {}
    return all(r.matches(labels) for r in term.match_expressions or ()) and (
        not fields or all(field_matches(r, fields) for r in term.match_fields or ())
    )


def field_matches(requirement: Requirement, fields: Mapping[str, str]) -> bool:
    """A field that the node does not have reads as the empty string (fields.hasTerm)."""
    equal = fields.get(requirement.key, "") == (requirement.values or ("",))[0]
    return equal if requirement.operator == IN else not equal


def node_selector_matches(selector: NodeSelector, labels: Mapping[str, str], name: str) -> bool:
    """Whether one of the terms matches."""
    return any(term_matches(t, labels, name) for t in selector.node_selector_terms or ())


_CLAUSE: Final = re.compile(
    r"\s*+(?:(?P<not>!)\s*+(?P<absent>[^\s,!=()]++)"
    r"|(?P<key>[^\s,!=()]++)(?:\s*+(?P<op>==|=|!=)\s*+(?P<value>[^\s,!=()]*+)"
    r"|\s++(?P<set>in|notin)\s*+\((?P<values>[^()]*+)\))?+)\s*+(?:,|$)",
    re.ASCII,
)


def parse_selector(text: str) -> LabelSelector:
    """The selector that `kubectl -l` would read: a=b,c!=d,e in (x,y),f notin (z),g,!h.

    Raises ValueError with the part that cannot be read.
    """
    requirements = []
    position = 0
    comma = False
    end = len(text.rstrip())
    while position < end or comma:
        clause = _CLAUSE.match(text, position)
        if clause is None:
            raise ValueError(f"cannot parse {text[position:]!r} in label selector {text!r}")
        position = clause.end()
        comma = clause[0].endswith(",")
        if clause["not"]:
            requirement = Requirement(clause["absent"], DOES_NOT_EXIST)
        elif clause["set"]:
            values = tuple(v.strip() for v in clause["values"].split(","))
            requirement = Requirement(
                clause["key"], IN if clause["set"] == "in" else NOT_IN, values
            )
        elif clause["op"]:
            operator = NOT_IN if clause["op"] == "!=" else IN
            requirement = Requirement(clause["key"], operator, (clause["value"],))
        else:
            requirement = Requirement(clause["key"], EXISTS)
        fault = requirement_fault(requirement)
        if fault is not None:
            raise ValueError(f"{fault[1]!r} in label selector {text!r}: want {fault[2]}")
        requirements.append(requirement)
    return LabelSelector(match_expressions=tuple(requirements))
