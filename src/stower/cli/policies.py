"""Reads the configurations that --config names, each a scheduling policy to compare."""

from pathlib import Path
from typing import Any

from stower.assembly import build_engine
from stower.cli.configuration_files import InputError
from stower.cli.output import bad_input
from stower.cli.plugins import plugins_of
from stower.cli.scheduler_configuration import read_scheduler_configuration
from stower.model.errors import InvalidObject


def read_policies(
    paths: list[str], ignores_unknown: bool
) -> list[tuple[str, dict[str, Any] | None]]:
    """Returns name and decoded document of each policy; the default configuration has no document.

    `ignores_unknown`: leaves out unknown plugins. Ends the program for a file that cannot be read,
    is invalid or is given twice.
    """
    if not paths:
        return [("default", None)]
    policies: list[tuple[str, dict[str, Any] | None]] = []
    for path in paths:
        try:
            document = read_scheduler_configuration(path, ignores_unknown)
            check_configuration(document)
        except InputError as error:
            raise bad_input(str(error)) from None
        except InvalidObject as error:
            raise bad_input(f"{path}: {error}") from None
        if paths.count(path) > 1:
            raise bad_input(f"--config {path}: given twice")
        name = Path(path).stem
        taken = [other for other, _ in policies]
        policies.append((name if name not in taken else path, document))
    return policies


def check_configuration(document: dict[str, Any]) -> None:
    """Raises InvalidObject for a configuration that cannot be run."""
    build_engine(document, plugins=plugins_of(document))
