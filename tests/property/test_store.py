"""The store against a model that keeps a whole copy of everything at each revision."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stower.api.store import LARGE_BYTES, Store, excess, namespace_of

KEY = ("", "things")
NAMES = [f"{namespace}/{name}" for namespace in ("a", "a-b", "b") for name in "xyz"]
ACTIONS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NAMES)),
    st.tuples(st.just("put large"), st.sampled_from(NAMES)),
    st.tuples(st.just("remove"), st.sampled_from(NAMES)),
    st.tuples(st.just("commit"), st.integers(1, 4)),
    st.tuples(st.just("fail"), st.integers(1, 4)),
)


class Model:
    """Everything at each revision, in the plainest way."""

    def __init__(self) -> None:
        self.now: dict[str, str] = {}
        self.at = {1: dict(self.now)}
        self.order = [1]

    def change(self, revision: int) -> None:
        self.at[revision] = dict(self.now)
        self.order.append(revision)

    def undo(self, visible: int) -> None:
        for revision in [r for r in self.order if r > visible]:
            del self.at[revision]
            self.order.remove(revision)
        self.now = dict(self.at[visible])


@given(st.lists(ACTIONS, max_size=60), st.sampled_from([0, 5000, 1 << 30]))
def test_history_is_that_of_the_model(actions: list[tuple[str, Any]], room: int) -> None:
    """Present, past, events, order of keys; and failed commits leave no trace. What is not durable
    yet is not forgotten, whatever room there is."""
    store, model = Store(lambda key: None), Model()
    store.durable = True
    store.window_bytes_max = room
    collection = store.collection(KEY)
    for number, (action, value) in enumerate(actions):
        if action.startswith("put"):
            text = "x" * (LARGE_BYTES + number) if action == "put large" else ""
            item = {"metadata": {"uid": value}, "n": number, "text": text}
            record = store.put(collection, value, item)
            model.now[value] = record.raw.decode()
            model.change(record.revision)
        elif action == "remove" and value in collection.records:
            store.remove(collection, value, collection.records[value].decode())
            del model.now[value]
            model.change(store.revision)
        elif action == "commit" and store.pending:
            store.publish(store.take_pending(value)[-1][1].revision)
        elif action == "fail" and store.pending:
            store.undo(store.take_pending(value))
            model.undo(store.visible)
        assert store.revision == model.order[-1]
        assert sorted(model.now) == collection.keys
        sizes: Counter[str] = Counter()
        for record in collection.records.values():
            sizes[namespace_of(record.key)] += excess(record)
        assert +sizes == store.large_bytes
        for revision in model.order:
            found = collection.records_at(revision)
            if found is None:
                assert revision < collection.forgotten <= store.visible
                continue
            assert model.at[revision] == {k: r.raw.decode() for k, r in found.items()}
        known = collection.events_after(collection.forgotten) or ()
        assert [r for r in model.order[1:] if r > collection.forgotten] == [
            event.revision for event in known
        ]


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=40), st.integers(0, 5000))
def test_history_that_is_cut_short_is_right_or_none(names: list[str], room: int) -> None:
    store, model = Store(lambda key: None), Model()
    store.window_bytes_max = room
    collection = store.collection(KEY)
    for number, name in enumerate(names):
        record = store.put(collection, name, {"metadata": {"uid": name}, "n": number})
        model.now[name] = record.raw.decode()
        model.change(record.revision)
    for revision in model.order:
        found = collection.records_at(revision)
        if found is None:
            assert revision < collection.forgotten
        else:
            assert model.at[revision] == {k: r.raw.decode() for k, r in found.items()}
    assert collection.records_at(store.revision) is not None
    kept = sum(len(event.record.raw) + 400 for event in collection.log)
    assert kept - 400 * collection.start <= max(room, 400 + len(record.raw)), "no more than that"
