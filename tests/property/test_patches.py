"""Merging of lists against the rule written down without a thought for time."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stower.api import patches
from stower.api.patches import strategic
from stower.apiserver.tables import load_registry

REGISTRY = load_registry()
POD = REGISTRY.type_of_kind("", "v1", "Pod")
NAMES = st.sampled_from("abcde")
ENV = st.builds(lambda name, value: {"name": name, "value": value}, NAMES, st.sampled_from("12"))
UNIQUE = st.lists(ENV, max_size=5, unique_by=lambda e: e["name"])
CHANGES = st.lists(
    st.one_of(ENV, st.builds(lambda name: {"name": name, "$patch": "delete"}, NAMES)), max_size=5
)
ORDERS = st.one_of(
    st.none(), st.lists(st.builds(lambda n: {"name": n}, NAMES), max_size=5,
                        unique_by=lambda o: o["name"])
)  # fmt: skip


def merged_slowly(old: list[Any], change: list[Any], order: list[Any] | None) -> list[Any]:
    """mergeSliceWithoutSpecialElements and normalizeElementOrder, by searching lists."""
    result = list(old)
    for item in change:
        same = [v for v in result if v["name"] == item["name"]]
        if item.get("$patch") == "delete":
            result = [v for v in result if v["name"] != item["name"]]
        elif same:
            result[result.index(same[0])] = {**same[0], **item}
        else:
            result.append(item)
    kept = [v for v in change if "$patch" not in v]
    named = [v["name"] for v in (kept if order is None else order)]
    before = [v["name"] for v in old]
    right = [v for v in result if v["name"] in named]
    right.sort(key=lambda v: named.index(v["name"]))
    made: list[Any] = []
    for item in (v for v in result if v["name"] not in named):
        place = before.index(item["name"]) if item["name"] in before else -1
        while right:
            other = right[0]["name"]
            if place >= 0 and other in before and place < before.index(other):
                break
            made.append(right.pop(0))
        made.append(item)
    return made + right


def in_order(names: list[str], order: list[Any]) -> bool:
    """The names are a part of the order, without a change of places."""
    places = iter([o["name"] for o in order])
    return all(name in places for name in names)


@given(UNIQUE, CHANGES, ORDERS)
def test_lists_with_keys(old: list[Any], change: list[Any], order: list[Any] | None) -> None:
    def pod(env: list[Any], **more: Any) -> dict[str, Any]:
        return {"spec": {"containers": [{"name": "c", "env": env, **more}]}}

    patch = pod(change, **({} if order is None else {"$setElementOrder/env": order}))
    if change and order and not in_order([v["name"] for v in change if "$patch" not in v], order):
        with pytest.raises(patches.BadPatchError, match="The order in patch list"):
            strategic(pod(old), patch, POD)
        return
    found = strategic(pod(old), patch, POD)
    assert merged_slowly(old, change, order) == found["spec"]["containers"][0]["env"]


@given(
    st.lists(NAMES, max_size=5, unique=True),
    st.lists(NAMES, max_size=5),
    st.lists(NAMES, max_size=3),
)
def test_lists_of_values(old: list[str], added: list[str], gone: list[str]) -> None:
    """Each value once; what is to go goes, however often it is named."""

    def pod(**fields: Any) -> dict[str, Any]:
        return {"metadata": fields}

    patch = pod(finalizers=added) if added else pod(**{"$deleteFromPrimitiveList/finalizers": gone})
    found = strategic(pod(finalizers=old), patch, POD)["metadata"]["finalizers"]
    if added:
        assert sorted({*old, *added}) == sorted(found)
        assert list(dict.fromkeys(added)) == [v for v in found if v in added]
        assert [v for v in old if v not in added] == [v for v in found if v not in added]
    else:
        assert [v for v in old if v not in gone] == found


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text("ab", max_size=2)),
    lambda inner: st.one_of(st.lists(inner, max_size=3),
                            st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3)),
    max_leaves=12,
)  # fmt: skip


def paths(value: Any, at: str = "") -> list[str]:
    """JSON pointers of all parts of a value."""
    found = [at]
    parts = value.items() if isinstance(value, dict) else ()
    parts = enumerate(value) if isinstance(value, list) else parts
    for name, inner in parts:
        step = str(name).replace("~", "~0").replace("/", "~1")
        found += paths(inner, f"{at}/{step}")
    return found


@given(JSON, st.data())
def test_json_patch_laws(value: Any, data: st.DataObject) -> None:
    """What is added can be tested and removed; moving there and back changes nothing."""
    document = {"old": value}
    path = data.draw(st.sampled_from(paths(document)))
    add = {"op": "add", "path": "/new", "value": value}
    with_new = patches.json_patch(document, [add, {**add, "op": "test"}])
    assert {"old": value, "new": value} == with_new
    assert document == patches.json_patch(with_new, [{"op": "remove", "path": "/new"}])
    if path:
        there = {"op": "move", "from": path, "path": "/moved"}
        back = {"op": "move", "from": "/moved", "path": path}
        assert document == patches.json_patch(document, [there, back])
        copied = patches.json_patch(document, [{"op": "copy", "from": path, "path": "/copied"}])
        test = {"op": "test", "path": path, "value": copied["copied"]}
        assert copied == patches.json_patch(copied, [test])


@given(JSON, JSON, JSON)
def test_merge_patch_laws(original: Any, patch: Any, other: Any) -> None:
    """Twice is once; a patch of one's own without nulls changes nothing."""
    once = patches.merge(original, patch)
    assert once == patches.merge(once, patch)

    def without_nulls(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: without_nulls(v) for k, v in value.items() if v is not None}
        return value

    mine = without_nulls(other)
    assert mine == patches.merge(mine, mine)
