"""Defines and parses kube-scheduler's option --feature-gates."""

from typing import Annotated

import typer

from stower.cli.output import bad_input, note
from stower.framework.plugin import GATES, Features, read_features

FeatureGates = Annotated[
    str,
    typer.Option(
        metavar="NAME=true,...",
        help=f"Feature gates of kube-scheduler: {', '.join(GATES)}; others have no effect.",
    ),
]


def features_of(text: str, beside: Features | None = None) -> Features:
    """What is switched on, `beside` what is so anyway. Ends the program where the text makes no
    sense."""
    try:
        features, others = read_features(text, beside)
    except ValueError as error:
        raise bad_input(f"--feature-gates: {error}") from None
    for name in others:
        note(f"--feature-gates: {name} has no effect in Stower")
    return features
