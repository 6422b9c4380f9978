"""Errors of the model: InvalidObject for a user's object, InvariantError for our own bug."""


class InvalidObject(Exception):
    """An object that its author must change: field path, what was found, what is wanted."""

    def __init__(self, path: str, got: object, want: str) -> None:
        super().__init__(printable(f"{path}: got {_shorten(got)}, want {want}"))
        self.path = path
        self.got = got
        self.want = want


class InvariantError(Exception):
    """Our own bug. Whoever meets it stops: nothing that follows could be trusted."""


def printable(text: str) -> str:
    """The text with what a terminal would obey, and halves of characters, spelled out."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _shorten(got: object) -> str:
    text = f'"{got}"' if type(got) is str else repr(got)
    return text if len(text) <= 100 else text[:97] + "..."
