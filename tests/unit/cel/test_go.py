"""Where cel-go and Go's libraries go ways of their own: what they say is what a selector means.

Each row was read in the sources of cel-go 0.26 and Kubernetes 1.36.
"""

import re

import pytest

from stower.cel.cost import MOST
from stower.cel.device import Device, compile_selector
from stower.cel.values import CelError
from stower.model.quantity import parse_quantity

GPU = Device("gpu.example.com", {"model": "a100"}, {"memory": parse_quantity("40Gi")})
ROOM = 'device.capacity["gpu.example.com"].memory'
TRUE = (
    # Times: a text is read by Go's time package, which is no stickler, and written as it was read.
    'string(timestamp("2023-03-26T01:30:00.25+02:00")) == "2023-03-26T01:30:00.25+02:00"',
    'timestamp("2023-03-26T01:30:00+02:00") == timestamp("2023-03-25T23:30:00Z")',
    'timestamp("2023-03-26T01:30:00+02:00").getHours() == 23',
    'string(timestamp("2023-03-26T01:30:00-07:30") + duration("1h")).endsWith("T02:30:00-07:30")',
    'string(timestamp("2023-03-26T1:30:00,5Z")) == "2023-03-26T01:30:00.5Z"',
    'timestamp("0000-12-31T23:00:00-02:00") == timestamp("0001-01-01T01:00:00Z")',
    'timestamp("9999-12-31T23:59:59Z").getFullYear("+05:30") == 10000',
    'timestamp("0001-01-01T00:00:00Z").getFullYear("-08:00") == 0',
    'timestamp(0).getHours("+99:00") == 3 && timestamp(0).getMinutes("-0:30") == 30',
    'timestamp("2024-07-01T12:00:00Z").getHours("Europe/Berlin") == 14',
    'timestamp("1873-10-05T12:45:00Z").getHours("Europe/Berlin") == 13',  # before there were zones
    'timestamp("9999-12-31T23:59:59Z").getFullYear("Europe/Berlin") == 10000',
    'timestamp(0).getFullYear("+1000000:00") == 2084',
    'string(duration("9223372036854775807ns")) == "9223372036.854776s"',
    'string(duration("-1500ms")) == "-1.5s" && string(duration("250ns")) == "0.00000025s"',
    'duration("1.s") == duration("1s") && duration(".5s") == duration("500ms")',
    'duration("0.3333333333333333333h") == duration("20m")',
    # Numbers: 64 bits are compared with a double as a double.
    "dyn(9223372036854775807) == 9223372036854775808.0",
    "9007199254740993 <= 9007199254740992.0",
    'double("0x1.8p1") == 3.0 && double("1_000.5") == 1000.5',
    # A text that begins beyond the end of another is nowhere in it.
    '"abc".indexOf("c", 5) == -1 && "abc".lastIndexOf("a", 5) == -1 && "".indexOf("a") == -1',
    '"".split("").size() == 0',
    # Keys keep their type, whichever number finds them.
    "{5u: 1}.all(k, k % 3u == 2u) && {5u: 1}[dyn(5)] == 1 && type({true: 1}.map(k, k)[0]) == bool",
    '{"a": 1, ?"a": optional.none()} == {}',
    '!(dyn([1]) in {"a": 1}) && !(dyn(null) in {"a": 1})',
    '{"a": 1}[?dyn([1])] == optional.none()',
    # Nothing is looked for in nothing.
    "!(1 / 0 in [])",
    # What has no order is not out of order.
    '[dyn(1), dyn("a")].isSorted() && [dyn("a"), dyn(1)].min() == "a"',
    # The sum of nothing has a type, too.
    '[duration("1s")].filter(d, false).sum() == duration("0s")',
    "[1u].filter(u, false).sum() + 1u == 1u",
    # Formats.
    '"%s".format([["a\\"", "b"]]) == "[\\"a\\\\\\"\\", \\"b\\"]"',
    '"%s".format([{"b": dyn(1.5), "a": dyn([duration("1s")])}]) == '
    '"{\\"a\\":[duration(\\"1s\\")], \\"b\\":1.500000}"',
    '"%f %.1e".format([dyn("NaN"), dyn("-Infinity")]) == "NaN -∞"',
    # Of all calls, `format` takes literals of mixed types, at any depth.
    '"%s %d".format([device.driver, 1]) == "gpu.example.com 1"',
    '"%s".format([[1, "a", {"b": 2, 3: true}]]) == "[1, \\"a\\", {\\"b\\":2, 3:true}]"',
    # Of two types that fit, a parameter is the more general one.
    "optional.of(1).orValue(dyn(true)) == 1 && optional.none() != null",
    # A sum is a quantity left of ==, and for Kubernetes none right of it.
    f'{ROOM}.add(1) == quantity("42949672961") && {ROOM}.sub(1).isLessThan({ROOM})',
    f"{ROOM} != {ROOM}.add(0) && !({ROOM} in [{ROOM}.add(0)])",
    # A fragment is no part of a path; two slashes begin a host even without a scheme.
    'url("https://u:p@a.b:80/p?k=v#f?x").getQuery() == {"k": ["v"]}',
    'url("https://a.b/p#f").getEscapedPath() == "/p" && url("//a.b/p").getHost() == "a.b"',
    'url("*").getEscapedPath() == "*"',
    'url("http://[fe80::1%25en0]:8/").getHostname() == "fe80::1%en0"',
    '!isURL("http://a\\b/") && !isURL("http://a%20b/") && !isURL("http://a:b/")',
    # Dates are days of months; times of dates take small letters and any sign before a fraction.
    'format.date().validate("2024-02-29") == optional.none()',
    'format.date().validate("2024-W01-1").hasValue()',
    'format.date().validate("2023-02-29").hasValue()',
    'format.datetime().validate("2024-01-01t23:59:59,5z") == optional.none()',
    'format.datetime().validate("2024-01-01T24:00:00Z").hasValue()',
    # Zeros before a number.
    f'int("-{"0" * 5000}9223372036854775808" + "") + 1 < 0 && int("+7") == 7 && uint("007") == 7u',
    f'duration("{"0" * 5000}1s" + "") == duration("1s")',
    # Versions.
    'semver("v01.2", true).minor() == 2 && isSemver("1.2.3-a.0+b.01") && !isSemver("1.2.3-01")',
    '!isSemver("v1-a", true) && !isSemver("1.2.3-18446744073709551616")',
    'semver("18446744073709551615.0.0").major() == -1',
)


@pytest.mark.parametrize("expression", TRUE)
def test_what_holds(expression: str) -> None:
    selector = compile_selector(expression)
    assert None is selector.error
    assert True is selector.matches(GPU)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("0.0 / 0.0 < 1.0", "NaN values cannot be ordered"),
        ('double(string(1) + "e400") > 1.0', "type conversion error from 'string' to 'double'"),
        # Of any length, whatever Python's int() says of them.
        *(
            (f'{function}("{"1" * 5000}{unit}" + "") == {function}("1{unit}")',
             f"type conversion error from 'string' to '{kind}'")
            for function, unit, kind in (
                ("int", "", "int"), ("uint", "", "uint"), ("double", "", "double"),
                ("duration", "s", "google.protobuf.Duration"),
            )
        ),
        (f'(device.driver + "%.{"1" * 5000}f").format([1.5]) == ""',
         "could not parse formatting clause: error while parsing precision: error while converting "
         f'precision to integer: strconv.Atoi: parsing "{"1" * 5000}": value out of range'),
        ('double("+nan" + "") == 1.0', "type conversion error from 'string' to 'double'"),
        ('timestamp("2024-01-01T00:00:00+25:00" + "") == timestamp(0)',
         "type conversion error from 'string' to 'google.protobuf.Timestamp'"),
        ('timestamp(0).getHours("x:00") == 0', 'strconv.Atoi: parsing "x": invalid syntax'),
        ('timestamp(0).getHours("Mars") == 0', "unknown time zone Mars"),
        ('"abc".substring(5, 4) == ""', "invalid substring range. start: 5, end: 4"),
        ('"abc".indexOf("a", -1) == 0', "index out of range: -1"),
        ("[1][dyn(1e308) * dyn(10.0)] == 1", "unsupported index value +Inf in list"),
        ("[1][dyn(0.5)] == 1", "unsupported index value 0.5 in list"),
        ('[1][?dyn("a")].hasValue()', "unsupported index type 'string' in list"),
        ("has(dyn([1]).a)", "unsupported index type 'string' in list"),
        ("{1: 2}[dyn([1])] == 2", "no such key: list"),
        ('"a".matches("[" + "")', "error parsing regexp: missing closing ]: `[`"),
        ('"a".find("*" + "") == ""',
         "Illegal regex: error parsing regexp: missing argument to repetition operator: `*`"),
        (f"{ROOM} == {ROOM}.add(0)", "no such overload"),
        ('(device.driver + "%.f").format([1.5]) == ""',
         "could not parse formatting clause: error while parsing precision: error while converting "
         'precision to integer: strconv.Atoi: parsing "": invalid syntax'),
        ('(device.driver + "%.2%").format([1.5]) == ""',
         'could not parse formatting clause: unrecognized formatting clause "%"'),
        ('semver("").major() == 1', "Version string empty"),
        ('semver("1.2").major() == 1', "No Major.Minor.Patch elements found"),
        ('semver("1.x.3").major() == 1', 'Invalid character(s) found in minor number "x"'),
        ('semver("1.2.03").major() == 1', 'Patch number must not contain leading zeroes "03"'),
        ('semver("1.2.3-01").major() == 1',
         'Numeric PreRelease version must not contain leading zeroes "01"'),
        ('semver("1.2.3+").major() == 1', "Build meta data is empty"),
        ('semver("1.2-a", true).major() == 1',
         "short version cannot contain PreRelease/Build meta data"),
        ('(device.driver + "%").format([1.5]) == ""', "unexpected end of string"),
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
        # Formats are checked where they are literals.
        ('"%d".format([1.5]) == ""', "1:14: error during formatting: decimal clause can only be "
         "used on integers, was given double"),
        ('"%s".format([[optional.of(1)]]) == ""', "1:26: error during formatting: string clause "
         "can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
         "and timestamps, was given optional_type"),
        ('"%s".format([device.attributes["a"].b]) == ""', "1:36: error during formatting: string "
         "clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, "
         "durations, and timestamps, was given google.protobuf.Any"),
        ('"%s%s".format([1]) == ""', "1:14: index 1 out of range"),
        ('"%s".format([1, 2]) == ""', "1:12: too many arguments supplied to string.format "
         "(expected 1, got 2)"),
        ('"%q".format([1]) == ""', "1:12: could not parse formatting clause: unrecognized "
         'formatting clause "q"'),
        (f"1 == {'1' * 5000}", "1:6: Syntax error: invalid int literal"),
        # A logical operator that is wrong already is no cause for more.
        ("(1 && true) == 1", "1:2: expected type 'bool' but found 'int'"),
        ("[1].all(__result__, true)", "1:9: iteration variable overwrites accumulator variable"),
        ("[dyn(1), 2].size() == 2", "1:10: expected type 'dyn' but found 'int'"),
        ('1 in [1, "a", 2.0]', "1:10: expected type 'int' but found 'string'"),
        ('"%d %d".format(["a", 1]) == ""', "1:17: error during formatting: decimal clause can only "
         "be used on integers, was given string"),
    ],
)  # fmt: skip
def test_what_is_no_selector(expression: str, message: str) -> None:
    """Of each thing that is wrong: the place and the words."""
    error = str(compile_selector(expression).error)
    said = [line for line in error.split("\n") if "<input>" in line]
    assert [f"compilation failed: ERROR: <input>:{message}"] == said


def test_a_map_shows_every_value_of_another_type() -> None:
    """A list shows the first."""
    error = compile_selector("{1: dyn(1), 2: 2, 3: 3}.size() == [1, dyn(2), dyn(3)].size()").error
    places = re.findall("<input>:1:([0-9]+)", str(error))
    assert ["16", "22", "42"] == places


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ('int(dyn("x")) == 1 || true', "type conversion error from 'string' to 'int'"),
        ('int(string("x")) == 1', "type conversion error from 'string' to 'int'"),
        ('"a".find("[") == ""', "error parsing regexp: missing closing ]: `[`"),
        ('matches(device.driver, "(")', "error parsing regexp: missing closing ): `(`"),
    ],
)
def test_what_can_be_made_no_program(expression: str, message: str) -> None:
    """Constants are converted and patterns compiled beforehand, wherever they stand."""
    assert f"program instantiation failed: {message}" == compile_selector(expression).error


def test_a_split_without_a_limit_may_be_of_any_length() -> None:
    """Upstream takes -1 for the largest size."""
    cost = compile_selector('device.driver.split("a", -1).exists(p, p == "")').cost
    assert MOST == cost
    assert MOST > compile_selector('device.driver.split("a", 2).exists(p, p == "")').cost
