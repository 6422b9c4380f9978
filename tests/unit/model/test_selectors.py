"""Selectors: what matches which labels, and what upstream cannot evaluate."""

import pytest

from stower.model.selectors import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    field_requirement_fault,
    label_key_fault,
    label_value_fault,
    node_selector_matches,
    parse_int64,
    parse_selector,
    requirement_fault,
    term_is_parsable,
    term_matches,
)

LABELS = {"zone": "a", "cores": "16", "empty": ""}


@pytest.mark.parametrize(
    ("key", "operator", "values", "matches"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("rack", "In", ("a",), False),
        ("empty", "In", ("",), True),
        ("rack", "In", ("",), False),
        ("zone", "NotIn", ("b",), True),
        ("zone", "NotIn", ("a",), False),
        ("rack", "NotIn", ("a",), True),
        ("empty", "Exists", None, True),
        ("rack", "Exists", None, False),
        ("empty", "DoesNotExist", None, False),
        ("rack", "DoesNotExist", None, True),
        ("cores", "Gt", ("15",), True),
        ("cores", "Gt", ("16",), False),
        ("cores", "Gt", ("9",), True),
        ("cores", "Lt", ("17",), True),
        ("cores", "Lt", ("16",), False),
        ("zone", "Gt", ("1",), False),
        ("rack", "Lt", ("1",), False),
        ("cores", "Gt", ("1", "2"), False),
        ("cores", "Gt", ("x",), False),
        ("zone", "in", ("a",), False),
        ("zone", "", ("a",), False),
    ],
)
def test_a_condition_matches_labels_by_its_operator(
    key: str, operator: str, values: tuple[str, ...] | None, matches: bool
) -> None:
    """Only NotIn and DoesNotExist hold where the label is missing; Gt and Lt compare integers."""
    assert matches is Requirement(key, operator, values).matches(LABELS)


def test_all_parts_of_a_label_selector_must_hold() -> None:
    expression = Requirement("cores", "Gt", ("8",))
    assert LabelSelector({"zone": "a"}, (expression,)).matches(LABELS)
    assert not LabelSelector({"zone": "b"}, (expression,)).matches(LABELS)
    assert not LabelSelector({"zone": "a"}, (expression, Requirement("rack", "Exists"))).matches(
        LABELS
    )


def test_an_empty_label_selector_matches_everything() -> None:
    assert LabelSelector().matches({})
    assert LabelSelector({}, ()).matches(LABELS)


def test_a_label_that_must_be_empty_must_be_there() -> None:
    assert LabelSelector({"empty": ""}).matches(LABELS)
    assert not LabelSelector({"rack": ""}).matches(LABELS)


def test_an_empty_term_and_an_empty_node_selector_match_no_node() -> None:
    assert not term_matches(NodeSelectorTerm(), LABELS, "n1")
    assert not term_matches(NodeSelectorTerm((), ()), LABELS, "n1")
    assert not node_selector_matches(NodeSelector(), LABELS, "n1")
    assert not node_selector_matches(NodeSelector((NodeSelectorTerm(),)), LABELS, "n1")


def test_terms_are_alternatives_and_their_conditions_are_not() -> None:
    zone, rack = Requirement("zone", "Exists"), Requirement("rack", "Exists")
    both, one = NodeSelectorTerm((zone, rack)), NodeSelectorTerm((zone,))
    assert not node_selector_matches(NodeSelector((both,)), LABELS, "n1")
    assert node_selector_matches(NodeSelector((both, one)), LABELS, "n1")


def test_a_term_that_upstream_cannot_parse_matches_no_node_and_spoils_no_other() -> None:
    broken = NodeSelectorTerm((Requirement("zone", "In", ("a",)), Requirement("zone", "In", ())))
    assert not term_is_parsable(broken)
    assert not term_matches(broken, LABELS, "n1")
    good = NodeSelectorTerm((Requirement("zone", "In", ("a",)),))
    assert node_selector_matches(NodeSelector((broken, good)), LABELS, "n1")


@pytest.mark.parametrize(
    ("key", "operator", "value", "matches"),
    [
        ("metadata.name", "In", "n1", True),
        ("metadata.name", "In", "n2", False),
        ("metadata.name", "NotIn", "n1", False),
        ("metadata.name", "NotIn", "n2", True),
        ("spec.unschedulable", "In", "", True),
        ("spec.unschedulable", "In", "true", False),
        ("spec.unschedulable", "NotIn", "true", True),
        ("spec.unschedulable", "NotIn", "", False),
    ],
)
def test_node_fields_other_than_the_name_read_as_empty(
    key: str, operator: str, value: str, matches: bool
) -> None:
    term = NodeSelectorTerm(None, (Requirement(key, operator, (value,)),))
    assert matches is term_matches(term, {}, "n1")


def test_fields_do_not_matter_on_a_node_without_a_name() -> None:
    """Upstream asks the field selector only where the node has any field."""
    term = NodeSelectorTerm(None, (Requirement("metadata.name", "In", ("n1",)),))
    assert term_matches(term, {}, "")


def test_labels_and_fields_of_a_term_must_both_match() -> None:
    zone, name = Requirement("zone", "In", ("a",)), Requirement("metadata.name", "In", ("n1",))
    term = NodeSelectorTerm((zone,), (name,))
    assert term_matches(term, LABELS, "n1")
    assert not term_matches(term, LABELS, "n2")
    assert not term_matches(term, {}, "n1")


@pytest.mark.parametrize(
    ("requirement", "field"),
    [
        (Requirement("a b", "Exists"), "key"),
        (Requirement("", "Exists"), "key"),
        (Requirement("k", "In"), "values"),
        (Requirement("k", "NotIn", ()), "values"),
        (Requirement("k", "In", ("a b",)), "values"),
        (Requirement("k", "In", ("x" * 64,)), "values"),
        (Requirement("k", "Exists", ("a",)), "values"),
        (Requirement("k", "DoesNotExist", ("",)), "values"),
        (Requirement("k", "Gt"), "values"),
        (Requirement("k", "Lt", ("1", "2")), "values"),
        (Requirement("k", "Gt", ("1.5",)), "values"),
        (Requirement("k", "Gt", ("9223372036854775808",)), "values"),
        (Requirement("k", "Gt", ("-5",)), "values"),
        (Requirement("k", "Gt", ("+5",)), "values"),
        (Requirement("k", "Equals", ("a",)), "operator"),
        (Requirement("k", "", ("a",)), "operator"),
    ],
)
def test_a_fault_in_a_condition_names_its_field(requirement: Requirement, field: str) -> None:
    """A bound below zero is no label value, so upstream refuses it though it is an integer."""
    fault = requirement_fault(requirement)
    assert fault is not None
    assert field == fault[0]


@pytest.mark.parametrize(
    "requirement",
    [
        Requirement("example.com/name", "In", ("", "a")),
        Requirement("k", "NotIn", ("x" * 63,)),
        Requirement("k", "Exists", ()),
        Requirement("k", "Lt", ("0",)),
        Requirement("k", "Gt", ("007",)),
    ],
)
def test_conditions_that_upstream_parses_have_no_fault(requirement: Requirement) -> None:
    assert requirement_fault(requirement) is None


@pytest.mark.parametrize(
    ("requirement", "field"),
    [
        (Requirement("metadata.name", "Exists"), "operator"),
        (Requirement("metadata.name", "Gt", ("1",)), "operator"),
        (Requirement("metadata.name", "In"), "values"),
        (Requirement("metadata.name", "In", ("a", "b")), "values"),
        (Requirement("metadata.name", "NotIn", ()), "values"),
    ],
)
def test_a_fault_in_a_field_condition_names_its_field(requirement: Requirement, field: str) -> None:
    fault = field_requirement_fault(requirement)
    assert fault is not None
    assert field == fault[0]


def test_values_of_field_conditions_need_not_be_label_values() -> None:
    assert field_requirement_fault(Requirement("any key", "In", ("not a label!",))) is None


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-5", -5),
        ("+5", 5),
        ("007", 7),
        ("0" * 62 + "5", 5),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("9223372036854775808", None),
        ("-9223372036854775809", None),
        ("", None),
        ("+", None),
        ("1.0", None),
        ("1_000", None),
        ("0x10", None),
        (" 1", None),
        ("1\n", None),
        ("١", None),
        ("9" * 5_000, None),
    ],
)
def test_integers_read_as_gos_parseint_reads_them(text: str, number: int | None) -> None:
    assert number == parse_int64(text)


@pytest.mark.parametrize(
    "key", ["a", "A1", "a.b_c-d", "example.com/a", "a/b", "x" * 63, f"{'a.' * 126}a/b"]
)
def test_qualified_names_are_label_keys(key: str) -> None:
    assert label_key_fault(key) is None


@pytest.mark.parametrize(
    "key",
    ["", "-a", "a-", "a b", "/a", "a/", "a/b/c", "Example.com/a", "a..b/c", "é", "x" * 64, "a\n"]
    + [f"{'a.' * 127}a/b", "-a/b"],
)
def test_other_texts_are_no_label_keys(key: str) -> None:
    assert label_key_fault(key) is not None


def test_label_values_may_be_empty_and_have_up_to_63_plain_characters() -> None:
    assert all(label_value_fault(v) is None for v in ("", "a", "A.b_c-9", "x" * 63))
    assert all(label_value_fault(v) for v in ("-a", "a.", "a b", "x" * 64, "a/b", "a\n"))


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("", []),
        (" \t", []),
        ("a", [("a", "Exists", None)]),
        ("!a", [("a", "DoesNotExist", None)]),
        ("a=b", [("a", "In", ("b",))]),
        ("a == b", [("a", "In", ("b",))]),
        ("a!=b", [("a", "NotIn", ("b",))]),
        ("a=", [("a", "In", ("",))]),
        ("a in (x, y)", [("a", "In", ("x", "y"))]),
        ("a notin(x)", [("a", "NotIn", ("x",))]),
        ("a in ()", [("a", "In", ("",))]),
        ("in in (in)", [("in", "In", ("in",))]),
        ("notin,in", [("notin", "Exists", None), ("in", "Exists", None)]),
        (
            "ex.com/a=1 , !b,c in (x,),d",
            [
                ("ex.com/a", "In", ("1",)),
                ("b", "DoesNotExist", None),
                ("c", "In", ("x", "")),
                ("d", "Exists", None),
            ],
        ),
    ],
)
def test_selector_text_reads_as_kubectl_reads_it(
    text: str, requirements: list[tuple[str, str, tuple[str, ...] | None]]
) -> None:
    found = parse_selector(text).match_expressions or ()
    assert requirements == [(r.key, r.operator, r.values) for r in found]


@pytest.mark.parametrize(
    "text",
    ["a,", "a, ", ",a", "a,,b", "a b", "a=b c", "!a=b", "a=b=c", "a in x", "a in (x", "a in (x y)"]
    + ["a in (x))", "=b", "a=b!", "-a", "a=-", "!", "a notin", "a/b/c=d"],
)
def test_selector_text_that_kubectl_refuses_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="in label selector"):
        parse_selector(text)
