"""Random expressions of CEL, mostly well typed, for asking two evaluators the same thing.

A writer asks `choose` for every decision, so that Hypothesis can shrink what it wrote. Types are
texts: `int`, `list(string)`, `map(string, int)`, `optional(int)`.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from tests.property.cel_words import (
    CONVERTIBLE,
    DEVICE,
    FORMATS,
    KEYS,
    LITERALS,
    MAP_KEYS,
    NUMBERS,
    PATTERNS,
    SCALARS,
    TIME_PARTS,
    TIME_TEXTS,
    TIMES,
    TYPE_NAMES,
)

Choose = Callable[[Sequence[Any]], Any]
# Stands for `dyn` in what the oracle is given, and for nothing in what we are.
ONLY_ORACLE: Final = "§"

_CONSTANT: Final = re.compile(r"(?:\(|[a-z]+\()*-?(?:[.0-9]|true|false|[rb]?[\"'])")


class Text(NamedTuple):
    """What was written, and how tightly its outermost operator binds."""

    text: str
    strength: int = 9


# How tightly operators bind.
_TERNARY, _OR, _AND, _RELATION, _SUM, _PRODUCT, _UNARY, _MEMBER = range(1, 9)


def for_oracle(text: str) -> str:
    """The expression, where it compares numbers of two types, which the oracle does for dyn."""
    return text.replace(ONLY_ORACLE, "dyn")


def for_us(text: str) -> str:
    """The expression as it is to be."""
    return text.replace(ONLY_ORACLE, "")


def arguments(type_: str) -> list[str]:
    """What stands between a type's brackets."""
    inner = type_[type_.index("(") + 1 : -1]
    depth, parts, part = 0, [], ""
    for sign in inner:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += sign
    return [*parts, part.strip()]


class Writer:
    """Writes expressions of a type, over the variables it is given (name: type)."""

    def __init__(self, choose: Choose, variables: dict[str, str]) -> None:
        self.choose = choose
        self.scope = dict(variables)
        self.fresh = 0
        self.strict = 0

    # ------------------------------------------------------------------------------ helpers

    def chance(self, one_in: int) -> bool:
        return self.choose(range(one_in)) == one_in - 1

    def name(self) -> str:
        """A new variable; sometimes one that hides another."""
        self.fresh += 1
        return "x" if self.chance(6) else f"v{self.fresh}"

    def wrapped(self, written: Text, least: int) -> str:
        """In brackets where needed, or at times where not."""
        if written.strength < least or self.chance(12):
            return f"({written.text})"
        return written.text

    def operand(self, type_: str, depth: int, least: int) -> str:
        return self.wrapped(self.write(type_, depth - 1), least)

    def target(self, type_: str, depth: int) -> str:
        return self.operand(type_, depth, _MEMBER)

    def typed_target(self, type_: str, depth: int) -> str:
        """One of which both know that it has this type, which decides what comes of it."""
        self.strict += 1
        text = self.target(type_, depth)
        self.strict -= 1
        return text

    def arg(self, type_: str, depth: int) -> str:
        return self.write(type_, depth - 1).text

    def strictly(self, type_: str, depth: int) -> str:
        """An expression whose type both know to be this one: in literals of lists and maps.

        The oracle takes mixed ones for lists of dyn; Kubernetes forbids them.
        """
        self.strict += 1
        text = self.write(type_, depth - 1).text
        self.strict -= 1
        return text

    def within(self, names: dict[str, str], type_: str, depth: int) -> str:
        """An expression that may use some more names."""
        before = dict(self.scope)
        self.scope.update(names)
        text = self.write(type_, depth - 1).text
        self.scope = before
        return text

    def scalar(self) -> str:
        return str(self.choose(SCALARS))

    def any_type(self) -> str:
        kind = self.choose(range(8))
        if kind < 5:
            return self.scalar()
        if kind == 5:
            return f"list({self.scalar()})"
        if kind == 6:
            return f"map({self.choose(KEYS)}, {self.scalar()})"
        return str(self.choose(TIMES))

    # -------------------------------------------------------------------------------- write

    def write(self, type_: str, depth: int) -> Text:
        """An expression of the type; now and then of another one, or of none known."""
        is_plain = not self.strict and not type_.startswith("optional")
        if is_plain and self.chance(90):
            return self.write(self.any_type(), depth)
        if depth > 0 and is_plain and self.chance(30):
            return Text(f"dyn({self.arg(self.any_type() if self.chance(3) else type_, depth)})")
        if depth <= 0 or self.chance(6):
            return self.leaf(type_)
        if self.chance(8):
            return self.general(type_, depth)
        kind = type_.partition("(")[0]
        return getattr(self, f"_{kind}")(type_, depth)  # type: ignore[no-any-return]

    def leaf(self, type_: str) -> Text:
        if not self.strict and type_ in DEVICE and self.chance(8):
            return Text(self.choose(DEVICE[type_]))
        fitting = [name for name, other in self.scope.items() if other == type_]
        if fitting and not self.chance(3):
            return Text(self.choose(fitting))
        kind = type_.partition("(")[0]
        if kind in LITERALS:
            text = self.choose(LITERALS[kind])
            return Text(text, _UNARY if text[0] == "-" else 9)
        if kind == "list":
            item = arguments(type_)[0]
            count = self.choose(range(1, 4))
            return Text(f"[{', '.join(self.strict_leaf(item) for _ in range(count))}]")
        if kind == "map":
            return self.map_literal(type_, 0)
        if kind == "optional":
            # None of a known type: of what, the checkers guess in different ways.
            inner = self.strict_leaf(arguments(type_)[0])
            return Text(f"[{inner}][?9]" if self.chance(3) else f"optional.of({inner})")
        if kind == "dyn":
            return Text(f"dyn({self.leaf(self.scalar()).text})")
        raise AssertionError(type_)

    def strict_leaf(self, type_: str) -> str:
        self.strict += 1
        text = self.leaf(type_).text
        self.strict -= 1
        return text

    def general(self, type_: str, depth: int) -> Text:
        """What gives a value of any type."""
        match self.choose(range(6)):
            case 0:
                test = self.operand("bool", depth, _OR)
                then, other = self.operand(type_, depth, _OR), self.operand(type_, depth, _TERNARY)
                return Text(f"{test} ? {then} : {other}", _TERNARY)
            case 1:
                index = self.choose(("0", "1", "2", self.arg("int", depth), "dyn(1.0)", "dyn(1u)"))
                return Text(f"{self.typed_target(f'list({type_})', depth)}[{index}]")
            case 2:
                key = self.choose(KEYS)
                target = self.typed_target(f"map({key}, {type_})", depth)
                return Text(f"{target}[{self.arg(key, depth)}]")
            case 3:
                target = self.target(f"optional({type_})", depth)
                if self.chance(4):
                    return Text(f"{target}.value()")
                return Text(f"{target}.orValue({self.arg(type_, depth)})")
            case 4:
                name, other = self.name(), self.any_type()
                value = self.strictly(other, depth)
                return Text(
                    f"cel.bind({name}, {value}, {self.within({name: other}, type_, depth)})"
                )
            case _:
                field = self.choose(("a", "b", "missing"))
                return Text(f"{self.typed_target(f'map(string, {type_})', depth)}.{field}")

    # ------------------------------------------------------------------------------ numbers

    def arithmetic(self, type_: str, depth: int, signs: str) -> Text:
        sign = self.choose(signs)
        strength = _SUM if sign in "+-" else _PRODUCT
        left, right = self.operand(type_, depth, strength), self.operand(type_, depth, strength + 1)
        return Text(f"{left} {sign} {right}", strength)

    def converted(self, type_: str, depth: int) -> Text:
        source = self.choose(CONVERTIBLE[type_])
        if source == "string" and type_ in NUMBERS:
            # The oracle takes numbers in blanks: not from any text.
            text = f"string({self.arg(self.choose(NUMBERS), depth)})"
            text = self.choose((text, "s", "'12'", "'-3'", "'1.5'", "'1e3'", "''", "'x'"))
        elif source == "string" and type_ in TIMES:
            # Nor dates with a year of three digits.
            text = self.choose(("s", *TIME_TEXTS))
        else:
            text = self.strictly(source, depth)
        # A constant that cannot be converted is refused by cel-go before anything is evaluated.
        return Text(f"{type_}([{text}][0])" if _CONSTANT.match(text) else f"{type_}({text})")

    def _int(self, type_: str, depth: int) -> Text:
        match self.choose(range(11)):
            case 0 | 1 | 2:
                return self.arithmetic(type_, depth, "+-*/%")
            case 3:
                return Text(f"-{self.operand('int', depth, _MEMBER)}", _UNARY)
            case 4 | 5:
                return self.converted(type_, depth)
            case 6:
                sized = self.choose(("string", "bytes", "list(int)", "map(string, int)"))
                if self.chance(8):
                    # What comes of flattening is a list of dyn to the oracle.
                    nested = self.typed_target("list(list(int))", depth)
                    return Text(
                        f"{nested}.flatten({self.choose(('', '0', '1', '2', '-1'))}).size()"
                    )
                if self.chance(2):
                    return Text(f"size({self.arg(sized, depth)})")
                return Text(f"{self.target(sized, depth)}.size()")
            case 7 | 8:
                function = self.choose(("indexOf", "lastIndexOf"))
                part = self.arg("string", depth)
                # Lists have these functions, too, in Kubernetes.
                target = self.typed_target("string", depth)
                if self.chance(3):
                    # Beyond the end is an error to the oracle, and nowhere to cel-go.
                    start = self.choose(("0", "1", "2"))
                    return Text(f"({target} + 'abc').{function}({part}, {start})")
                return Text(f"{target}.{function}({part})")
            case 9:
                part = self.choose(TIME_PARTS)
                zone = self.choose(("", "", "'UTC'", "'+05:30'", "'-08:00'", "'Europe/Berlin'"))
                return Text(f"{self.target('timestamp', depth)}.{part}({zone})")
            case _:
                part = self.choose(("getHours", "getMinutes", "getSeconds"))
                return Text(f"{self.target('duration', depth)}.{part}()")

    def _uint(self, type_: str, depth: int) -> Text:
        if self.chance(3):
            return self.converted(type_, depth)
        return self.arithmetic(type_, depth, "+-*/%")

    def _double(self, type_: str, depth: int) -> Text:
        if self.chance(3):
            return self.converted(type_, depth)
        if self.chance(5):
            return Text(f"-{self.operand('double', depth, _MEMBER)}", _UNARY)
        if self.chance(4):
            # By no more than a number: NaN is compared with an error in cel-go, as false here.
            by = self.choose(("2.0", "-0.5", "1e-3", "3.0"))
            return Text(f"{self.operand(type_, depth, _PRODUCT)} / {by}", _PRODUCT)
        return self.arithmetic(type_, depth, "+-*")

    # --------------------------------------------------------------------------------- bool

    def _bool(self, type_: str, depth: int) -> Text:
        match self.choose(range(14)):
            case 0 | 1 | 2:
                return self.compared(depth)
            case 3 | 4:
                return self.logic(depth)
            case 5:
                return Text(f"!{self.operand('bool', depth, _MEMBER)}", _UNARY)
            case 6:
                return self.contained(depth)
            case 7:
                field = self.choose(("a", "b", "missing"))
                return Text(f"has({self.typed_target('map(string, int)', depth)}.{field})")
            case 8:
                function = self.choose(("startsWith", "endsWith", "contains"))
                target, part = self.target("string", depth), self.arg("string", depth)
                return Text(f"{target}.{function}({part})")
            case 9:
                pattern = self.choose(PATTERNS)
                return Text(f"{self.target('string', depth)}.matches({pattern})")
            case 10 | 11:
                return self.quantified(depth)
            case 12:
                if self.chance(3):
                    return self.converted(type_, depth)
                if self.chance(3):
                    return Text(f"{self.target('optional(int)', depth)}.hasValue()")
                type_name = self.choose(TYPE_NAMES)
                return Text(f"type({self.arg(self.any_type(), depth)}) == {type_name}", _RELATION)
            case _:
                item = self.scalar()
                function = self.choose(("contains", "equivalent", "intersects"))
                one, other = (self.arg(f"list({item})", depth) for _ in range(2))
                return Text(f"sets.{function}({one}, {other})")

    def compared(self, depth: int) -> Text:
        sign = self.choose(("<", "<=", ">", ">=", "==", "!="))
        if sign in ("==", "!="):
            type_ = self.any_type()
            other = type_
        else:
            type_ = self.choose((*SCALARS, *TIMES))
            other = self.choose(NUMBERS) if type_ in NUMBERS else type_
        if type_ not in NUMBERS:
            left, right = self.operand(type_, depth, _RELATION), self.operand(other, depth, _SUM)
            return Text(f"{left} {sign} {right}", _RELATION)
        left, right = self.strictly(type_, depth), self.strictly(other, depth)
        if other == type_:
            return Text(f"({left}) {sign} ({right})", _RELATION)
        return Text(f"{ONLY_ORACLE}({left}) {sign} ({right})", _RELATION)

    def logic(self, depth: int) -> Text:
        sign, strength = self.choose((("&&", _AND), ("||", _OR)))
        terms = [
            self.operand("bool", depth, strength + 1) for _ in range(self.choose((2, 2, 3, 4)))
        ]
        return Text(f" {sign} ".join(terms), strength)

    def contained(self, depth: int) -> Text:
        item = self.choose(KEYS) if self.chance(2) else self.scalar()
        over = f"list({item})"
        if item in KEYS and self.chance(2):
            over = f"map({item}, int)"
        self.strict += 1
        left, right = self.operand(item, depth, _RELATION), self.operand(over, depth, _SUM)
        self.strict -= 1
        return Text(f"{left} in {right}", _RELATION)

    def quantified(self, depth: int) -> Text:
        over, names = self.ranged(depth, self.chance(3), False)
        function = self.choose(("all", "exists", "exists_one" if len(names) == 1 else "existsOne"))
        body = self.within(names, "bool", depth)
        return Text(f"{over}.{function}({', '.join(names)}, {body})")

    def ranged(self, depth: int, pairs: bool, is_order_seen: bool) -> tuple[str, dict[str, str]]:
        """Something to go through, and the names for what is in it.

        The order of a map is its evaluator's own: where it is seen, the map has but one entry.
        """
        first = self.name()
        second = f"{first}b"
        if self.chance(3):
            key, value = self.choose(KEYS), self.scalar()
            if is_order_seen:
                target = f"{{{self.strictly(key, depth)}: {self.strictly(value, depth)}}}"
            else:
                target = self.typed_target(f"map({key}, {value})", depth)
            return target, {first: key, second: value} if pairs else {first: key}
        item = self.scalar()
        target = self.typed_target(f"list({item})", depth)
        return target, {first: "int", second: item} if pairs else {first: item}

    # -------------------------------------------------------------------------------- texts

    def _string(self, type_: str, depth: int) -> Text:
        match self.choose(range(11)):
            case 0 | 1:
                return self.arithmetic(type_, depth, "+")
            case 2 | 3:
                return self.converted(type_, depth)
            case 4:
                return Text(f"{self.target('string', depth)}.charAt({self.index(depth)})")
            case 5:
                if self.chance(2):
                    # The oracle takes no end that is the text's own.
                    text = self.choose(("'abcd'", "'a b '", "labels.long"))
                    end = self.choose(("0", "1", "2", "3", "-1", "9"))
                    return Text(f"{text}.substring({self.index(depth)}, {end})")
                return Text(f"{self.target('string', depth)}.substring({self.index(depth)})")
            case 6:
                old, new = self.arg("string", depth), self.arg("string", depth)
                most = f", {self.index(depth)}" if self.chance(2) else ""
                return Text(f"{self.target('string', depth)}.replace({old}, {new}{most})")
            case 7:
                function = self.choose(("lowerAscii", "upperAscii", "trim"))
                return Text(f"{self.target('string', depth)}.{function}()")
            case 8:
                between = self.arg("string", depth) if self.chance(2) else ""
                return Text(f"{self.target('list(string)', depth)}.join({between})")
            case 9:
                return Text(f"strings.quote({self.arg('string', depth)})")
            case _:
                return self.formatted(depth)

    def formatted(self, depth: int) -> Text:
        text, values = "", []
        for _ in range(self.choose(range(1, 4))):
            clause, fitting = self.choose(FORMATS)
            text += clause
            if fitting:
                (values.append(f"dyn({self.strictly(self.choose(fitting), depth)})"),)
        return Text(f"{text!r}.format([{', '.join(values)}])")

    def index(self, depth: int) -> str:
        return (
            str(self.choose(("0", "1", "2", "3", "-1")))
            if self.chance(2)
            else self.arg("int", depth)
        )

    def _bytes(self, type_: str, depth: int) -> Text:
        if self.chance(2):
            return self.converted(type_, depth)
        return self.arithmetic(type_, depth, "+")

    # -------------------------------------------------------------------------------- times

    def _duration(self, type_: str, depth: int) -> Text:
        if self.chance(4):
            return self.converted(type_, depth)
        if self.chance(2):
            return self.arithmetic(type_, depth, "+-")
        left = self.operand("timestamp", depth, _SUM)
        return Text(f"{left} - {self.operand('timestamp', depth, _PRODUCT)}", _SUM)

    def _timestamp(self, type_: str, depth: int) -> Text:
        if self.chance(4):
            return self.converted(type_, depth)
        if self.chance(3):
            left = self.operand("duration", depth, _SUM)
            return Text(f"{left} + {self.operand('timestamp', depth, _PRODUCT)}", _SUM)
        left = self.operand("timestamp", depth, _SUM)
        sign = self.choose("+-")
        return Text(f"{left} {sign} {self.operand('duration', depth, _PRODUCT)}", _SUM)

    # ------------------------------------------------------------------------ lists and maps

    def _list(self, type_: str, depth: int) -> Text:
        (item,) = arguments(type_)
        match self.choose(range(12)):
            case 0 | 1:
                return self.list_literal(item, depth)
            case 2:
                return self.arithmetic(type_, depth, "+")
            case 3:
                over, names = self.ranged(depth, False, True)
                test = f"{self.within(names, 'bool', depth)}, " if self.chance(3) else ""
                return Text(
                    f"{over}.map({', '.join(names)}, {test}{self.within(names, item, depth)})"
                )
            case 4:
                name = self.name()
                body = self.within({name: item}, "bool", depth)
                return Text(f"{self.typed_target(type_, depth)}.filter({name}, {body})")
            case 5:
                over, names = self.ranged(depth, True, True)
                test = f"{self.within(names, 'bool', depth)}, " if self.chance(3) else ""
                body = self.within(names, item, depth)
                return Text(f"{over}.transformList({', '.join(names)}, {test}{body})")
            case 6:
                function = self.choose(("reverse", "distinct"))
                if self.chance(2) and item in (*SCALARS, *TIMES):
                    # The oracle looks at the type of the items only when it sorts.
                    return Text(f"({self.strictly(type_, depth)}).sort()")
                return Text(f"{self.typed_target(type_, depth)}.{function}()")
            case 7 | 8:
                start, end = self.index(depth), self.index(depth)
                return Text(f"{self.target(type_, depth)}.slice({start}, {end})")
            case 9:
                name = self.name()
                self.strict += 1
                key = self.within({name: item}, self.scalar(), depth)
                self.strict -= 1
                # Short: of long lists, neither keeps the order of equal keys, each in its own way.
                return Text(f"{self.strict_leaf(type_)}.sortBy({name}, {key})")
            case 10 if item == "string":
                most = f", {self.index(depth)}" if self.chance(2) else ""
                separator = self.choose(('","', '""', '"a"', self.arg("string", depth)))
                # The oracle finds one empty text in an empty one, cel-go none.
                target = self.operand("string", depth, _SUM)
                return Text(f"({target} + 'ab').split({separator}{most})")
            case 10 if item == "int":
                return Text(f"lists.range({self.choose(('0', '1', '3', '5'))})")
            case _:
                return self.list_literal(item, depth)

    def list_literal(self, item: str, depth: int) -> Text:
        parts = []
        is_mixed = not self.strict and not item.startswith("optional") and self.chance(15)
        # Not empty: cel-go lets what an empty list holds be anything, and looks for nothing in it.
        for _ in range(self.choose(range(1, 4))):
            if is_mixed:
                parts.append(f"dyn({self.arg(self.scalar(), depth)})")
            elif self.chance(6) and not item.startswith("optional"):
                parts.append(f"?{self.strictly(f'optional({item})', depth)}")
            else:
                parts.append(self.strictly(item, depth))
        return Text(f"[{', '.join(parts)}{',' if parts and self.chance(8) else ''}]")

    def map_literal(self, type_: str, depth: int) -> Text:
        """The oracle refuses a key that comes twice, where cel-go takes the last: none does."""
        key_type, value_type = arguments(type_)
        if depth and self.chance(4):
            return Text(f"{{{self.strictly(key_type, depth)}: {self.strictly(value_type, depth)}}}")
        entries = []
        keys = list(MAP_KEYS[key_type])
        # Not empty: in cel-go, what an empty one holds may be selected from.
        for _ in range(self.choose(range(1, len(keys) + 1))):
            key = self.choose(keys)
            keys.remove(key)
            if depth and self.chance(6):
                entries.append(f"?{key}: {self.strictly(f'optional({value_type})', depth)}")
            else:
                value = self.strictly(value_type, depth) if depth else self.strict_leaf(value_type)
                entries.append(f"{key}: {value}")
        return Text(f"{{{', '.join(entries)}}}")

    def _map(self, type_: str, depth: int) -> Text:
        return self.map_literal(type_, depth)

    # ------------------------------------------------------------------------------ optional

    def _optional(self, type_: str, depth: int) -> Text:
        (inner,) = arguments(type_)
        match self.choose(range(8)):
            case 0:
                return Text(f"optional.of({self.arg(inner, depth)})")
            case 1 if inner != "timestamp":  # zero is 1970 to the oracle, the year 1 to cel-go
                return Text(f"optional.ofNonZeroValue({self.strictly(inner, depth)})")
            case 2:
                target = self.typed_target(f"list({inner})", depth)
                return Text(f"{target}.{self.choose(('first', 'last'))}()")
            case 3:
                target = self.typed_target(f"list({inner})", depth)
                return Text(f"{target}[?{self.strictly('int', depth)}]")
            case 4:
                key = self.choose(KEYS)
                target = self.typed_target(f"map({key}, {inner})", depth)
                return Text(f"{target}[?{self.arg(key, depth)}]")
            case 5:
                field = self.choose(("a", "b", "missing"))
                target = self.typed_target(f"map(string, {inner})", depth)
                return Text(f"{target}.?{field}")
            case 6:
                return Text(f"{self.typed_target(type_, depth)}.or({self.arg(type_, depth)})")
            case _:
                name, other = self.name(), self.scalar()
                # The oracle's macros write their target twice, without second variables in it.
                target = self.leaf(f"optional({other})").text
                if self.chance(2):
                    body = self.within({name: other}, inner, depth)
                    return Text(f"{target}.optMap({name}, {body})")
                body = self.within({name: other}, type_, depth)
                return Text(f"{target}.optFlatMap({name}, {body})")

    def _dyn(self, type_: str, depth: int) -> Text:
        return Text(f"dyn({self.arg(self.any_type(), depth)})")
