"""Who manages what: the quick way of a new object against the general one, and laws of sets."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stower.api.fields_v1 import (
    Manager,
    from_tree,
    read_managers,
    subtract,
    to_tree,
    union,
    write_managers,
)
from stower.api.managed_fields import (
    applied_fields,
    apply,
    compare,
    create_managers,
    merged_value,
    update_managers,
)
from stower.api.schema import Reading, Type, skeleton
from stower.apiserver.tables import load_registry

Object = dict[str, Any]
REGISTRY = load_registry()
MANAGER = Manager("m", "Update", "v1")
NOW = "2026-01-01T00:00:00Z"
RESET = ("f:status",)

names = st.sampled_from(["a", "b", "c"])
texts = st.sampled_from(["x", "y", "z"])
maps = st.dictionaries(names, texts, max_size=3)


@st.composite
def pods(draw: Any) -> Object:
    """A pod with a few of everything: maps, lists by key, sets, atomic lists."""
    containers = {}
    for name in draw(st.lists(names, min_size=1, max_size=3, unique=True)):
        container: Object = {"name": name, "image": draw(texts)}
        ports = draw(st.lists(st.integers(1, 4), max_size=2, unique=True))
        if ports:
            container["ports"] = [{"containerPort": p} for p in ports]
        if draw(st.booleans()):
            container["env"] = [{"name": "E", "value": draw(texts)}]
        if draw(st.booleans()):
            container["args"] = [draw(texts)]
        containers[name] = container
    metadata: Object = {"name": "p", "namespace": "n"}
    for field in ("labels", "annotations"):
        if found := draw(maps):
            metadata[field] = found
    if draw(st.booleans()):
        metadata["finalizers"] = ["a.b/c"]
    spec: Object = {"containers": list(containers.values())}
    if draw(st.booleans()):
        spec["nodeSelector"] = draw(maps)
    if draw(st.booleans()):
        spec["tolerations"] = [{"key": draw(texts), "operator": "Exists"}]
    if draw(st.booleans()):
        spec["volumes"] = [{"name": "v", "emptyDir": {}}]
    return {"metadata": metadata, "spec": spec}


def pod_type() -> Type:
    kind = REGISTRY.type_of_kind("", "v1", "Pod")
    return kind


def clean(item: Object) -> Object:
    made: Object = pod_type().clean(item, Reading())
    return made


@settings(max_examples=200, deadline=None)
@given(pods())
def test_new_objects_fields_are_those_of_a_change_from_nothing(item: Object) -> None:
    """created() is updated() from the bones of the type, only quicker."""
    new = clean(item)
    bones = skeleton(pod_type())
    quick = create_managers(pod_type(), bones, new, MANAGER, NOW, RESET)
    slow = update_managers(pod_type(), bones, new, MANAGER, NOW, RESET)
    assert read_managers({"managedFields": slow}) == read_managers({"managedFields": quick})


@settings(max_examples=100, deadline=None)
@given(pods(), pods())
def test_difference_names_exactly_what_differs(one: Object, other: Object) -> None:
    """Nothing differs from itself; every change has a path, and its opposite is the removal."""
    old, new = clean(one), clean(other)
    assert not compare(pod_type(), old, old).changed
    there, back = compare(pod_type(), old, new), compare(pod_type(), new, old)
    assert (old == new) == (not there.changed and not there.removed)
    assert there.removed <= back.changed


@settings(max_examples=100, deadline=None)
@given(pods())
def test_sets_survive_being_written(item: Object) -> None:
    fields = frozenset(applied_fields(pod_type(), item))
    assert fields == frozenset(from_tree(to_tree(fields)))
    managers = read_managers({"managedFields": update_managers(pod_type(), {}, item, MANAGER, NOW)})
    assert managers == read_managers({"managedFields": write_managers(managers)})


def test_items_with_the_same_key_keep_their_manager() -> None:
    """Of two that are there already, none is new when a third comes."""
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "1"}]

    def pod(*more: Object) -> Object:
        container = {"name": "c", "image": "i", "env": [*env, *more]}
        return clean({"metadata": {"name": "p"}, "spec": {"containers": [container]}})

    old = pod()
    first = create_managers(pod_type(), skeleton(pod_type()), old, MANAGER, NOW, RESET)
    old["metadata"]["managedFields"] = first
    new = pod({"name": "B", "value": "2"})
    other = Manager("other", "Update", "v1")
    entries = {e["manager"]: e for e in update_managers(pod_type(), old, new, other, NOW, RESET)}
    assert first[0]["fieldsV1"] == entries["m"]["fieldsV1"]
    (paths,) = [sorted(from_tree(entries["other"]["fieldsV1"]))]
    assert all('k:{"name":"B"}' in path for path in paths)


elements = st.sampled_from(["f:a", "f:b", 'k:{"n":1}', 'v:"x"'])
path_sets = st.frozensets(st.lists(elements, min_size=1, max_size=3).map(tuple), max_size=8)


@settings(max_examples=500, deadline=None)
@given(path_sets, path_sets)
def test_sums_and_differences_of_trees_are_those_of_the_sets(one: Any, other: Any) -> None:
    """And written as they would be from the set; what is not touched is the same tree."""
    trees = to_tree(one), to_tree(other)
    assert to_tree(one | other) == union(*trees)
    assert to_tree(one - other) == subtract(*trees)
    assert (subtract(*trees) is trees[0]) == one.isdisjoint(other)
    assert (to_tree(one), to_tree(other)) == trees


@settings(max_examples=150, deadline=None)
@given(pods(), pods(), pods())
def test_apply_laws(live: Object, one: Object, other: Object) -> None:
    """What was applied is there, applying again changes nothing, dropping everything undoes it."""
    kind = pod_type()
    base = clean(live)
    first = Manager("first", "Apply", "v1")
    merged, managers = apply(kind, base, one, first, True, ())
    assert merged == merged_value(kind, merged, one)
    merged["metadata"]["managedFields"] = write_managers(managers)
    again, managed = apply(kind, merged, one, first, False, ())
    assert again == {**merged, "metadata": _bare(merged)}
    assert {m: e.fields for m, e in managers.items()} == {m: e.fields for m, e in managed.items()}
    # Another manager takes what it wants by force; fields have one owner where values differ.
    second = Manager("second", "Apply", "v1")
    taken, owners = apply(kind, merged, other, second, True, ())
    assert taken == merged_value(kind, taken, other)
    wanted = frozenset(applied_fields(kind, other))
    assert {p for p in wanted if p[-1] not in ("f:name", "f:namespace")} <= owners[second].fields


def _bare(item: Object) -> Object:
    return {k: v for k, v in item["metadata"].items() if k != "managedFields"}
