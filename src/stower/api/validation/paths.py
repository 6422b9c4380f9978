"""Validates paths of files inside of volumes, and the mode bits of those files."""

from typing import Final

from stower.api.validation.rules import Faults, invalid

MODE_TEXT: Final = "must be a number between 0 and 0777 (octal), both inclusive"


def no_backsteps(path: str, value: str) -> Faults:
    """A path that does not lead upwards."""
    return [invalid(path, value, "must not contain '..'")] if ".." in value.split("/") else []


def local(path: str, value: str) -> Faults:
    """A relative path that does not lead upwards."""
    absolute = [invalid(path, value, "must be a relative path")] if value.startswith("/") else []
    return [*absolute, *no_backsteps(path, value)]


def not_reserved(path: str, value: str) -> Faults:
    """The same, of a file that a volume's writer may make."""
    faults = local(path, value)
    if value.startswith("..") and not value.startswith("../"):
        faults.append(invalid(path, value, "must not start with '..'"))
    return faults


def mode(path: str, value: int | None) -> Faults:
    """Permissions of a file, if there are any."""
    return (
        [invalid(path, value, MODE_TEXT)] if value is not None and not 0 <= value <= 0o777 else []
    )
