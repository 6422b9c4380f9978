"""A search for the placement of a tree as a message, and its answer: what takes longer than a step
may is done by others (`stower.live.solver`), on bytes alone.

Equal searches are equal bytes. Must not know who asks.
"""

from typing import Any, Final

import msgspec
import numpy as np

from stower.groups.conflicts import find_conflict
from stower.groups.placement import (
    Answer,
    ExhaustedSearch,
    FoundPlacement,
    InfeasibleProblem,
    improve,
    place,
)
from stower.groups.problem import Problem, Scope
from stower.groups.search import NO_PROGRESS, Progress

_ARRAY: Final = 1
_DTYPES: Final = {"i": np.int64, "b": np.bool_}


class Request(msgspec.Struct, frozen=True):
    """A search. `effort`, `begun`: see `place`; `first`: where a placement with more pods than this
    one is looked for; `explains`: whether it is told why there is none."""

    problem: Problem
    effort: int = 1
    begun: Progress = NO_PROGRESS
    first: FoundPlacement | None = None
    explains: bool = True


def encode_request(request: Request) -> bytes:
    """Returns the message for a search."""
    return _encoder.encode(request)


def read_request(message: bytes) -> Request:
    """Returns the search of a message. Raises msgspec.DecodeError."""
    request: Request = _request.decode(message)
    return request


def decode_answer(body: bytes) -> Answer:
    """Returns the answer. Raises msgspec.DecodeError."""
    answer: Answer = _answer.decode(body)
    return answer


def encode_answer(answer: Answer) -> bytes:
    """Returns the message of an answer."""
    return _encoder.encode(answer)


def solve(message: bytes) -> bytes:
    """Returns the answer to the message of a search. Raises msgspec.DecodeError."""
    return encode_answer(answer_to(read_request(message)))


def answer_to(request: Request) -> Answer:
    """Does the search."""
    problem = request.problem
    if request.first is not None:
        return improve(problem, request.first, effort=request.effort)
    answer = place(problem, effort=request.effort, begun=request.begun)
    if request.explains and isinstance(answer, InfeasibleProblem) and answer.counted < 0:
        return msgspec.structs.replace(answer, conflict=find_conflict(problem))
    return answer


def _to_plain(value: object) -> object:
    if isinstance(value, np.ndarray):
        head = msgspec.msgpack.encode((value.dtype.kind, value.shape))
        return msgspec.msgpack.Ext(_ARRAY, bytes((len(head),)) + head + value.tobytes())
    if isinstance(value, Scope):
        return value.codes, value.count, value.parent, value.up
    raise NotImplementedError(type(value).__name__)


def _array(code: int, data: memoryview) -> Any:
    if code != _ARRAY or not len(data):
        raise ValueError(f"extension {code}")
    start = data[0] + 1
    kind, shape = msgspec.msgpack.decode(data[1:start], type=tuple[str, tuple[int, ...]])
    return np.frombuffer(data[start:], _DTYPES[kind]).reshape(shape).copy()


def _from_plain(type_: Any, value: Any) -> Any:
    if type_ is Scope:
        codes, count, parent, up = value
        return Scope(codes, count, parent, up)
    return value


_encoder: Final = msgspec.msgpack.Encoder(enc_hook=_to_plain, order="deterministic")
_request: Final = msgspec.msgpack.Decoder(Request, dec_hook=_from_plain, ext_hook=_array)
_answer: Final = msgspec.msgpack.Decoder(FoundPlacement | InfeasibleProblem | ExhaustedSearch)
