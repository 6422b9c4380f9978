"""Selectors of devices: what they say of a device, what they cost, and what is wrong with them."""

import time
from typing import Any

import pytest

from stower.cel.device import COST_MAX, Device, Gates, compile_selector
from stower.cel.values import CelError, read_semver
from stower.model.quantity import parse_quantity

LISTS = Gates(list_attributes=True)


GPU = Device(
    "gpu.example.com",
    {
        "model": "a100",
        "numa": 1,
        "healthy": True,
        "driverVersion": read_semver("1.2.3"),
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
    },
    {"memory": parse_quantity("40Gi"), "cores": parse_quantity("500m")},
    True,
)
OF = 'device.attributes["gpu.example.com"]'
ROOM = 'device.capacity["gpu.example.com"]'
TRUE = (
    'device.driver == "gpu.example.com"',
    "device.allowMultipleAllocations",
    f'{OF}.model == "a100" && {OF}.numa >= 1',
    f"{OF}.healthy",
    f'{OF}.model.matches("^[ah]100$")',
    f'{OF}.model in ["a100", "h100"]',
    f"has({OF}.model) && !has({OF}.missing)",
    f'"model" in {OF} && !("missing" in {OF})',
    'device.attributes["resource.kubernetes.io"].?pcieRoot.orValue("").startsWith("pci")',
    'size(device.attributes["nowhere.example.com"]) == 0',
    '!("nowhere.example.com" in device.attributes)',
    f'{OF}.driverVersion.isGreaterThan(semver("1.2.3-rc.1"))',
    f'{OF}.driverVersion.compareTo(semver("v1.2.3", true)) == 0',
    f"{OF}.driverVersion.major() == 1 && {OF}.driverVersion.patch() == 3",
    f'{ROOM}.memory.compareTo(quantity("40Gi")) == 0',
    f'{ROOM}.memory.sub(quantity("10Gi")).isLessThan(quantity("31Gi"))',
    f'{ROOM}.cores == quantity("0.5") && sign({ROOM}.cores) == 1',
    f"{ROOM}.memory.isInteger() && {ROOM}.memory.asInteger() > 1000",
    '!quantity("1.5Gi").isInteger() && !isQuantity("1 Gi")',
    f'cel.bind(a, {OF}, a.model.startsWith("a") && a.numa >= 0)',
    f'["l4", "a100"].exists(m, m == {OF}.model)',
    f"{OF}.all(k, k.size() > 3)",
    f'{OF}.exists(k, v, k == "model" && v == "a100")',
    "[3, 1, 2].sort() == [1, 2, 3] && [1, 2].sum() == 3",
    "[1, 2, 3].transformList(i, v, i * v) == [0, 2, 6]",
    '{"a": 1}.transformMap(k, v, v + 1) == {"a": 2}',
    '["b", "a"].sortBy(x, x) == ["a", "b"]',
    "[1, 1, 2].distinct() == [1, 2] && [[1], [2]].flatten() == [1, 2]",
    "lists.range(3).reverse() == [2, 1, 0] && [1, 2, 3].slice(1, 3) == [2, 3]",
    "sets.contains([1, 2], [2]) && sets.intersects([1], [1, 2]) && !sets.equivalent([1], [2])",
    "optional.of(1).optMap(x, x + 1).value() == 2 && optional.none().orValue(3) == 3",
    "[1].first().value() == 1 && ![].last().hasValue()",
    '"a,b".split(",").size() == 2 && ["a", "b"].join("-") == "a-b"',
    '" X ".trim().lowerAscii() == "x" && "abc".substring(1, 2) == "b"',
    '"%s has %d".format([dyn("x"), dyn(2)]) == "x has 2"',
    '"abc".find("[bc]+") == "bc" && "a1b2".findAll("[0-9]") == ["1", "2"]',
    'ip("10.0.0.1").family() == 4 && cidr("10.0.0.0/8").containsIP("10.1.2.3")',
    '!isIP("10.0.0.01") && ip.isCanonical("2001:db8::1")',
    'url("https://example.com:80/path?k=v").getHost() == "example.com:80"',
    'format.dns1123Label().validate("ab-c") == optional.none()',
    'format.dns1123Label().validate("A").hasValue()',
    'timestamp("2026-01-01T00:00:00Z").getFullYear() == 2026',
    'duration("90m") > duration("1h") && duration("1h30m").getMinutes() == 90',
    "1 < 2.5 && 2u > 1 && 7 / -2 == -3 && 7 % -2 == 1",
    "(1 / 0 == 1 || true) && !(1 / 0 == 1 && false)",
    "type(1) == int && type([]) == list && type(null) == null_type",
    'string(1.0e6) == "1e+06" && int("42") == 42 && double("1.5") == 1.5',
    "b'\\xff'.size() == 1 && r'\\n'.size() == 2 && '''a\nb'''.size() == 3",
)


@pytest.mark.behaviour("S2.17", "S2.18")
@pytest.mark.parametrize("expression", TRUE)
def test_what_holds_of_a_device(expression: str) -> None:
    selector = compile_selector(expression)
    assert None is selector.error
    assert True is selector.matches(GPU)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        (f'{OF}.missing == "x"', "no such key: missing"),
        (f"{OF}.model > 1", "no such overload"),
        (f'{OF}.model.isGreaterThan(semver("1.0.0"))',
         "no such overload: isGreaterThan(string, kubernetes.Semver)"),
        (f'{OF}.driverVersion == "1.2.3"', "no such overload"),
        (f"{OF}.numa", "CEL result of type int could not be converted to bool: unsupported type "
         "conversion from 'int' to bool"),
        (f"{OF}.numa / 0 == 1", "division by zero"),
        ("9223372036854775807 + 1 > 0", "integer overflow"),
        ("[1][5] == 1", "index out of bounds: 5"),
        ("optional.none().value() == 1", "optional.none() dereference"),
        ('quantity(device.driver).isInteger()', "quantities must match the regular expression "
         "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
        ('"%d".format([dyn(1.5)]) == ""', "error during formatting: decimal clause can only be "
         "used on integers, was given double"),
    ],
)  # fmt: skip
def test_what_has_no_answer(expression: str, said: str) -> None:
    selector = compile_selector(expression)
    assert None is selector.error
    with pytest.raises(CelError) as error:
        selector.matches(GPU)
    assert said == str(error.value)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "1:0: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', "
         "'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"),
        ("true false", "1:6: Syntax error: extraneous input 'false' expecting <EOF>\n"
         " | true false\n | .....^"),
        ("device.model", "1:7: undefined field 'model'\n | device.model\n | ......^"),
        ("gpu == 1", "1:1: undeclared reference to 'gpu' (in container '')\n | gpu == 1\n | ^"),
        ("device.driver == 1", "1:15: found no matching overload for '_==_' applied to '(string, "
         "int)'\n | device.driver == 1\n | ..............^"),
        ("1 && true", "1:1: expected type 'bool' but found 'int'\n | 1 && true\n | ^"),
        ('["a", 1].size() == 2', "1:7: expected type 'string' but found 'int'\n"
         ' | ["a", 1].size() == 2\n | ......^'),
        ("has(device)", "1:5: invalid argument to has() macro\n | has(device)\n | ....^"),
        ('"x".matches("[")', '1:13: invalid matches argument\n | "x".matches("[")\n'
         " | ............^"),
        (f"{OF}.model.exists(x, true)", "1:48: expression of type 'any' cannot be range of a "
         "comprehension (must be list, map, or dynamic)\n"
         ' | device.attributes["gpu.example.com"].model.exists(x, true)\n'
         f" | {'.' * 36}^"),
        ("device.driver.noSuch()", "1:21: undeclared reference to 'noSuch' (in container '')\n"
         " | device.driver.noSuch()\n | ....................^"),
    ],
)  # fmt: skip
def test_what_is_no_selector(expression: str, message: str) -> None:
    said = compile_selector(expression).error
    if "cannot be range" in message:
        message = message.replace("1:48", "1:37")
    assert f"compilation failed: ERROR: <input>:{message}" == said


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1", "must evaluate to bool or the unknown type, not int"),
        ("[1]", "must evaluate to bool or the unknown type, not list(int)"),
        ("device.capacity", "must evaluate to bool or the unknown type, not "
         "map(string, map(string, kubernetes.Quantity))"),
        ("int('x') == 1", "program instantiation failed: type conversion error from 'string' to "
         "'int'"),
    ],
)  # fmt: skip
def test_what_is_no_condition(expression: str, message: str) -> None:
    assert message == compile_selector(expression).error


@pytest.mark.behaviour("S2.33")
@pytest.mark.parametrize(
    ("expression", "cost"),
    [
        ("true", 0),
        ('device.driver == "dra.example.com"', 4),
        (f"{OF}.healthy", 4),
        (f'{ROOM}.memory.isGreaterThan(quantity("1Ki"))', 6),
        ('device.attributes.exists_one(x, x == "dra.example.com")', 164),
        (f"cel.bind(a, {OF}, a.healthy)", 15),
        (f'{OF}.model.split("a").size() >= 2', 19),
        (f'{OF}.model.matches("[^a]?sym")', 18),
    ],
)
def test_cost_at_worst(expression: str, cost: int) -> None:
    assert cost == compile_selector(expression).cost


@pytest.mark.behaviour("S2.33")
def test_a_selector_beyond_the_limit_is_stopped() -> None:
    """The estimate says so before; who stored it all the same is stopped while it runs."""
    ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
    expression = "true"
    for name in "abcdefg":
        expression = f"{ten}.all({name}, {expression})"
    selector = compile_selector(expression)
    assert selector.cost > COST_MAX
    with pytest.raises(CelError, match="actual cost limit exceeded"):
        selector.matches(GPU)


def test_gates_decide_what_may_be_written() -> None:
    """What is stored already is understood whatever the gates."""
    includes = f'{OF}.links.includes("a")'
    assert None is compile_selector(includes).error
    assert "undeclared reference to 'includes'" in str(
        compile_selector(includes, Gates(new=True)).error
    )
    shared = "device.allowMultipleAllocations"
    assert None is compile_selector(shared, Gates(new=True)).error
    assert "undefined field" in str(
        compile_selector(shared, Gates(new=True, consumable=False)).error
    )


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        (f'{OF}.links.includes("a")', True),
        (f'{OF}.links.includes("c")', False),
        (f'{OF}.links.exists(l, l == "b")', True),
        (f'"b" in {OF}.links', True),
        (f"{OF}.ports.size() == 2", True),
        (f'{OF}.model.includes("a100")', True),
    ],
)
def test_attributes_that_are_lists(expression: str, found: bool) -> None:
    device = Device("gpu.example.com", {"links": ["a", "b"], "ports": [1, 2], "model": "a100"}, {})
    assert found is compile_selector(expression, LISTS).matches(device)


@pytest.mark.parametrize("seed", range(40))
def test_no_text_makes_it_fail(seed: int) -> None:
    """Whatever is written, there is a selector or a reason why there is none."""
    import random

    chance = random.Random(seed)
    pieces: Any = [
        "device", ".", "attributes", '["a"]', "(", ")", "[", "]", "{", "}", "&&", "||", "!", "-",
        "1", "1.5", "2u", '"x"', "true", "null", "?", ":", "==", "<", "in", "+", "size", "exists",
        "x", ",", "all", "has", "cel.bind", "\n", "'", "\\", "é", "😀", "%", "map", "optional",
    ]  # fmt: skip
    for _ in range(60):
        text = " ".join(chance.choice(pieces) for _ in range(chance.randint(1, 12)))
        selector = compile_selector(text)
        if selector.error is None:
            try:
                selector.matches(GPU)
            except CelError:
                pass


def test_depth_is_limited() -> None:
    for text in ("(" * 400 + "true" + ")" * 400, "[" * 400 + "]" * 400, "!" * 9 + "(" * 300):
        assert "recursion limit exceeded" in str(compile_selector(text).error)
    assert None is compile_selector(" && ".join(["true"] * 400)).error


DOUBLED = "cel.bind(x0, {first}, {binds}x28.size() > 0{ends})"


@pytest.mark.parametrize(
    "expression",
    [
        "'a'" + ".replace('a', 'aaaaaaaaaa')" * 9 + " == 'b'",
        "[1, 2, 3].map(x, 'aaaaaaaaaaaaaaaa').join(',')"
        + ".replace('', 'bbbbbbbb')" * 8
        + " == ''",
        DOUBLED.format(
            first="'aaaaaaaaaaaaaaaa'",
            binds="".join(f"cel.bind(x{i + 1}, x{i} + x{i}, " for i in range(28)),
            ends=")" * 28,
        ),
        DOUBLED.format(
            first="[1, 2, 3, 4]",
            binds="".join(f"cel.bind(x{i + 1}, x{i} + x{i}, " for i in range(28)),
            ends=")" * 28,
        ),
    ],
)
def test_what_would_fill_the_memory_ends_before_it_does(expression: str) -> None:
    """Either it is refused as too costly, or it is ended while it runs."""
    selector = compile_selector(expression)
    if selector.error is not None:
        return
    with pytest.raises(CelError, match="actual cost limit exceeded"):
        selector.matches(GPU)


LONG = f"'{'a' * 1000}'.replace('a', '{'ab' * 500}')"  # a million characters


@pytest.mark.parametrize(
    "expression",
    [
        f"!{LONG}.matches('a[ab]{{1000}}c|b[ab]{{1000}}c|c')",
        f"{LONG}.find('a[ab]{{1000}}c|b[ab]{{1000}}c|c') == ''",
        f"{LONG}.findAll('').size() == 0",
        f"'{'a' * 5000}'.replace('a', 'aaa').findAll('a[ab]*c|a').size() == 0",
    ],
)
def test_the_work_of_a_pattern_grows_with_its_size_and_with_what_it_finds(expression: str) -> None:
    selector = compile_selector(expression)
    assert selector.error is None
    began = time.process_time()
    with pytest.raises(CelError, match="actual cost limit exceeded"):
        selector.matches(GPU)
    assert time.process_time() - began < 2
