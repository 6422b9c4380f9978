"""Compiles regular expressions that users write, of CEL and of schemas, with RE2.

RE2 takes time linear in the text. It knows the syntax of Go's regexp package; what it does not
know, such as look-ahead and back references, Go does not know either.
"""

from functools import lru_cache
from typing import Any, Final

import re2  # type: ignore[import-untyped]

PATTERN_BYTES: Final = 1 << 20  # that RE2 may use for one; they come from users
PATTERNS_MAX: Final = 256  # that are kept


class BadPatternError(Exception):
    """A pattern is no regular expression. Its text is Go's message."""


class Pattern:
    """A compiled regular expression. `regexp` is RE2's; `size` is the number of its instructions,
    of which a byte of a text may take each."""

    __slots__ = ("_quick", "_text", "regexp", "size")

    def __init__(self, text: str) -> None:
        """Raises BadPatternError."""
        self._text = text
        self._quick: Any = None
        try:
            self.regexp: Any = re2.compile(text, _options())
        except re2.error as error:
            raise BadPatternError(_go_message(error)) from None
        self.size = int(self.regexp.programsize)

    def occurs_in(self, text: str) -> bool:
        """Returns whether the expression matches a part of the text.

        A set of one expression answers six times as fast as the expression. It does not find
        everything if the expression needs too many states, so only its yes counts.
        """
        if self._quick is None:
            self._quick = re2.Set.SearchSet(_options())
            self._quick.Add(self._text)
            self._quick.Compile()
        return self._quick.Match(text) is not None or self.regexp.search(text) is not None


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES
    return options


@lru_cache(maxsize=PATTERNS_MAX)
def compile_pattern(text: str) -> Pattern:
    """Returns the compiled regular expression. Raises BadPatternError."""
    return Pattern(text)


def _go_message(error: Exception) -> str:
    said = error.args[0]
    said = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    wrong, _, part = said.partition(": ")
    part = "" if wrong == "trailing \\" else part
    return f"error parsing regexp: {_IN_GO.get(wrong, wrong)}: `{part}`"


# What RE2 finds wrong with a pattern, in the words of Go's regexp/syntax.
_IN_GO: Final = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
}
