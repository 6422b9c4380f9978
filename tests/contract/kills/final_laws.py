"""Checks the whole cluster after the load and the kills have ended, and all deletions that were
seen.

What is not yet so may become so for a while: `unsettled` yields what the run waits for.
"""

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.contract.kills.client import Ledger, Object, key_of
from tests.contract.kills.watcher import (
    ENDED,
    Life,
    Watcher,
    controller_of,
    is_active,
    node_of,
    owners_of,
    phase_of,
)

# Pods of the campus that have no node, ever: see examples/campus/README.md.
WAITING: Final = {"default/huge", *(f"default/wide-ring-{n}" for n in range(7))}
POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
APPROVED: Final = "internal.autoscaling.neon.tech/resources-approved"
Found = Iterator[tuple[str, str]]  # law and text


def unsettled(watcher: Watcher) -> Found:
    """Yields what is not as the acknowledged objects want it."""
    with watcher.lock:
        alive, ledger = watcher.alive, watcher.ledger
        yield from _pods_that_wait(alive)
        yield from _deletions(alive, ledger)
        yield from _deployments(alive)
        yield from _jobs(alive)
        yield from _machines(alive)
        yield from _warm(alive)
        yield from _claims(alive)
        yield from _lost(alive, ledger)


def _pods_that_wait(alive: dict[str, dict[str, Object]]) -> Found:
    for key, pod in alive["pods"].items():
        if "deletionTimestamp" in pod["metadata"]:
            yield "end", f"pod {key} is still being deleted"
        elif key in WAITING:
            if node_of(pod):
                yield "end", f"pod {key} has no room anywhere, and is on {node_of(pod)}"
        elif phase_of(pod) not in ("Running", "Succeeded"):
            yield "end", f"pod {key} on {node_of(pod) or 'no node'} is {phase_of(pod)}: {_why(pod)}"
    for key, node in alive["nodes"].items():
        conditions = node.get("status", {}).get("conditions") or ()
        if not any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
            yield "end", f"node {key} is not ready"


def _why(pod: Object) -> str:
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((c.get("message", "") for c in conditions if c["type"] == "PodScheduled"), "")


def _deletions(alive: dict[str, dict[str, Object]], ledger: Ledger) -> Found:
    with ledger.lock:
        deletions = sorted(ledger.deletions)
    for resource, key in deletions:
        if key in alive.get(resource, {}):
            yield "lost", f"{resource} {key} is there, and its deletion was acknowledged"


def _owned(alive: dict[str, dict[str, Object]], resource: str) -> dict[str, list[Object]]:
    found: dict[str, list[Object]] = defaultdict(list)
    for obj in alive[resource].values():
        owner = controller_of(obj)
        if owner is not None:
            found[owner["uid"]].append(obj)
    return found


def _deployments(alive: dict[str, dict[str, Object]]) -> Found:
    sets, pods = _owned(alive, "replicasets"), _owned(alive, "pods")
    for key, deployment in alive["deployments"].items():
        own = sets[deployment["metadata"]["uid"]]
        active = [p for s in own for p in pods[s["metadata"]["uid"]] if is_active(p)]
        want = deployment["spec"]["replicas"]
        if len(own) != 1 or len(active) != want:
            yield "twice", f"{key} has {len(own)} ReplicaSets and {len(active)} of {want} pods"
        ready = deployment.get("status", {}).get("readyReplicas", 0)
        if ready != want:
            yield "end", f"the status of {key} has {ready} ready replicas, want {want}"


def _jobs(alive: dict[str, dict[str, Object]]) -> Found:
    pods = _owned(alive, "pods")
    for key, job in alive["jobs"].items():
        want = job["spec"]["completions"]
        own = pods[job["metadata"]["uid"]]
        done = sum(phase_of(pod) == "Succeeded" for pod in own)
        if (len(own), done) != (want, want):
            yield "twice", f"job {key} has {len(own)} pods, {done} succeeded, wants {want}"
        if job.get("status", {}).get("succeeded", 0) != want:
            yield "end", f"the status of job {key} does not have {want} completions"


def _machines(alive: dict[str, dict[str, Object]]) -> Found:
    pods = _owned(alive, "pods")
    moving = {
        f"{m['metadata']['namespace']}/{m['spec'].get('vmName')}"
        for m in alive["virtualmachinemigrations"].values()
        if m.get("status", {}).get("phase") not in ENDED
    }
    for key, vm in alive["virtualmachines"].items():
        own = [pod for pod in pods[vm["metadata"]["uid"]] if phase_of(pod) not in ENDED]
        if len(own) != 1 and key not in moving:
            yield "twice", f"VM {key} has {len(own)} pods that run"
        if APPROVED not in (vm["metadata"].get("annotations") or {}):
            yield "end", f"nothing was approved for VM {key}"


def _warm(alive: dict[str, dict[str, Object]]) -> Found:
    pods = _owned(alive, "pods")
    for key, pool in alive["warmpools"].items():
        want = pool["spec"]["placeholders"]["replicas"]
        have = len(pods[pool["metadata"]["uid"]])
        if have != want:
            yield "twice", f"warm pool {key} has {have} placeholders, wants {want}"


def _claims(alive: dict[str, dict[str, Object]]) -> Found:
    """Each reservation is for a pod that runs; each pod with claims has them."""
    pods = {pod["metadata"]["uid"]: pod for pod in alive["pods"].values()}
    reserved: dict[str, set[str]] = defaultdict(set)
    for key, claim in alive["resourceclaims"].items():
        status = claim.get("status") or {}
        for user in status.get("reservedFor") or ():
            pod = pods.get(user["uid"])
            if pod is None or phase_of(pod) in ENDED:
                yield "end", f"claim {key} is reserved for {user['name']}, which does not run"
            elif not node_of(pod):
                yield "end", f"claim {key} is reserved for {user['name']}, which has no node"
            reserved[user["uid"]].add(key)
        if status.get("reservedFor") and not status.get("allocation"):
            yield "end", f"claim {key} is reserved and not allocated"
        owner = controller_of(claim)
        if owner is not None and owner["uid"] not in pods:
            yield "end", f"claim {key} is there, and its pod is not"
    for uid, pod in pods.items():
        wanted = len(pod["spec"].get("resourceClaims") or ())
        if node_of(pod) and phase_of(pod) == "Running" and len(reserved[uid]) != wanted:
            text = f"pod {key_of(pod)} runs with {len(reserved[uid])} of {wanted} claims"
            yield "end", text


def _lost(alive: dict[str, dict[str, Object]], ledger: Ledger) -> Found:
    """What was acknowledged and not deleted is there, with the values that were acknowledged."""
    with ledger.lock:
        created = dict(ledger.created)
        fields = {of: dict(values) for of, values in ledger.fields.items()}
        gone = set(ledger.deletions_sent)
    for (resource, key), uid in created.items():
        if resource not in alive or (resource, key) in gone:
            continue
        obj = alive[resource].get(key)
        if obj is None or obj["metadata"]["uid"] != uid:
            yield "lost", f"{resource} {key} was acknowledged and is not there"
            continue
        for path, value in fields.get((resource, key), {}).items():
            if (found := _at(obj, path)) != value:
                text = f"{'.'.join(path)} of {resource} {key} is {found!r}, acknowledged {value!r}"
                yield "lost", text


def _at(obj: Object, path: tuple[str, ...]) -> Any:
    found: Any = obj
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    return found


def past(watcher: Watcher) -> Found:
    """Yields deletions without a reason, and objects that were created more often than wanted."""
    with watcher.lock:
        lives = dict(watcher.lives)
    by_key = {(life.resource, life.key): uid for uid, life in lives.items()}
    for uid, life in lives.items():
        if life.is_deleted and not _has_reason(watcher.ledger, lives, uid, life):
            how = " (no DELETED event)" if life.was_missed else ""
            yield "vanished", f"{life.resource} {life.key} was deleted, nobody asked{how}"
    yield from _made_too_often(watcher, lives, by_key)


def _has_reason(ledger: Ledger, lives: dict[str, Life], uid: str, life: Life) -> bool:
    if (life.resource, life.key) in ledger.deletions_sent:
        return True
    if life.resource == "podschedulings":
        return True  # the scheduler deletes them when the pod is placed
    if life.resource == "virtualmachinemigrations":
        return phase_of(life.last) in ENDED
    owners = [lives.get(owner["uid"]) for owner in owners_of(life.last)]
    if any(owner is not None and owner.is_deleted for owner in owners):
        return True
    for owner in owners:
        if owner is None:
            continue
        if owner.resource == "warmpools":
            return True  # placeholders make room for users
        if owner.resource == "virtualmachinemigrations":
            return True
        if owner.resource == "pods":
            return phase_of(owner.last) in ENDED  # claims of pods that have ended
        if owner.resource == "replicasets":
            return _was_scaled_down(ledger, lives, owner)
        if owner.resource == "virtualmachines":
            return any(
                m.resource == "virtualmachinemigrations"
                and m.last["spec"].get("vmName") == owner.last["metadata"]["name"]
                for m in lives.values()
            )
    return False


def _was_scaled_down(ledger: Ledger, lives: dict[str, Life], replica_set: Life) -> bool:
    owner = controller_of(replica_set.last)
    if owner is None or owner["uid"] not in lives:
        return False
    sent = ledger.replicas_sent.get(lives[owner["uid"]].key, [])
    return any(later < before for before, later in itertools.pairwise(sent))


def _made_too_often(
    watcher: Watcher, lives: dict[str, Life], by_key: dict[tuple[str, str], str]
) -> Found:
    made: dict[str, Counter[str]] = defaultdict(Counter)
    failed: set[str] = set()
    for life in lives.values():
        owner = controller_of(life.last)
        if owner is None:
            continue
        if life.resource == "pods":
            made[owner["uid"]]["pods"] += 1
            if phase_of(life.last) == "Failed":
                failed.add(owner["uid"])
        elif life.resource == "resourceclaims":
            name = (life.last["metadata"].get("annotations") or {}).get(POD_CLAIM, "")
            made[owner["uid"]][name] += 1
    moves = Counter(
        f"{m.last['metadata']['namespace']}/{m.last['spec'].get('vmName')}"
        for m in lives.values()
        if m.resource == "virtualmachinemigrations"
    )
    for uid, counts in made.items():
        life = lives.get(uid)
        if life is None or uid in failed:
            continue
        if life.resource == "pods":
            for name, count in counts.items():
                if count > 1:
                    yield "twice", f"{count} claims were made for {name} of pod {life.key}"
            continue
        most = _most_pods(watcher.ledger, lives, life, moves)
        if most is not None and counts["pods"] > most:
            text = f"{life.resource} {life.key} has made {counts['pods']} pods, at most {most}"
            yield "twice", f"{text} were wanted"


def _most_pods(
    ledger: Ledger, lives: dict[str, Life], life: Life, moves: Counter[str]
) -> int | None:
    """Returns how many pods may ever have been created for an owner; None where nobody knows."""
    if life.resource == "jobs":
        return int(life.last["spec"]["completions"])
    if life.resource == "virtualmachines":
        return 1 + moves[life.key]
    if life.resource == "replicasets":
        owner = controller_of(life.last)
        if owner is None or owner["uid"] not in lives:
            return None
        deployment = lives[owner["uid"]]
        default = [int(deployment.last["spec"]["replicas"])]
        sent = ledger.replicas_sent.get(deployment.key, default)
        return sent[0] + sum(max(0, later - before) for before, later in itertools.pairwise(sent))
    return None


def fabric(watcher: Watcher, file: Path) -> Found:
    """What the driver's fabric has attached is what claims have, each accelerator once."""
    if not file.exists():
        return
    attached = json.loads(file.read_text()).get("attached", {})
    places = Counter(tuple(place) for place in attached.values())
    for place, count in places.items():
        if count > 1:
            yield "devices", f"accelerator {'/'.join(place)} is attached {count} times"
    with watcher.lock:
        claims = {
            claim["metadata"]["uid"]: claim for claim in watcher.alive["resourceclaims"].values()
        }
    for slot in attached:
        if slot.partition("/")[0] not in claims:
            yield "devices", f"an accelerator is attached for {slot}, a claim that is gone"
    for claim in claims.values():
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            if result["driver"] == "fabric.example.com":
                slots = [s for s in attached if s.startswith(claim["metadata"]["uid"])]
                if not slots:
                    yield "devices", f"claim {key_of(claim)} has a device that is not attached"
