"""WarmPool objects by namespace, and the pools that follow from them and from the configuration.

A namespace's user may create any number of pools, with any label: only the first POOLS_MAX by name
count, as each costs a look at all nodes and at the namespace's pods, and they set only those labels
on nodes that the configuration allows, as other namespaces' pods may select by any other.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from stower.model.kinds import WarmPool
from stower.model.kinds.warm_pool import pool_faults
from stower.warm.pools import Pool

POOLS_MAX: Final = 20  # objects in a namespace


class PoolRegistry:
    """`notes`: what was said about objects since they were taken: level, text, key."""

    def __init__(self, own: Iterable[Pool], node_labels: Sequence[str]) -> None:
        """`own`: the pools of the configuration; `node_labels`: the labels that objects may set on
        nodes: keys, or domains as `example.com/*`."""
        self._own = {pool.key: pool for pool in own}
        self._node_labels = node_labels
        self._objects: dict[str, dict[str, WarmPool]] = {}
        self._told: dict[str, str] = {}  # by key, what is wrong with an object
        self.notes: list[tuple[str, str, str]] = []

    @property
    def namespaces(self) -> list[str]:
        """The namespaces that have pools."""
        return [*dict.fromkeys((*(p.namespace for p in self._own.values()), *self._objects))]

    def put(self, obj: WarmPool, is_deleted: bool) -> None:
        """An object came, changed or went."""
        namespace, key = obj.metadata.namespace, obj.metadata.key
        objects = self._objects.setdefault(namespace, {})
        objects.pop(key, None)
        if not is_deleted:
            objects[key] = obj
        if not objects:
            del self._objects[namespace]
        if is_deleted:
            self._told.pop(key, None)

    def replace(self, objects: Iterable[WarmPool]) -> None:
        """These are all objects."""
        self._objects.clear()
        for obj in objects:
            self.put(obj, False)
        known = {key for objects in self._objects.values() for key in objects}
        self._told = {key: fault for key, fault in self._told.items() if key in known}

    def pools(self, namespace: str, before: Mapping[str, Pool]) -> dict[str, Pool]:
        """Returns the namespace's pools by key. Those of `before` whose objects say the same go
        on."""
        found = {key: pool for key, pool in self._own.items() if pool.namespace == namespace}
        count = 0
        for key, obj in sorted(self._objects.get(namespace, {}).items()):
            pool = self._pool(obj, before.get(key), count >= POOLS_MAX)
            if pool is not None:
                count += 1
                found[key] = pool
        return found

    def _pool(self, obj: WarmPool, known: Pool | None, is_full: bool) -> Pool | None:
        """The pool that an object says; None where it makes no sense, as API servers that know only
        its schema store it all the same."""
        key = obj.metadata.key
        faults = pool_faults(obj.spec, obj.metadata.name)
        fault = next((f"{path}: {value}: {text}" for path, value, text in faults), "")
        if not fault and is_full:
            fault = f"the namespace has more than {POOLS_MAX} pools, those before it by name count"
        if fault:
            self._tell(key, f"ignoring the pool: {fault}")
            return None
        if known is not None and known.obj is not None and known.spec == obj.spec:
            known.set_object(obj)
            return known
        pool = Pool(key, obj.spec, obj)
        if pool.label and not self._is_allowed(pool.label):
            pool.fault = (
                f"images.label: {pool.label}: not set on nodes, as nodeLabels of the plugin "
                "WarmCapacity does not name it"
            )
            pool.label = ""
        self._tell(key, pool.fault)
        return pool

    def _is_allowed(self, label: str) -> bool:
        return any(
            label == one or (one.endswith("/*") and label.startswith(one[:-1]))
            for one in self._node_labels
        )

    def _tell(self, key: str, fault: str) -> None:
        if not fault:
            self._told.pop(key, None)
        elif self._told.get(key) != fault:
            self._told[key] = fault
            self.notes.append(("error", fault, key))
