"""Passes the command-line arguments to a verb as one dataclass instead of many parameters."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Arguments = TypeVar("Arguments")


def with_arguments(
    kind: type[Arguments],
) -> Callable[[Callable[[Arguments], None]], Callable[..., None]]:
    """Returns a decorator that gives a verb the parameters of a dataclass, for typer to read.

    Each field of the dataclass is an option or argument of the verb, in order: its annotation
    holds the typer.Option or typer.Argument, its default is the default of the option.
    """
    signature = inspect.signature(kind)

    def decorate(run: Callable[[Arguments], None]) -> Callable[..., None]:
        @wraps(run)
        def verb(**given: Any) -> None:
            run(kind(**given))

        found: Any = verb
        found.__signature__ = signature.replace(return_annotation=None)
        found.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        return verb

    return decorate
