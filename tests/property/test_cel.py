"""CEL against Google's own evaluator: random expressions have the same value, type or fault.

The oracle is cel-cpp, the truth is cel-go as Kubernetes uses it. Where those two differ, no
expression is written (the writer says why), and examples in the unit tests take its place. The
oracle cannot run transformMap, and has no quantities, versions or other functions of Kubernetes.
"""

import math
import random
from typing import Any, Final

import pytest
from cel_expr_python import cel
from hypothesis import given, settings
from hypothesis import strategies as st

from stower.cel.checker import Checker, Environment
from stower.cel.device import Device, Gates, environment
from stower.cel.literals import check_literals
from stower.cel.macros import MACROS
from stower.cel.program import Instantiation, build
from stower.cel.syntax import CompileError, Parser
from stower.cel.types import parse_type
from stower.cel.values import CelError, Uint, type_name, value_of
from tests.property.cel_expressions import Choose, Writer, for_oracle, for_us
from tests.property.cel_words import TIME_PARTS, TIMES

VARIABLES: Final[dict[str, tuple[str, Any]]] = {
    "i": ("int", 3),
    "s": ("string", "model-é"),
    "b": ("bool", True),
    "f": ("double", 2.5),
    "numbers": ("list(int)", [3, 1, 2, 3]),
    "words": ("list(string)", ["b", "a", ""]),
    "m": ("map(string, int)", {"a": 1, "b": -2}),
    "labels": ("map(string, string)", {"a": "x", "long": "y_z 12"}),
    "none": ("map(string, int)", {}),
    "nothing": ("list(int)", []),
}
GPU: Final = Device(
    "gpu.example.com",
    {"model": "a100", "numa": 1, "healthy": True, "other.example.com/root": "pci0"},
    {},
)
DEVICE: Final[dict[str, tuple[str, Any]]] = {
    "device.driver": ("string", GPU.driver),
    "device.allowMultipleAllocations": ("bool", False),
    "device.attributes": (
        "map(string, map(string, dyn))",
        {domain: dict(names) for domain, names in GPU.attributes.items()},
    ),
}
TYPES: Final = {name: type_ for name, (type_, _) in (VARIABLES | DEVICE).items()}
ENVIRONMENT: Final = Environment(
    {name: parse_type(type_) for name, (type_, _) in VARIABLES.items()}
    | dict(environment(Gates(list_attributes=True)).variables),
    environment(Gates(list_attributes=True)).fields,
)
DATA: Final = {name: value for name, (_, value) in VARIABLES.items()} | {"device": GPU}
ORACLE: Final = cel.NewEnv(
    config=cel.NewEnvConfigFromYaml(
        "name: kubernetes\nextensions:\n"
        + "".join(
            f"- name: {name}\n"
            for name in "bindings lists optional sets strings two-var-comprehensions".split()
        )
    ),
    variables={
        name: cel.Type(type_.replace("(", "<").replace(")", ">")) for name, type_ in TYPES.items()
    },
)
ORACLE_DATA: Final = {name: value for name, (_, value) in (VARIABLES | DEVICE).items()}
ROOTS: Final = (
    "bool", "bool", "bool", "int", "uint", "double", "string", "bytes", "list(int)",
    "list(string)", "map(string, int)", "map(int, string)", "duration", "timestamp",
    "optional(int)", "list(list(int))",
)  # fmt: skip
Outcome = tuple[Any, ...]


def plain_key(key: Any) -> str:
    """A key as text; the oracle hands out 1u as 1."""
    return str(int(key)) if type(key) is Uint else repr(key)


def plain(value: Any) -> Any:
    """A value with its type, so that 1, 1u, 1.0 and true differ."""
    kind = type_name(value)
    if kind == "list":
        return [plain(item) for item in value]
    if kind == "map":
        return {plain_key(value_of(key)): plain(item) for key, item in value.items()}
    if kind == "double":
        return kind, "nan" if math.isnan(value) else repr(value)
    if kind in ("int", "uint"):
        return kind, int(value)
    if kind.startswith("google.protobuf."):
        return (kind.rpartition(".")[2].lower(),)
    return kind, value


def outcome(text: str) -> Outcome:
    """What we make of it: a value, or when it failed."""
    try:
        checked = Checker(ENVIRONMENT).check(Parser(text, MACROS).parse())
        check_literals(checked)
    except CompileError:
        return ("no expression",)
    try:
        return "value", plain(build(checked, list(DATA), None)(list(DATA.values())))
    except (CelError, Instantiation):
        return ("error",)


def oracles(value: Any) -> Any:
    """`plain`, of a value of the oracle."""
    kind = value.type().name().lower().partition("<")[0]
    if kind == "list":
        return [oracles(item) for item in value.value()]
    if kind == "map":
        return {plain_key(key): oracles(item) for key, item in value.value().items()}
    if kind == "double":
        return plain(float(value.value()))
    if kind == "bytes":
        return kind, bytes(value.value())
    if kind in TIMES:
        return (kind,)
    return kind, value.value()


def expected_outcome(text: str) -> Outcome | None:
    """What the oracle makes of it; None where it loses its way.

    It takes one loop's variables for another's, at times, where `sortBy` comes after a loop that
    ended early: then there is nothing to go through.
    """
    try:
        expression = ORACLE.compile(text)
    except RuntimeError:
        return ("no expression",)
    try:
        value = expression.eval(data=ORACLE_DATA)
    except RuntimeError:
        return ("error",)
    if value.type().name() == "ERROR":
        return None if "<iter_range>" in str(value.value()) else ("error",)
    return "value", oracles(value)


def write_root(choose: Choose) -> str:
    """An expression whose value both can hand out."""
    type_ = choose(ROOTS)
    text = Writer(choose, TYPES).write(type_, choose((1, 2, 2, 3, 3, 4))).text
    if type_.startswith("optional"):
        return f"[?{text}]"
    if type_ == "duration":
        text = f"timestamp(0) + ({text})"
    if type_ in TIMES:
        # Python's own have no nanoseconds, and the oracle writes times in its own way.
        parts = ", ".join(f"t.{part}()" for part in TIME_PARTS)
        return f"[{text}].map(t, [int(t), {parts}])"
    return text


@st.composite
def expressions(draw: st.DrawFn) -> str:
    return write_root(lambda options: draw(st.sampled_from(options)))


def check(text: str) -> None:
    """The law: we make of the expression what the oracle does."""
    expected = expected_outcome(for_oracle(text))
    if expected is not None:
        assert expected == outcome(for_us(text)), for_us(text)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(expressions())
def test_an_expression_means_what_it_means_to_the_oracle(text: str) -> None:
    """Value and type are the same; or both find no expression, or both no value."""
    check(text)


@pytest.mark.more
@pytest.mark.parametrize("seed", range(40))
def test_many_expressions_mean_what_they_mean_to_the_oracle(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(5_000):
        check(write_root(lambda options: options[chance.randrange(len(options))]))
