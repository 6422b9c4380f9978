"""Reads workload objects (Deployment, StatefulSet, DaemonSet, Job, CronJob, ReplicaSet) of INPUT,
with the API server's defaults and checks.

Must not know which pods there are: workload_pods.py creates those that are missing.
"""

from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from stower.api.errors import REQUIRED
from stower.api.validation import jobs, workloads
from stower.apiserver.tables import load_registry
from stower.controllers.objects import PLURAL_OF, Object, key_of
from stower.model.errors import InvalidObject

VALIDATE: Final = {
    "Deployment": workloads.deployment,
    "ReplicaSet": workloads.replica_set,
    "StatefulSet": workloads.stateful_set,
    "DaemonSet": workloads.daemon_set,
    "Job": jobs.unstored_job,
    "CronJob": jobs.cron_job,
}
# Pods of one object. Kubernetes supports clusters of up to 150,000 pods.
PODS_MAX: Final = 150_000


class WorkloadObject(NamedTuple):
    """A workload object as an API server stores it. `plural`: its resource; `where`: the file and
    document that it came from; `is_stored`: it comes from an API server, as in a dump."""

    plural: str
    where: str
    object: Object
    is_stored: bool

    @property
    def key(self) -> tuple[str, str]:
        """The kind, and namespace/name."""
        return self.object["kind"], key_of(self.object)


def read_workload_object(where: str, data: bytes, api_version: str, kind: str) -> WorkloadObject:
    """Returns the object with defaults. Raises InvalidObject for one that an API server refuses."""
    item: Object = msgspec.json.decode(data)
    made = _cleaned(item, api_version, kind)
    meta = made["metadata"]
    is_stored = bool(meta.get("resourceVersion"))
    if not meta.get("name"):
        raise InvalidObject("metadata.name", meta.get("name"), "a name")
    meta["namespace"] = meta.get("namespace") or "default"
    for fault in VALIDATE[kind](made):
        # What an API server has stored may be of a later version than these rules.
        if not is_stored or fault.type == REQUIRED:
            what = "a value" if fault.type == REQUIRED else fault.message
            want = fault.detail.removeprefix("must be ") or what
            raise InvalidObject(fault.field, fault.value, want)
    for field in ("replicas", "parallelism"):
        count = made["spec"].get(field)
        if count is not None and count > PODS_MAX:
            raise InvalidObject(f"spec.{field}", count, f"at most {PODS_MAX}")
    meta["uid"] = meta.get("uid") or f"{kind.lower()}/{key_of(made)}"
    made.setdefault("status", {})
    return WorkloadObject(PLURAL_OF[api_version, kind], where, made, is_stored)


@cache
def _registry() -> Any:
    return load_registry()


def _cleaned(item: Object, api_version: str, kind: str) -> Object:
    """Returns the object as the API server reads it: fields of the right types, and defaults."""
    from stower.api.schema import BadValueError, Reading

    group, _, version = api_version.partition("/")
    form = _registry().by_kind(group, version, kind).type
    try:
        made: Object = form.clean(item, Reading())
    except BadValueError as error:
        names = [*reversed(error.path)]
        got: Any = item
        for name in names:
            got = got.get(name, error.got) if isinstance(got, dict) else error.got
        raise InvalidObject(".".join(names), got, error.want or error.text) from None
    made |= {"apiVersion": api_version, "kind": kind}
    return made
