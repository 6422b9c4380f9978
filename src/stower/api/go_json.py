"""Says what is wrong with a text that is no JSON, in the words of Go's decoder.

Source: encoding/json scanner.go. Only for texts that another decoder has refused.
"""

from typing import Final

_SPACE: Final = b" \t\r\n"
_DIGITS: Final = b"0123456789"
_ESCAPES: Final = b'bfnrt\\/"'
_HEX: Final = b"0123456789abcdefABCDEF"
_LITERALS: Final = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
END: Final = "unexpected end of JSON input"
DEPTH_MAX: Final = 10_000
VALUE: Final = "looking for beginning of value"


class _Fault(Exception):
    """The scanner stopped."""


def decoding_error(text: bytes) -> str:
    """The error of a text that is no JSON value; "" where nothing is wrong with it."""
    try:
        _Scanner(text).document()
    except _Fault as fault:
        return str(fault)
    return ""


def _quoted(character: int) -> str:
    """A byte as Go's messages have it."""
    if character == ord("'"):
        return "'\\''"
    if character == ord("\\"):
        return "'\\\\'"
    named = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r"}
    if character in named:
        return f"'{named[character]}'"
    shown = chr(character)
    if not shown.isprintable():
        escape = f"\\x{character:02x}" if character < 0x80 else f"\\u{character:04x}"
        return f"'{escape}'"
    return f"'{shown}'"


class _Scanner:
    """A position in a text. Nesting is kept in a list, so that depth costs no stack."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.at = 0
        self.open: list[bytes] = []

    def document(self) -> None:
        """One value, and nothing after it. Raises _Fault."""
        self._value()
        while self.open:
            self._after_value()
        if (found := self._next()) is not None:
            self._refuse(found, "after top-level value")

    def _peek(self) -> int | None:
        return self.text[self.at] if self.at < len(self.text) else None

    def _next(self) -> int | None:
        """The next byte that is no space, which stays unread."""
        while self.at < len(self.text) and self.text[self.at] in _SPACE:
            self.at += 1
        return self._peek()

    def _refuse(self, found: int | None, where: str) -> None:
        if found is None:
            raise _Fault(END)
        raise _Fault(f"invalid character {_quoted(found)} {where}")

    def _value(self) -> None:
        """The beginning of a value: all of it, or up to its first inner value."""
        while True:
            found = self._next()
            if found is None:
                raise _Fault(END)
            self.at += 1
            if found == ord("{"):
                self._push(b"{")
                if self._next() == ord("}"):
                    self.at += 1
                    self.open.pop()
                    return
                self._key()
            elif found == ord("["):
                self._push(b"[")
                if self._next() == ord("]"):
                    self.at += 1
                    self.open.pop()
                    return
            else:
                self._scalar(found)
                return

    def _push(self, bracket: bytes) -> None:
        if len(self.open) >= DEPTH_MAX:
            raise _Fault("exceeded max depth")
        self.open.append(bracket)

    def _key(self) -> None:
        found = self._next()
        if found != ord('"'):
            self._refuse(found, "looking for beginning of object key string")
        self.at += 1
        self._string()
        found = self._next()
        if found != ord(":"):
            self._refuse(found, "after object key")
        self.at += 1

    def _after_value(self) -> None:
        """What follows a value inside of an object or array."""
        found = self._next()
        in_object = self.open[-1] == b"{"
        if found == ord("}" if in_object else "]"):
            self.at += 1
            self.open.pop()
        elif found == ord(","):
            self.at += 1
            if in_object:
                self._key()
            self._value()
        else:
            self._refuse(
                found, f"after {'object key:value pair' if in_object else 'array element'}"
            )

    def _scalar(self, found: int) -> None:
        if found == ord('"'):
            self._string()
        elif found == ord("-") or found in _DIGITS:
            self._number(found)
        elif (literal := _LITERALS.get(found)) is not None:
            for i in range(1, len(literal)):
                if self._peek() != literal[i]:
                    word = f"in literal {literal.decode()} (expecting {_quoted(literal[i])})"
                    self._refuse(self._peek(), word)
                self.at += 1
        else:
            self._refuse(found, VALUE)

    def _string(self) -> None:
        while (found := self._peek()) is not None:
            self.at += 1
            if found == ord('"'):
                return
            if found == ord("\\"):
                self._escape()
            elif found < 0x20:
                self._refuse(found, "in string literal")
        raise _Fault(END)

    def _escape(self) -> None:
        found = self._peek()
        if found is None or (found not in _ESCAPES and found != ord("u")):
            self._refuse(found, "in string escape code")
        self.at += 1
        if found == ord("u"):
            for _ in range(4):
                if (digit := self._peek()) is None or digit not in _HEX:
                    self._refuse(digit, "in \\u hexadecimal character escape")
                self.at += 1

    def _number(self, first: int) -> None:
        if first == ord("-"):
            found = self._peek()
            if found is None or found not in _DIGITS:
                self._refuse(found, "in numeric literal")
            first = self.text[self.at]
            self.at += 1
        if first != ord("0"):
            self._digits()
        if self._peek() == ord("."):
            self.at += 1
            self._needed_digits("after decimal point in numeric literal")
        if self._peek() in (ord("e"), ord("E")):
            self.at += 1
            if self._peek() in (ord("+"), ord("-")):
                self.at += 1
            self._needed_digits("in exponent of numeric literal")

    def _digits(self) -> None:
        while (found := self._peek()) is not None and found in _DIGITS:
            self.at += 1

    def _needed_digits(self, where: str) -> None:
        found = self._peek()
        if found is None or found not in _DIGITS:
            self._refuse(found, where)
        self._digits()
