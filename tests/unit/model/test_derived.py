"""Results that are kept per object."""

from stower.model.derived import ENTRIES_MAX, Derived


class Source:
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Source)

    def __hash__(self) -> int:
        raise AssertionError("never hashed")


def test_a_result_is_computed_once_per_object_and_never_for_an_equal_one() -> None:
    asked: list[Source] = []
    derived: Derived[Source, int] = Derived(lambda source: len((asked.append(source), *asked)))
    first, second = Source(), Source()
    assert derived.of(first) == derived.of(first)
    assert derived.of(second) != derived.of(first)
    assert [id(source) for source in asked] == [id(first), id(second)]


def test_results_stay_right_when_objects_are_dropped_and_the_memory_is_full() -> None:
    derived: Derived[list[int], int] = Derived(lambda source: source[0])
    for n in range(3 * ENTRIES_MAX):
        assert derived.of([n]) == n
    assert len(derived._known) <= ENTRIES_MAX
