"""What the questions about room have in common: the configuration to ask under."""

from pathlib import Path
from typing import Annotated

import typer

from stower.assembly import build_engine
from stower.cli.inputs import InputError, read_yaml_document
from stower.cli.output import bad_input
from stower.cli.plugins import plugins_of
from stower.engine.step import Engine
from stower.model.errors import InvalidObject

Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A KubeSchedulerConfiguration to ask under."),
]


def engine_of(config: Path | None) -> Engine:
    """An engine for the configuration. Ends the program where that is none."""
    try:
        document = None if config is None else read_yaml_document(str(config))
        return build_engine(document, plugins=plugins_of(document))
    except InputError as error:
        raise bad_input(str(error)) from None
    except InvalidObject as error:
        raise bad_input(f"{config}: {error}") from None
