"""The process that does searches for a scheduler: `python -m stower.live.solver_process`.

Reads messages from its standard input and writes answers to its standard output, each with its
length before it (4 bytes, big-endian), until its input ends.
"""

import os
import sys
from typing import BinaryIO, Final

from stower.groups.placement import ExhaustedSearch
from stower.groups.solving import encode_answer, solve

LENGTH_BYTES: Final = 4
NICE: Final = 5  # pods that need no search are bound meanwhile


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answers messages until there are no more."""
    while len(head := source.read(LENGTH_BYTES)) == LENGTH_BYTES:
        message = source.read(int.from_bytes(head))
        try:
            answer = solve(message)
        except Exception as error:  # an error of the solver proves nothing
            answer = encode_answer(ExhaustedSearch(f"solver: {type(error).__name__}"))
        target.write(len(answer).to_bytes(LENGTH_BYTES) + answer)
        target.flush()


if __name__ == "__main__":
    os.nice(NICE)
    serve(sys.stdin.buffer, sys.stdout.buffer)
