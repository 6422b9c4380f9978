"""The kubelets of a run with faults: admit, start, end and remove the pods of their nodes.

A kubelet starts a bound pod after a while, or rejects it (kubelet_admission.py), and removes a pod
that is being deleted. While it is down, nothing happens on its node. Heartbeats are not written:
the taint shows that a node is lost.
"""

import random
from collections.abc import Callable
from typing import Final

import msgspec

from stower.framework.events import WatchType
from stower.model.kinds import Node, Pod
from stower.model.kubelet_admission import admission_failure
from stower.model.taints import Taint
from stower.model.times import SECOND_NS, time_text
from stower.sim.agenda import Agenda
from stower.sim.server import Change, Server

START_NS: Final = (SECOND_NS // 10, 5 * SECOND_NS)
END_NS: Final = (SECOND_NS // 10, 30 * SECOND_NS)
UNREACHABLE: Final = Taint("node.kubernetes.io/unreachable", "", "NoSchedule")


class Kubelets:
    """All of them."""

    def __init__(self, agenda: Agenda, server: Server, chance: random.Random) -> None:
        self._agenda = agenda
        self._server = server
        self._chance = chance
        self._down: set[str] = set()
        self.lifetime_ns: dict[str, int] = {}  # by uid, of pods that end by themselves
        self._admitted: dict[str, None] = {}  # uids of pods that may run, or have run
        server.tell.append(self._on_change)

    def stop(self, node_name: str) -> None:
        """The kubelet is down; the node is tainted as the node controller would."""
        self.crash(node_name)
        self._taint(node_name, True)

    def start(self, node_name: str) -> None:
        """It is back, and does what it had to."""
        self._taint(node_name, False)
        self.restart(node_name)

    def crash(self, node_name: str) -> None:
        """The kubelet is down, and nobody has noticed yet."""
        self._down.add(node_name)

    def restart(self, node_name: str) -> None:
        """It is back, and does what it had to."""
        self._down.discard(node_name)
        for pod in [*self._server.pods_on(node_name).values()]:
            self._check_pod(pod)

    def remove_node(self, node_name: str) -> None:
        """The node is gone, and so is all that was on it."""
        self._down.discard(node_name)
        node = self._server.get(Node, node_name)
        if node is None:
            return
        self._server.remove(node)
        for pod in [*self._server.pods_on(node_name).values()]:
            self._server.remove(pod)

    def _taint(self, node_name: str, lost: bool) -> None:
        node = self._server.get(Node, node_name)
        if node is None:
            return
        taints = tuple(t for t in node.spec.taints or () if t.key != UNREACHABLE.key)
        taints = (*taints, UNREACHABLE) if lost else taints
        spec = msgspec.structs.replace(node.spec, taints=taints)
        self._server.put(msgspec.structs.replace(node, spec=spec))

    def _on_change(self, change: Change) -> None:
        _, kind, obj = change
        if isinstance(obj, Pod) and kind is WatchType.DELETED:
            self._admitted.pop(obj.metadata.uid, None)
        elif isinstance(obj, Pod) and obj.spec.node_name:
            self._check_pod(obj)

    def _check_pod(self, pod: Pod) -> None:
        if self._server.get(Node, pod.spec.node_name) is None:
            # Bound while its node went: what collects garbage finds it.
            self._schedule(pod, END_NS, self._server.remove)
        elif pod.metadata.deletion_timestamp is not None:
            self._schedule(pod, END_NS, self._server.remove)
        elif pod.status.phase == "Pending":
            self._schedule(pod, START_NS, self._run)

    def _schedule(self, pod: Pod, within_ns: tuple[int, int], do: Callable[[Pod], None]) -> None:
        was = pod.metadata.deletion_timestamp

        def due() -> None:
            found = self._server.get(Pod, pod.metadata.key)
            if (
                found is not None
                and found.metadata.uid == pod.metadata.uid
                and found.metadata.deletion_timestamp == was
                and found.spec.node_name not in self._down
            ):
                do(found)

        self._agenda.schedule_after(self._chance.randint(*within_ns), due)

    def _run(self, pod: Pod) -> None:
        if pod.status.phase != "Pending":
            return
        reason = self._admission_failure(pod)
        if reason:
            status = msgspec.structs.replace(pod.status, phase="Failed", reason=reason)
            self._server.put(msgspec.structs.replace(pod, status=status))
            self._schedule(pod, END_NS, self._server.remove)
            return
        self._admitted[pod.metadata.uid] = None
        started = time_text(self._agenda.now_ns)
        status = msgspec.structs.replace(pod.status, phase="Running", start_time=started)
        self._server.put(msgspec.structs.replace(pod, status=status))
        lasts_ns = self.lifetime_ns.get(pod.metadata.uid)
        if lasts_ns is not None:
            self._schedule(pod, (lasts_ns, lasts_ns), self._finish)

    def _admission_failure(self, pod: Pod) -> str:
        """Returns why the pod may not run beside those that do, or ""."""
        node = self._server.get(Node, pod.spec.node_name)
        if node is None:
            return ""
        there = self._server.pods_on(pod.spec.node_name).values()
        running = [p for p in there if p.metadata.uid in self._admitted and not p.is_terminal]
        return admission_failure(node, running, pod)

    def _finish(self, pod: Pod) -> None:
        status = msgspec.structs.replace(pod.status, phase="Succeeded")
        self._server.put(msgspec.structs.replace(pod, status=status))
        self._schedule(pod, END_NS, self._server.remove)
