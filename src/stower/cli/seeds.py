"""Checks the seeds that options give."""

from stower.cli.output import bad_input


def check_seeds(first: int, count: int = 1) -> None:
    """Ends the program for a seed that an engine does not take."""
    if not -(2**63) <= first <= 2**63 - count:
        raise bad_input(f"--seed: got {first}, want a 64-bit number")
