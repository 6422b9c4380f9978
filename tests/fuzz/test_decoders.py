"""What comes from an API server or a file is an object, or refused with the place of its fault."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from stower.model.errors import InvalidObject
from stower.model.kinds import KINDS, Kind
from stower.model.raw import decode, decode_object
from tests.fuzz.limits import fuzzed
from tests.fuzz.mutants import CHANGES, OBJECTS, Change, corpus, damaged, text_of


def test_what_is_made_reads() -> None:
    """What has nothing wrong with it is no InvalidObject: or all of this would test nothing."""
    read = 0
    for kind in KINDS:
        for document in corpus(kind):
            try:
                decode(text_of(document), kind.view)
                read += 1
            except InvalidObject:
                pass
    assert read > 0.9 * sum(len(corpus(kind)) for kind in KINDS)


def _told(error: InvalidObject) -> None:
    assert str(error)
    assert error.path


def objects(made: tuple[Kind, Any]) -> None:
    """An object with something wrong."""
    kind, document = made
    try:
        found = decode(text_of(document), kind.view)
    except InvalidObject as error:
        _told(error)
    else:
        msgspec.json.encode(found)


test_objects, test_objects_long = fuzzed(objects, 20_000, made=OBJECTS)


def texts(kind: Kind, variant: int, changes: list[Change]) -> None:
    """Bytes that were an object's."""
    documents = corpus(kind)
    data = damaged(text_of(documents[variant % len(documents)]), changes)
    try:
        decode_object(data)
    except InvalidObject as error:
        _told(error)


test_texts, test_texts_long = fuzzed(
    texts, 10_000, kind=st.sampled_from(KINDS), variant=st.integers(0, 7), changes=CHANGES
)
