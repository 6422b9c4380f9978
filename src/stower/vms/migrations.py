"""Chooses the pods to migrate away from a node above its watermark, and builds their migrations.

Source: seed 004; neondatabase/autoscaling pkg/plugin/migration.go, handle_vmmigration.go.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from stower.model.times import SECOND_NS
from stower.state.journal import Journal
from stower.vms.migration_rules import Rule, oldest_first
from stower.vms.nodes import VmNode
from stower.vms.notes import INFO, WARN, Notes
from stower.vms.pods import VERSION, PodState

CREATED_BY: Final = "autoscaling.neon.tech/created-by-scheduler"
PREFIX: Final = "schedplugin-"
# On a migration: the node that had room for the VM when the migration was made.
PLANNED: Final = "stower.dev/planned-node"
ENDED: Final = ("Succeeded", "Failed")
# Until targets are looked for again: other nodes may have more room then.
TARGET_AGAIN_NS: Final = 10 * SECOND_NS


def choose(
    node: VmNode,
    requested: Iterable[str],
    journal: Journal,
    request: Callable[[str], None],
    notes: Notes,
    rest_ns: Callable[[PodState], int] = lambda pod: 0,
    has_target: Callable[[PodState], bool] = lambda pod: True,
    rule: Rule = oldest_first,
) -> int:
    """Have as many pods leave as bring the node to its watermark, in the order of the rule.
    requested: uids of those that are to leave already; `request` may raise, which ends it;
    `rest_ns`: how long a pod is left alone; `has_target`: whether the pod's VM has somewhere to go,
    where it counts then. Returns when to choose again without any change, in ns from now: as some
    pods may not leave yet; 0 for never."""
    requested = list(requested)
    again_ns = 0
    if not requested and not node.is_above_watermark:
        return 0
    with journal.trial():
        for uid in requested:
            pod = node.pods.get(uid)
            if pod is None:
                notes.add(WARN, "Node state marked pod as migrating that doesn't exist locally")
                continue
            node.update(pod._replace(migrating=True))
        if not node.is_above_watermark:
            return 0
        notes.add(
            INFO,
            "Not enough resources are being migrated to reduce to the watermark. "
            "Finding migration targets",
            node.name,
        )
        left = candidates(node)
        while left:
            pod = rule(node, left)
            left.remove(pod)
            if pod.cpu.reserved > node.cpu.watermark or pod.memory.reserved > node.memory.watermark:
                # It would be above the watermark anywhere.
                text = "Skipping potential migration of candidate Pod because it's too big"
                notes.add(WARN, text, pod.name)
                continue
            if left_ns := rest_ns(pod):
                again_ns = min(again_ns, left_ns) if again_ns else left_ns
                text = "Skipping potential migration of candidate Pod because its last one failed"
                notes.add(INFO, text, pod.name)
                continue
            if not has_target(pod):
                again_ns = min(again_ns, TARGET_AGAIN_NS) if again_ns else TARGET_AGAIN_NS
                continue
            notes.add(INFO, "Internally triggering migration for candidate Pod", pod.name)
            request(pod.uid)
            node.update(pod._replace(migrating=True))
            if not node.is_above_watermark:
                return 0
        notes.add(WARN, "Could not trigger enough migrations to get below watermark", node.name)
        return again_ns


def candidates(node: VmNode) -> list[PodState]:
    """Who may leave and does not yet, the oldest first."""
    found = [node.pods[uid] for uid in node.migratable]
    return sorted((p for p in found if not p.migrating), key=lambda p: (p.created, p.uid))


def migration_of(pod: PodState, node_name: str = "") -> dict[str, Any]:
    """The object that has a pod leave. It is named after the pod, not the VM: another pod of the
    same VM has another migration. `node_name`: its planned node, "" for none."""
    return {
        "apiVersion": VERSION,
        "kind": "VirtualMachineMigration",
        "metadata": {
            "name": f"{PREFIX}{pod.name}",
            "namespace": pod.namespace,
            "labels": {CREATED_BY: "true"},
            **({"annotations": {PLANNED: node_name}} if node_name else {}),
        },
        "spec": {
            "vmName": pod.vm.partition("/")[2],
            "preventMigrationToSameHost": True,
            "completionTimeout": 3600,
            "incremental": True,
            "autoConverge": True,
            "maxBandwidth": "1Gi",
            "allowPostCopy": False,
        },
    }
