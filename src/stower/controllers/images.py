"""The images of simulated nodes: what is pulled when, and what never can be.

Pulls of a node go one after the other. What no object holds (a pull under way, how often one has
failed) starts again after a restart, as on a rebooted machine.

Source: pkg/kubelet/images (image_manager.go).
"""

from collections.abc import Iterator, Sequence
from typing import Final

from stower.controllers.cluster import Cluster
from stower.controllers.image_names import full_name
from stower.controllers.objects import Object, name_of, uid_of
from stower.controllers.runtime import ReconcileResult
from stower.model.times import SECOND_NS

BACKOFF_NS: Final = 10 * SECOND_NS
BACKOFF_NS_MAX: Final = 300 * SECOND_NS
# How long a container says that its pull has failed before it says that it waits for the next.
TELLS_NS: Final = SECOND_NS
PULL: Final = "ErrImagePull"
BACK_OFF: Final = "ImagePullBackOff"
NEVER: Final = "ErrImageNeverPull"
CREATING: Final = "ContainerCreating"


class Images:
    """Of all nodes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._unpullable = cluster.unpullable
        # By node and full name: the name that a pod gave, and when the image is there.
        self._pulled: dict[str, dict[str, tuple[str, int]]] = {}
        self._failed: dict[str, tuple[int, int]] = {}  # uid of the pod: how often, the last time

    def forget(self, pod: Object) -> None:
        """The pod needs no images any more."""
        self._failed.pop(uid_of(pod), None)

    def listed(self, node: Object, todo: ReconcileResult) -> list[Object] | None:
        """The node's images with those that were pulled since; None where that is no news."""
        listed = list((node.get("status") or {}).get("images") or ())
        known = _names(node)
        pulled = self._pulled.get(name_of(node), {})
        done = {key: name for key, (name, at_ns) in pulled.items() if at_ns <= todo.now_ns}
        for key in done:
            if key in known:
                del pulled[key]
        new = [name for key, name in done.items() if key not in known]
        for _, at_ns in pulled.values():
            if at_ns > todo.now_ns:
                todo.requeue_at(at_ns)
        if not new:
            return None
        return listed + [{"names": [i], "sizeBytes": self._cluster.image_bytes(i)} for i in new]

    def pull(self, node: Object, containers: Sequence[Object], todo: ReconcileResult) -> int:
        """When the last image of the containers is on the node, in ns; 0 where all are."""
        known = _names(node)
        pulled = self._pulled.setdefault(name_of(node), {})
        done_ns = 0
        for container in containers:
            image = container.get("image") or ""
            key = full_name(image)
            if key in known:
                continue
            if key not in pulled:
                takes_ns = self._cluster.image_bytes(image) * SECOND_NS // self._cluster.pull_rate
                free_ns = max(todo.now_ns, *(at_ns for _, at_ns in pulled.values()), 0)
                pulled[key] = image, free_ns + takes_ns
            done_ns = max(done_ns, pulled[key][1])
        if done_ns:
            # The node is told to list them when they are there.
            todo.requeue_key_at(f"node/{name_of(node)}", done_ns)
        return done_ns

    def missing(
        self,
        node: Object,
        pod: Object,
        containers: Sequence[Object],
        todo: ReconcileResult,
        component: str,
    ) -> dict[str, Object]:
        """By container, what it waits for whose image never comes, as its status says it. Events
        tell it once for each attempt."""
        if not self._unpullable and not any(
            c.get("imagePullPolicy") == "Never" for c in containers
        ):
            return {}
        known, found, refused = _names(node), {}, []
        for container in containers:
            image = container.get("image") or ""
            if full_name(image) in known:
                continue
            if container.get("imagePullPolicy") == "Never":
                text = f'Container image "{image}" is not present with pull policy of Never'
                found[container["name"]] = {"reason": NEVER, "message": text}
            elif full_name(image) in self._unpullable:
                refused.append((container["name"], image))
        if refused:
            found |= dict(self._attempt(pod, refused, todo, component))
        return found

    def awaited(
        self,
        node: Object,
        pod: Object,
        containers: Sequence[Object],
        todo: ReconcileResult,
        component: str,
    ) -> dict[str, Object]:
        """By container of a pod that runs, what it waits for whose image is not there yet, as its
        status says it. Pulls the images."""
        found = self.missing(node, pod, containers, todo, component)
        for container in containers:
            if container["name"] in found:
                continue
            done_ns = self.pull(node, (container,), todo)
            if done_ns > todo.now_ns:
                todo.requeue_at(done_ns)
                found[container["name"]] = {"reason": CREATING}
        return found

    def _attempt(
        self, pod: Object, refused: list[tuple[str, str]], todo: ReconcileResult, component: str
    ) -> Iterator[tuple[str, Object]]:
        uid, now_ns = uid_of(pod), todo.now_ns
        count, last_ns = self._failed.get(uid, (0, 0))
        pause_ns = min(BACKOFF_NS << min(count - 1, 5), BACKOFF_NS_MAX) if count else 0
        is_due = now_ns >= last_ns + pause_ns
        if is_due:
            self._failed[uid] = (count + 1, now_ns)
            pause_ns, last_ns = TELLS_NS, now_ns
        told_until_ns = last_ns + TELLS_NS
        todo.requeue_at(told_until_ns if now_ns < told_until_ns else last_ns + pause_ns)
        for name, image in refused:
            why = f'failed to pull image "{image}": the cluster file says that it cannot be pulled'
            if now_ns < told_until_ns:
                if is_due:
                    text = f'Failed to pull image "{image}": {why}'
                    todo.warn(pod, "Failed", text, component)
                yield name, {"reason": PULL, "message": why}
            else:
                text = f'Back-off pulling image "{image}": {PULL}: {why}'
                yield name, {"reason": BACK_OFF, "message": text}


def containers_of(pod: Object) -> tuple[Object, ...]:
    """The containers that a pod is created with."""
    return (*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"])


def _names(node: Object) -> set[str]:
    """The full names of the node's images."""
    listed = (node.get("status") or {}).get("images") or ()
    return {full_name(name) for image in listed for name in image.get("names") or ()}
