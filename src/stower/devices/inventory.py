"""The inventory: pools from ResourceSlices, whole and as each node reaches them.

Source: dynamic-resource-allocation pools_experimental.go (GatherPools), resourceslice/tracker
(DeviceTaintRules); KEP-4381 "ResourceSlice pools", KEP-4815 (counters, selection per device),
KEP-5517 (what devices take of their node's own resources).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec

from stower.cel.device import Device as SeenDevice
from stower.cel.device import Gates, attribute_value, compile_selector
from stower.cel.values import CelError, spent_work
from stower.devices.capacity import Capacity, amount, capacity_of
from stower.devices.effort import Effort
from stower.model.kinds import Node
from stower.model.kinds.resource_slice import (
    Device,
    DeviceAttribute,
    DeviceTaint,
    NodeResourceMapping,
    ResourceSlice,
    ResourceSliceSpec,
)
from stower.model.quantity import quantity_of
from stower.model.selectors import NodeSelector, node_selector_matches
from stower.state.change_log import ChangeLog
from stower.state.device_usage import PoolID
from stower.state.devices import Devices

MATCHES_MAX: Final = 1_024  # answers of one device to selectors; more than are in use at a time
Counters = Mapping[tuple[str, str], int]  # (counter set, counter): nano-units


class Content:
    """What devices may have in common: all of a device but its name, taints and nodes.

    Equal ones of one driver share one object, so that a selector is asked once for all of them.
    """

    def __init__(self, serial: int, driver: str, device: Device, effort: Effort) -> None:
        self.serial = serial
        self._effort = effort
        self.driver = driver
        self.attributes: Mapping[str, DeviceAttribute] = device.attributes or {}
        self.capacity: Mapping[str, Capacity] = {
            name: capacity_of(capacity) for name, capacity in (device.capacity or {}).items()
        }
        self.is_shared = bool(device.allow_multiple_allocations)
        self.counters: Counters = {
            (consumption.counter_set, name): amount(counter.value).nano
            for consumption in device.consumes_counters or ()
            for name, counter in consumption.counters.items()
        }
        self.node_resources: Mapping[str, NodeResourceMapping] = (
            device.node_allocatable_resource_mappings or {}
        )
        self.binds_to_node = bool(device.binds_to_node)
        self.binding_conditions = device.binding_conditions
        self.binding_failure_conditions = device.binding_failure_conditions
        self.quantities = {n: quantity_of(c.value) for n, c in (device.capacity or {}).items()}
        self._seen: dict[bool, SeenDevice | str] = {}
        self._matches: dict[tuple[str, bool], bool | str] = {}

    def match(self, expression: str, list_attributes: bool) -> bool | str:
        """Whether a selector chooses such a device; a text says why there is no answer. Raises
        OutOfEffort, where that counts."""
        key = (expression, list_attributes)
        found = self._matches.get(key)
        if found is None:
            self._effort.check()
            if len(self._matches) >= MATCHES_MAX:
                self._matches.clear()
            found = self._matches[key] = self._match(expression, list_attributes)
        return found

    def _match(self, expression: str, list_attributes: bool) -> bool | str:
        selector = compile_selector(expression, Gates(list_attributes=list_attributes))
        if selector.error is not None:
            return f"CEL compile error: {selector.error}"
        seen = self._cel_device(list_attributes)
        if isinstance(seen, str):
            return f"CEL runtime error: {seen}"
        try:
            return selector.matches(seen)
        except CelError as error:
            return f"CEL runtime error: {error}"
        finally:
            self._effort.spend(spent_work())

    def _cel_device(self, list_attributes: bool) -> SeenDevice | str:
        seen = self._seen.get(list_attributes)
        if seen is None:
            seen = self._seen[list_attributes] = self._make_cel_device(list_attributes)
        return seen

    def _make_cel_device(self, list_attributes: bool) -> SeenDevice | str:
        attributes: dict[str, Any] = {}
        for name, attribute in self.attributes.items():
            try:
                attributes[name] = attribute_value(attribute, list_attributes)
            except CelError as error:
                return f"attribute {name}: {error}"
        return SeenDevice(self.driver, attributes, self.quantities, self.is_shared)

    def attribute(self, name: str) -> DeviceAttribute | None:
        """The attribute of that fully qualified name (lookupAttribute)."""
        found = self.attributes.get(name)
        if found is None:
            domain, slash, identifier = name.partition("/")
            if slash and domain == self.driver:
                found = self.attributes.get(identifier)
        return found


class Record:
    """One device of one slice."""

    __slots__ = ("content", "name", "nodes", "pool", "slice", "taints")

    def __init__(
        self,
        pool: PoolID,
        name: str,
        content: Content,
        slice_: ResourceSlice,
        nodes: "Nodes | None",
        taints: tuple[DeviceTaint, ...],
    ) -> None:
        self.pool = pool
        self.name = name
        self.content = content
        self.slice = slice_
        self.nodes = nodes  # who reaches it, where each device of the slice says so itself
        self.taints = taints

    @property
    def key(self) -> str:
        """driver/pool/device."""
        return f"{self.pool[0]}/{self.pool[1]}/{self.name}"

    @property
    def reaching_nodes(self) -> "Nodes":
        """Who reaches it, whoever says so."""
        return self.nodes or Nodes.of(self.slice.spec)


class Nodes(msgspec.Struct, frozen=True):
    """Who reaches something: a node, those that a selector chooses, or all."""

    name: str | None
    selector: NodeSelector | None
    is_all: bool | None

    @classmethod
    def of(cls, what: ResourceSliceSpec | Device) -> "Nodes":
        """As a slice or a device says."""
        return cls(what.node_name or None, what.node_selector, what.all_nodes)

    @property
    def is_given(self) -> bool:
        return bool(self.name) or bool(self.is_all) or self.selector is not None

    def include(self, node: Node) -> bool:
        """Source: NodeMatches."""
        if self.name:
            return node.metadata.name == self.name
        if self.is_all:
            return True
        if self.selector is None:
            return False
        return node_selector_matches(self.selector, node.metadata.labels or {}, node.metadata.name)


class Part:
    """A slice, read."""

    def __init__(self, slice_: ResourceSlice, records: tuple[Record, ...]) -> None:
        self.slice = slice_
        self.records = records
        spec = slice_.spec
        self.name = slice_.metadata.name
        self.pool: PoolID = (spec.driver, spec.pool.name)
        self.generation = spec.pool.generation
        self.nodes = Nodes.of(spec)
        self.per_device = bool(spec.per_device_node_selection)
        self.has_counters = bool(spec.shared_counters)
        self.takes_of_node = any(record.content.node_resources for record in records)
        # Of one node: nobody else need look at it.
        self.only_node = self.nodes.name or ""

    def reaches(self, node: Node) -> bool:
        """Whether a node reaches any of its devices. Not asked of counters: they belong to whoever
        reaches the pool."""
        if self.nodes.is_given:
            return self.nodes.include(node)
        if self.per_device:
            return any(r.nodes is not None and r.nodes.include(node) for r in self.records)
        return False


class Pool:
    """All parts of one generation of a pool, by the names of the slices."""

    def __init__(self, id: PoolID, parts: list[Part]) -> None:
        self.id = id
        self.generation = parts[0].generation
        self.parts = sorted(parts, key=lambda part: part.name)
        self.count = self.parts[0].slice.spec.pool.resource_slice_count
        self.is_complete = len(parts) == self.count
        # Devices that only another generation has, or that were published before, by name.
        self.gone: Mapping[str, Content] = {}

    @property
    def key(self) -> str:
        """driver/pool."""
        return f"{self.id[0]}/{self.id[1]}"

    @cached_property
    def counters(self) -> Counters:
        """All counters of the pool, by set and name."""
        return {
            (counter_set.name, name): amount(counter.value).nano
            for part in self.parts
            for counter_set in part.slice.spec.shared_counters or ()
            for name, counter in counter_set.counters.items()
        }

    def free_counters(self, devices: Devices) -> dict[tuple[str, str], int]:
        """What is left of them: each device in use takes its part once, however many share it
        (kubernetes/kubernetes#134103), also one that is published no more. Of one that was never
        seen nobody knows how much that is: nothing is left."""
        free = dict(self.counters)
        if not free:
            return free
        for name in devices.usage(self.id):
            record = self.records.get(name)
            content = record.content if record is not None else self.gone.get(name)
            if content is None:
                return {counter: min(nano, 0) for counter, nano in free.items()}
            for counter, nano in content.counters.items():
                if counter in free:
                    free[counter] -= nano
        return free

    @property
    def is_sound(self) -> bool:
        """Whether all of it is there, and its counters fit together."""
        return self.is_complete and not self.counter_fault

    @cached_property
    def records(self) -> dict[str, Record]:
        """All its devices, whoever reaches them."""
        return {record.name: record for part in self.parts for record in part.records}

    @cached_property
    def counter_fault(self) -> str:
        """What is wrong with its counters, or ""."""
        names: set[str] = set()
        known: dict[str, Mapping[str, object]] = {}
        for part in self.parts:
            for counter_set in part.slice.spec.shared_counters or ():
                if counter_set.name in names:
                    return f"duplicate counter set name {counter_set.name}"
                names.add(counter_set.name)
                known[counter_set.name] = counter_set.counters
        for part in self.parts:
            for device in part.slice.spec.devices or ():
                for consumption in device.consumes_counters or ():
                    if consumption.counter_set not in known:
                        return f"counter set {consumption.counter_set} not found"
                    for name in consumption.counters:
                        if name not in known[consumption.counter_set]:
                            of = consumption.counter_set
                            return f"counter {name} not found in counter set {of}"
        return ""


class PoolView:
    """A pool as some nodes reach it: those of its devices that they may use."""

    def __init__(self, pool: Pool, parts: tuple[Part, ...], partitionable: bool) -> None:
        self.pool = pool
        # All of a generation may be there for some nodes while a newer one arrives for others.
        self.is_incomplete = not pool.is_complete and len(parts) != pool.count
        known = () if self.is_incomplete else parts
        self.records = tuple(record for part in known for record in part.records)
        self.fault = "" if self.is_incomplete else self._fault(partitionable)
        self.chooses_nodes = any(record.nodes is not None for record in self.records)
        self.binds = any(r.content.binding_conditions is not None for r in self.records)
        self.takes_of_node = any(part.takes_of_node for part in known)
        self.likeness = (-1, -1, -1)  # what RowClasses has found last, and when

    @cached_property
    def places(self) -> Mapping[str, int]:
        """Where in `records` each device is."""
        return {record.name: place for place, record in enumerate(self.records)}

    def _fault(self, partitionable: bool) -> str:
        """What makes it invalid, or ""."""
        names: set[str] = set()
        for record in self.records:
            if record.name in names:
                return f"duplicate device name {record.name}"
            names.add(record.name)
        return self.pool.counter_fault if partitionable else ""


Views = tuple[PoolView, ...]


class PublishedPool:
    """All that is published of a pool, and what it is to nodes: the newest generation, and older
    ones that it replaces."""

    def __init__(self, id: PoolID, parts: Iterable[Part], gone: Mapping[str, Content]) -> None:
        generations: dict[int, list[Part]] = {}
        for part in parts:
            generations.setdefault(part.generation, []).append(part)
        self.pools = [Pool(id, generations[number]) for number in sorted(generations, reverse=True)]
        for pool in self.pools:
            others = (other for other in self.pools if other is not pool)
            records = [record for other in others for record in other.records.values()]
            pool.gone = {**gone, **{record.name: record.content for record in records}}
        members = [part for pool in self.pools for part in pool.parts]
        self.counters = [part for part in members if part.has_counters]
        devices = [part for part in members if not part.has_counters]
        self.of_nodes = [part for part in devices if part.only_node]
        self.wide = [part for part in devices if not part.only_node]
        # The names of the nodes that have parts of their own.
        self.names = tuple(dict.fromkeys(part.only_node for part in self.of_nodes))
        self._views: dict[tuple[tuple[str, ...], bool], PoolView] = {}
        # What it is to nodes that reach none of its devices: nothing, unless something is wrong.
        self.for_others = self._view(self.counters, True) if self.counters else None

    @property
    def newest(self) -> Pool:
        return self.pools[0]

    @property
    def is_wide(self) -> bool:
        """Whether it may be something to any node."""
        return bool(self.wide) or self.for_others is not None

    @property
    def users(self) -> tuple[str, ...] | None:
        """The names of the nodes to which it matters who uses its devices; None for any."""
        is_wide = self.wide or (self.for_others is not None and self.for_others.records)
        return None if is_wide else self.names

    def view(self, reached: list[Part], partitionable: bool) -> PoolView | None:
        """What it is to a node that reaches these parts, and the counters with them."""
        return self._view([*reached, *self.counters] if partitionable else reached, partitionable)

    def _view(self, parts: list[Part], partitionable: bool) -> PoolView | None:
        """The newest generation of which there is something for the node; None where that is being
        replaced by one of which there is not, or where there are counters alone."""
        generation = max(part.generation for part in parts)
        parts = [part for part in parts if part.generation == generation]
        pool = next(pool for pool in self.pools if pool.generation == generation)
        if pool is not self.newest and len(parts) != pool.count:
            return None
        if pool.is_sound and all(part.has_counters for part in parts):
            return None
        parts.sort(key=lambda part: part.name)
        key = (tuple(part.name for part in parts), partitionable)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = PoolView(pool, tuple(parts), partitionable)
        return view


class Inventory:
    """All pools, kept up to date with the slices and taint rules of the state."""

    def __init__(self, devices: Devices) -> None:
        self._devices = devices
        self._seen = (-1, -1)  # generations: of slices and rules, of rules
        self._position = 0  # in the log of slices
        self._parts: dict[str, Part] = {}  # by slice name
        self._of_pools: dict[PoolID, dict[str, Part]] = {}  # the same by pool
        self._taking = 0  # parts with devices that take of their node's own resources
        # Those that are in use: a device may have another one each time that it is published.
        self.effort = Effort()
        self._contents: WeakValueDictionary[bytes, Content] = WeakValueDictionary()
        self._serial = 0  # never one twice: others know contents by it
        self.pools: dict[PoolID, Pool] = {}  # the newest generation of each
        self._published: dict[PoolID, PublishedPool] = {}
        # Devices of claims that are published no more: they hold what they have taken.
        self._gone: dict[PoolID, dict[str, Content]] = {}
        self._by_node: dict[str, dict[str, Part]] = {}
        self._wide: dict[str, Part] = {}
        self._for_others: dict[PoolID, PoolView] = {}
        # Versions of what nodes reach: the count of changes at the last one, of what is wide, and
        # of what is for one node. The log has the names of these.
        self._changes = 0
        self.wide_version = 0
        self._versions: dict[str, int] = {}
        self.log: ChangeLog[str] = ChangeLog()

    def refresh(self) -> None:
        """Read what has changed."""
        devices = self._devices
        seen = (devices.slice_generation, devices.rule_generation)
        if seen == self._seen:
            return
        names = devices.slice_log.entries_since(self._position)
        is_all = names is None or seen[1] != self._seen[1]
        self._position = devices.slice_log.position
        pools: dict[PoolID, None] = {}
        rules = tuple(rule for _, rule in sorted(devices.rules.items()))
        for name in dict.fromkeys([*self._parts, *devices.slices] if is_all else names or ()):
            pools |= dict.fromkeys(self._read_slice(name, rules, seen[1] != self._seen[1]))
        self._seen = seen
        for pool in [pool for pool in self._gone if not devices.usage(pool)]:
            del self._gone[pool]
        # All are withdrawn first: a slice may have gone from one pool to another.
        withdrawn = {pool: self._withdraw(pool) for pool in pools}
        for pool, old in withdrawn.items():
            self._publish(pool, old)

    def _read_slice(self, name: str, rules: tuple[Any, ...], again: bool) -> list[PoolID]:
        """A slice that may have changed. Returns the pools that it was in and is in, if it has."""
        old, slice_ = self._parts.get(name), self._devices.slices.get(name)
        if not again and old is not None and old.slice is slice_:
            return []
        new = None if slice_ is None else self._part(slice_, rules)
        changed = []
        if old is not None:
            changed.append(old.pool)
            del self._parts[name], self._of_pools[old.pool][name]
            self._taking -= old.takes_of_node
        if new is not None:
            changed.append(new.pool)
            self._parts[name] = new
            self._of_pools.setdefault(new.pool, {})[name] = new
            self._taking += new.takes_of_node
        return changed

    def _withdraw(self, id: PoolID) -> PublishedPool | None:
        """Removes what is published of a pool, and returns it."""
        old = self._published.pop(id, None)
        if old is not None:
            for part in old.of_nodes:
                del self._by_node[part.only_node][part.name]
            for part in old.wide:
                del self._wide[part.name]
            self._for_others.pop(id, None)
            del self.pools[id]
        return old

    def _publish(self, id: PoolID, old: PublishedPool | None) -> None:
        """Publishes a pool some of whose slices have changed. `old`: what was withdrawn of it."""
        new = None
        gone = self._gone_devices(id, old)
        if self._of_pools[id]:
            new = self._published[id] = PublishedPool(id, self._of_pools[id].values(), gone)
            for part in new.of_nodes:
                self._by_node.setdefault(part.only_node, {})[part.name] = part
            for part in new.wide:
                self._wide[part.name] = part
            if new.for_others is not None:
                self._for_others[id] = new.for_others
            self.pools[id] = new.newest
        else:
            del self._of_pools[id]
        self._changes += 1
        both = [published for published in (old, new) if published is not None]
        if any(published.is_wide for published in both):
            self.wide_version = self._changes
        for name in dict.fromkeys(name for published in both for name in published.names):
            self.log.add(name)
            self._versions[name] = self._changes
            if not self._by_node.get(name):
                self._by_node.pop(name, None)
                del self._versions[name]

    def _gone_devices(self, id: PoolID, old: PublishedPool | None) -> Mapping[str, Content]:
        """Returns the devices of a pool that claims use and that were published before, by name."""
        known = self._gone.pop(id, {})
        for pool in old.pools if old is not None else ():
            known |= {name: record.content for name, record in pool.records.items()}
        used = self._devices.usage(id)
        gone = {name: content for name, content in known.items() if name in used}
        if gone:
            self._gone[id] = gone
        return gone

    def version_for(self, node: Node) -> tuple[int, int]:
        """Another one when what the node reaches may be another."""
        return self.wide_version, self._versions.get(node.metadata.name, 0)

    def _part(self, slice_: ResourceSlice, rules: tuple[Any, ...]) -> Part:
        spec = slice_.spec
        pool = (spec.driver, spec.pool.name)
        records = []
        for device in spec.devices or ():
            nodes = None
            if spec.per_device_node_selection:
                nodes = Nodes.of(device)
            taints = device.taints or ()
            tainted = [r.spec.taint for r in rules if _chooses(r, spec.driver, pool[1], device)]
            records.append(
                Record(pool, device.name, self._content(spec.driver, device), slice_, nodes,
                       (*tainted, *taints) if tainted else taints)
            )  # fmt: skip
        return Part(slice_, tuple(records))

    def _content(self, driver: str, device: Device) -> Content:
        common = msgspec.structs.replace(
            device, name="", taints=None, node_name=None, node_selector=None, all_nodes=None
        )
        key = driver.encode() + b"\0" + msgspec.json.encode(common, order="sorted")
        content = self._contents.get(key)
        if content is None:
            content = self._contents[key] = Content(self._serial, driver, device, self.effort)
            self._serial += 1
        return content

    def views(self, node: Node, partitionable: bool = True) -> Views:
        """The pools that a node reaches, in the order in which they are tried: by driver and pool,
        those with devices that must be bound last."""
        reached: dict[PoolID, list[Part]] = {}
        wide = (part for part in self._wide.values() if part.reaches(node))
        for part in (*self._by_node.get(node.metadata.name, {}).values(), *wide):
            if partitionable or not part.per_device:
                reached.setdefault(part.pool, []).append(part)
        found = [self._published[id].view(parts, partitionable) for id, parts in reached.items()]
        if partitionable:
            found += [view for id, view in self._for_others.items() if id not in reached]
        known = (view for view in found if view is not None)
        return tuple(sorted(known, key=lambda view: (view.binds, view.pool.id)))

    def nodes_of(self, pool: PoolID) -> Sequence[str] | None:
        """The names of the nodes that reach a pool, where only those that are named can."""
        known = self._published.get(pool)
        return known.users if known is not None else ()

    def takes_of_node(self) -> bool:
        """Whether any device takes some of its node's own resources."""
        self.refresh()
        return self._taking > 0

    def record(self, pool: PoolID, device: str) -> Record | None:
        """A device: of the newest generation that has it, where one is being replaced."""
        self.refresh()
        published = self._published.get(pool)
        known = published.pools if published is not None else ()
        return next((found for p in known if (found := p.records.get(device)) is not None), None)

    def content(self, pool: PoolID, device: str) -> Content | None:
        """What a device is: also one that is published no more while a claim has it."""
        published = self._published.get(pool)
        for known in published.pools if published is not None else ():
            record = known.records.get(device)
            if record is not None:
                return record.content
        return self._gone.get(pool, {}).get(device)

    def pool_with_counters(self, pool: PoolID) -> Pool | None:
        """The newest generation of a pool that has counters; None where none has."""
        published = self._published.get(pool)
        known = published.pools if published is not None else ()
        for each in known:
            if each.counters:
                return each
        return None

    def all_records(self) -> Iterator[Record]:
        """Every device, by pool and slice."""
        for _, pool in sorted(self.pools.items()):
            for part in pool.parts:
                yield from part.records


def _chooses(rule: Any, driver: str, pool: str, device: Device) -> bool:
    """Whether a DeviceTaintRule is about the device; one without a selector is about none."""
    selector = rule.spec.device_selector
    return (
        selector is not None
        and selector.driver in (None, driver)
        and selector.pool in (None, pool)
        and selector.device in (None, device.name)
    )
