"""The data of the dashboard's views: groups, devices, negotiations, VMs, warm pools, pods, what-if.

The data is what `stower groups`, `explain`, `what-if` and other verbs print. A view
reads a source that does not change meanwhile and may take long: it runs in a child process
(forked_queries.py).
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar, get_args

import msgspec

from stower.dashboard.source import Rebuild, Source
from stower.dashboard.timeline import timeline
from stower.devices import overview as devices_overview
from stower.devices.negotiation import overview as negotiation_overview
from stower.engine.explain.probe import choose_node_for, explain_pod, observe_new_pods
from stower.groups import overview as groups_overview
from stower.live import debug
from stower.model.errors import InvalidObject
from stower.model.kinds import (
    Background,
    CompositePodGroup,
    GroupObject,
    Node,
    Pod,
    PodGroup,
    PodScheduling,
    ResourceClaim,
    ResourceClass,
    VirtualMachine,
    VirtualMachineMigration,
)
from stower.plugins.warm_capacity import find_warm_controller
from stower.sim.weights import check_scores, weighted
from stower.sim.what_if import Edit, compare, edited
from stower.sim.workload import Arrival, Workload
from stower.state.devices import devices_of
from stower.vms import overview as vms_overview
from stower.warm import overview as warm_overview

ROWS_MAX: Final = 500  # of a page; the rest is counted
ADDED_MAX: Final = 10_000  # nodes
Query = Mapping[str, str]
T = TypeVar("T")


class View:
    """A source, looked at for one answer."""

    def __init__(self, source: Source, rebuild: Rebuild, details: dict[str, Any]) -> None:
        """`details`: the pod that is asked about, as the API has it."""
        self.source = source
        self.rebuild = rebuild
        self.details = details
        self._objects = tuple(source.objects())

    def all(self, *kinds: type[T]) -> Iterator[T]:
        """All objects of these kinds."""
        return (obj for obj in self._objects if isinstance(obj, kinds))

    def groups(self, query: Query) -> dict[str, Any]:
        """Trees of groups."""
        groups: list[GroupObject] = [*self.all(PodGroup), *self.all(CompositePodGroup)]
        return _cut(groups_overview.overview(self.all(Node), self.all(Pod), groups))

    def devices(self, query: Query) -> dict[str, Any]:
        """Devices and who holds them."""
        found = devices_overview.overview(devices_of(self._objects), self.all(Node))
        if found is None:
            return {"rows": [], "more": 0, "pools": []}
        return {**_cut(found.devices), "pools": found.pools[:ROWS_MAX]}

    def negotiations(self, query: Query) -> dict[str, Any]:
        """Who waits for whom."""
        found = negotiation_overview.overview(self._negotiation_objects())
        return _cut(found.negotiations if found is not None else ())

    def vms(self, query: Query) -> dict[str, Any]:
        """VMs, what they ask for and were granted."""
        moves = self.all(VirtualMachineMigration)
        return _cut(vms_overview.overview(self.all(Pod), self.all(VirtualMachine), moves))

    def warm(self, query: Query) -> dict[str, Any]:
        """Pools as the seed draws them."""
        engine = self.source.engine
        warm = find_warm_controller(engine.state) if engine is not None else None
        if engine is None or warm is None:
            return _cut(())
        return _cut(warm_overview.overview(warm, lambda pod: choose_node_for(engine, pod)))

    def pod(self, query: Query) -> dict[str, Any]:
        """A pod: why it is where it is, or nowhere; what would help; how it came there."""
        key, engine = query.get("pod", ""), self.source.engine
        pod = next((pod for pod in self.all(Pod) if pod.key == key), None)
        known = debug.dump_pod(self.source, query)
        found = {**known, "timeline": timeline(self.details, known["decisions"])}
        if engine is None or pod is None:
            return found
        observe_new_pods(engine)
        plain = msgspec.to_builtins(explain_pod(engine, pod))
        talks = negotiation_overview.overview(self._negotiation_objects(), key)
        return {**found, "explanation": plain,
                "negotiation": talks.negotiations if talks is not None else ()}  # fmt: skip

    def what_if(self, query: Query) -> dict[str, Any]:
        """What would change: `add` nodes (`like` one), `remove` nodes, `weight`s of plugins."""
        count, like = query.get("add", "") or "0", query.get("like", "")
        if not (count.isascii() and count.isdecimal()) or len(count) > 6 or int(count) > ADDED_MAX:
            raise InvalidObject("add", count, f"a number of nodes, at most {ADDED_MAX:,}")
        removed = tuple(name for name in query.get("remove", "").split(",") if name)
        weights = [text for text in query.get("weight", "").split(",") if text]
        built = self.source.get_built()
        features = msgspec.structs.replace(built.features, drivers=False)
        built = msgspec.structs.replace(built, features=features)
        other = msgspec.structs.replace(built, configuration=weighted(built.configuration, weights))
        edit = Edit(((int(count), like),) if int(count) else (), removed, anew="anew" in query)
        workload = self._workload()
        before = edited(workload, Edit(anew=edit.anew)), self.rebuild(built)
        after = edited(workload, edit), self.rebuild(other)
        check_scores(after[1], weights)
        plain: dict[str, Any] = msgspec.to_builtins(compare(before, after))
        for name, value in plain.items():
            if isinstance(value, list | tuple):
                plain[name] = {"count": len(value), "rows": value[:ROWS_MAX]}
        return plain

    def _negotiation_objects(self) -> negotiation_overview.Objects:
        return negotiation_overview.Objects(
            self.all(Pod), self.all(ResourceClaim), self.all(ResourceClass),
            self.all(PodScheduling), self.all(Node), self.source.now_ns,
        )  # fmt: skip

    def _workload(self) -> Workload:
        # In the order in which an API server lists them, as for `stower what-if`.
        pods = [pod for pod in self.all(Pod) if not pod.is_terminal]
        pods.sort(key=lambda pod: (pod.metadata.namespace, pod.metadata.name))
        return Workload(
            tuple(sorted(self.all(Node), key=lambda node: node.metadata.name)),
            tuple(pod for pod in pods if pod.spec.node_name),
            tuple(Arrival(pod) for pod in pods if not pod.spec.node_name),
            related=tuple(self.all(*get_args(Background))),
        )


VIEWS: Final[Mapping[str, Callable[[View, Query], dict[str, Any]]]] = {
    "groups": View.groups, "devices": View.devices, "negotiations": View.negotiations,
    "vms": View.vms, "warm": View.warm, "pod": View.pod, "what-if": View.what_if,
}  # fmt: skip


def _cut(rows: Any) -> dict[str, Any]:
    rows = rows or ()
    return {"rows": rows[:ROWS_MAX], "more": max(0, len(rows) - ROWS_MAX)}
