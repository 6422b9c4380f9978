"""Follows the API by list and watch and checks every change, as a user's client could.

Knows the API and the acknowledgements of the writers, and nothing of the programs.
"""

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from tests.contract.kills.amounts import approval_of, quantity, use_of
from tests.contract.kills.client import AWAY, Api, Ledger, Object, key_of, path_of, version_of

FOLLOWED: Final = (
    "nodes resourceslices pods deployments replicasets jobs resourceclaims podgroups "
    "compositepodgroups podschedulings warmpools virtualmachines virtualmachinemigrations"
).split()
WATCH_SECONDS: Final = 30
PAUSE_SECONDS: Final = 0.2
ENDED: Final = ("Succeeded", "Failed")
# For so long may a ReplicaSet or a Job have more pods than wanted, or a node hold more approvals
# than it has: the pods show an approval later than the VM.
EXCESS_SECONDS_MAX: Final = 10.0
FINDINGS_MAX: Final = 200


def owners_of(obj: Object) -> list[Object]:
    """Returns the owner references."""
    return obj["metadata"].get("ownerReferences") or []


def controller_of(obj: Object) -> Object | None:
    """Returns the reference to the controller."""
    return next((owner for owner in owners_of(obj) if owner.get("controller")), None)


def phase_of(pod: Object) -> str:
    """Returns the phase of a pod."""
    return str(pod.get("status", {}).get("phase") or "Pending")


def node_of(pod: Object) -> str:
    """Returns the node of a pod, "" for none."""
    return str(pod["spec"].get("nodeName") or "")


def is_active(pod: Object) -> bool:
    """Whether a pod counts for its controller."""
    return phase_of(pod) not in ENDED and "deletionTimestamp" not in pod["metadata"]


@dataclass
class Life:
    """One object from its creation to its deletion."""

    resource: str
    key: str
    last: Object
    is_deleted: bool = False
    was_missed: bool = False  # no DELETED event: a list did not have it any more


@dataclass
class Findings:
    """What was seen that must not be. One entry for each text."""

    texts: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)
    last_kill: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, law: str, text: str) -> None:
        """See Report."""
        with self.lock:
            at = time.monotonic() - self.began
            if len(self.texts) < FINDINGS_MAX and not any(
                known.startswith(f"{law}: {text} ") for known in self.texts
            ):
                self.texts[f"{law}: {text} (after {self.last_kill})"] = at


class Watcher:
    """Owns what is known of all objects, and a thread for each resource."""

    def __init__(self, kubeconfig: Path, ledger: Ledger, findings: Findings) -> None:
        self.ledger = ledger
        self.findings = findings
        self.lock = threading.RLock()
        self.alive: dict[str, dict[str, Object]] = {name: {} for name in FOLLOWED}
        self.lives: dict[str, Life] = {}  # by uid
        self.events = 0
        self.lists: Counter[str] = Counter()
        self.version = 0  # the highest that was seen in a list or an event
        self.listed_at: dict[str, float] = {}
        self._kubeconfig = kubeconfig
        self._stop = threading.Event()
        self._excess_since: dict[str, float] = {}
        self._threads = [
            threading.Thread(target=self._follow, args=(name,), daemon=True) for name in FOLLOWED
        ]

    def start(self) -> None:
        """Begins to follow."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the threads; each ends with its watch."""
        self._stop.set()

    def _follow(self, resource: str) -> None:
        api = Api(self._kubeconfig, WATCH_SECONDS + 30)
        since = 0
        while not self._stop.is_set():
            try:
                if not since:
                    since = self._list(api, resource)
                since = self._watch(api, resource, since)
            except AWAY:
                self._stop.wait(PAUSE_SECONDS)
            except Exception as error:  # the watcher's own: no law may pass because of it
                self.findings.add("watcher", f"{resource}: {error!r}")
                self._stop.wait(PAUSE_SECONDS)
        api.close()

    def _list(self, api: Api, resource: str) -> int:
        with self.ledger.lock:
            least = self.ledger.version
            versions = dict(self.ledger.versions)
            wanted = {
                key: uid
                for (name, key), uid in self.ledger.created.items()
                if name == resource and self.ledger.is_alive(name, key)
            }
        with self.lock:
            least = max(least, self.version)
        status, listed = api.call("GET", path_of(resource))
        if status != 200:
            time.sleep(PAUSE_SECONDS)
            raise OSError(f"status {status}")
        version = version_of(listed)
        if version < least:
            text = f"list of {resource} at version {version}, after version {least} was seen"
            self.findings.add("version", text)
        with self.lock:
            self._apply_list(resource, listed["items"], versions, wanted)
            self.version = max(self.version, version)
        return version

    def _apply_list(
        self, resource: str, items: list[Object], versions: dict[str, int], wanted: dict[str, str]
    ) -> None:
        self.lists[resource] += 1
        self.listed_at[resource] = time.monotonic()
        known, now = self.alive[resource], {key_of(item): item for item in items}
        uids = {item["metadata"]["uid"] for item in items}
        with self.ledger.lock:
            wanted = {k: u for k, u in wanted.items() if self.ledger.is_alive(resource, k)}
        for key, uid in wanted.items():
            if uid not in uids:
                self.findings.add("lost", f"{resource} {key} was acknowledged and is not listed")
        for item in items:
            uid = item["metadata"]["uid"]
            before = self.lives.get(uid)
            least = max(versions.get(uid, 0), version_of(before.last) if before else 0)
            if version_of(item) < least:
                text = f"{resource} {key_of(item)} went from {least} to {version_of(item)}"
                self.findings.add("version", text)
        for obj in [obj for obj in known.values() if obj["metadata"]["uid"] not in uids]:
            self._gone(resource, obj, missed=True)
        for item in items:
            self._put(resource, item)
        self.alive[resource] = now
        self._check(resource, items)

    def _watch(self, api: Api, resource: str, since: int) -> int:
        query = f"watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}"
        response = api.send("GET", f"{path_of(resource)}?{query}&resourceVersion={since}")
        if response.status != 200:
            response.read()
            return 0
        try:
            while not self._stop.is_set():
                line = response.readline()
                if not line:
                    break
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return 0
                version = version_of(event["object"])
                if version < since or (version == since and event["type"] != "BOOKMARK"):
                    text = f"watch of {resource}: {version} after {since}"
                    self.findings.add("version", text)
                since = version
                with self.lock:
                    self.version = max(self.version, version)
                    if event["type"] != "BOOKMARK":
                        self._apply_event(resource, event["type"], event["object"])
        finally:
            api.close()
        return since

    def _apply_event(self, resource: str, kind: str, obj: Object) -> None:
        self.events += 1
        key, uid = key_of(obj), obj["metadata"]["uid"]
        other = self.alive[resource].get(key)
        if other is not None and other["metadata"]["uid"] != uid:
            text = f"{resource} {key} is another object, and no deletion was seen"
            self.findings.add("twice", text)
        if kind == "DELETED":
            self._put(resource, obj)
            self._gone(resource, obj, missed=False)
            self.alive[resource].pop(key, None)
            return
        if kind == "MODIFIED" and other is None:
            self.findings.add("watch", f"MODIFIED {resource} {key}, which was not there")
        self._put(resource, obj)
        self.alive[resource][key] = obj
        self._check(resource, [obj])

    def _put(self, resource: str, obj: Object) -> None:
        """Compares an object with what was known of it."""
        key, uid = key_of(obj), obj["metadata"]["uid"]
        life = self.lives.get(uid)
        if life is None:
            self.lives[uid] = Life(resource, key, obj)
            return
        if life.is_deleted:
            self.findings.add("lost", f"{resource} {key} ({uid}) is back after its deletion")
            life.is_deleted = False
        if resource == "pods":
            self._compare_pods(life.last, obj)
        elif resource == "resourceclaims":
            self._compare_claims(life.last, obj)
        life.last = obj

    def _gone(self, resource: str, obj: Object, missed: bool) -> None:
        life = self.lives[obj["metadata"]["uid"]]
        life.is_deleted, life.was_missed = True, missed

    def _compare_pods(self, before: Object, now: Object) -> None:
        key = key_of(now)
        if node_of(before) and node_of(before) != node_of(now):
            text = f"pod {key} was on {node_of(before)}, then on {node_of(now) or 'no node'}"
            self.findings.add("moved", text)
        order = ["Pending", "Running", *ENDED]
        then, later = phase_of(before), phase_of(now)
        if order.index(later) < order.index(then) or (then in ENDED and later != then):
            self.findings.add("phase", f"pod {key} was {then}, then {later}")
        began = [_started(pod) for pod in (before, now)]
        if began[0] and began[1] and began[0] != began[1]:
            self.findings.add("phase", f"pod {key} started at {began[0]}, then at {began[1]}")

    def _compare_claims(self, before: Object, now: Object) -> None:
        then, later = (claim.get("status", {}).get("allocation") for claim in (before, now))
        if then and later and then["devices"] != later["devices"]:
            text = f"claim {key_of(now)} had {_devices(then)}, then {_devices(later)}"
            self.findings.add("moved", text)

    def _check(self, resource: str, changed: list[Object]) -> None:
        if resource == "pods":
            for pod in changed:
                self._check_pod(pod)
            for node in sorted({node_of(pod) for pod in changed} - {""}):
                self._check_room(node)
        elif resource == "resourceclaims":
            self._check_devices()

    def _check_pod(self, pod: Object) -> None:
        reason = str(pod.get("status", {}).get("reason") or "")
        if phase_of(pod) == "Failed":
            self.findings.add("failed", f"pod {key_of(pod)} on {node_of(pod)}: {reason}")

    def pods_on(self, node: str) -> Iterator[Object]:
        """Yields the pods that hold resources of a node."""
        for pod in self.alive["pods"].values():
            if node_of(pod) == node and phase_of(pod) not in ENDED:
                yield pod

    def _check_room(self, name: str) -> None:
        node = self.alive["nodes"].get(name)
        if node is None:
            return
        pods = list(self.pods_on(name))
        for i, what in enumerate(("cpu", "memory")):
            held, room = sum(use_of(pod)[i] for pod in pods), _room(node, what)
            if held > room:
                names = sorted(key_of(pod) for pod in pods)
                text = f"{name} holds {float(held):g} {what} of {float(room):g}: {names}"
                self.findings.add("overfull", text)
        if len(pods) > _room(node, "pods"):
            self.findings.add("overfull", f"{name} holds {len(pods)} pods")

    def _check_devices(self) -> None:
        """Each device is allocated to one claim, or shared within its capacity."""
        shared = {}
        for each in self.alive["resourceslices"].values():
            spec = each["spec"]
            for device in spec.get("devices") or ():
                if device.get("allowMultipleAllocations"):
                    where = (spec["driver"], spec["pool"]["name"], device["name"])
                    shared[where] = device["capacity"]
        holders: dict[tuple[str, str, str], list[tuple[str, Object]]] = defaultdict(list)
        for key, claim in self.alive["resourceclaims"].items():
            allocation = claim.get("status", {}).get("allocation") or {}
            for result in (allocation.get("devices") or {}).get("results") or ():
                where = (result["driver"], result["pool"], result["device"])
                holders[where].append((key, result))
        for where, those in holders.items():
            names = sorted(key for key, _ in those)
            if where not in shared:
                if len(those) > 1:
                    self.findings.add("devices", f"{'/'.join(where)} is held by {names}")
                continue
            for name, capacity in shared[where].items():
                used = sum(
                    quantity((result.get("consumedCapacity") or {}).get(name, 0))
                    for _, result in those
                )
                if used > quantity(capacity["value"]):
                    text = f"{float(used):g} {name} of {'/'.join(where)} are held by {names}"
                    self.findings.add("devices", text)

    def sample(self) -> None:
        """Looks for what may be for a moment and not for long. Called about once a second."""
        now = time.monotonic()
        with self.lock:
            excess = dict(self._find_excess())
            before, self._excess_since = self._excess_since, {}
            for text in excess.values():
                since = self._excess_since[text] = before.get(text, now)
                if now > since + EXCESS_SECONDS_MAX:
                    self.findings.add("excess", text)

    def _find_excess(self) -> Iterator[tuple[str, str]]:
        active: dict[str, int] = Counter()
        for pod in self.alive["pods"].values():
            owner = controller_of(pod)
            if owner is not None and is_active(pod):
                active[owner["uid"]] += 1
        for resource, path in (("replicasets", "replicas"), ("jobs", "parallelism")):
            for key, owner in self.alive[resource].items():
                have, want = active[owner["metadata"]["uid"]], owner["spec"].get(path, 1)
                if have > want and "deletionTimestamp" not in owner["metadata"]:
                    yield key, f"{resource} {key} has {have} active pods, wants {want}"
        for name, node in self.alive["nodes"].items():
            for i, what in enumerate(("cpu", "memory")):
                held = sum(approval_of(pod)[i] for pod in self.pods_on(name))
                if held > _room(node, what):
                    yield name, f"approvals on {name}: {float(held):g} {what}"


def _started(pod: Object) -> Any:
    return pod.get("status", {}).get("startTime")


def _devices(allocation: Object) -> list[str]:
    return [f"{r['pool']}/{r['device']}" for r in allocation["devices"].get("results") or ()]


def _room(node: Object, what: str) -> Fraction:
    return quantity(node["status"]["allocatable"][what])
