"""Decides whether a node is ready for users: whether the pool's images are on the node (seed 001).

Placeholders may go to a node before that. The puller pods of the pool decide, if the pool names
them; otherwise the images in the node's status.
"""

from stower.model.kinds import Node, Pod
from stower.model.resources import normalized_image
from stower.warm.pools import Pool

RUNNING = "Running"
SUCCEEDED = "Succeeded"


def is_ready(pool: Pool, node: Node) -> bool:
    """Whether the pool's images are on the node; what users bring themselves is not among them."""
    images = pool.spec.images
    if images.pullers is not None:
        newest = _puller(pool, node)
        if newest is not None or not images.names:
            return newest is not None and newest.status.phase in (RUNNING, SUCCEEDED)
    return _has_images(node, images.names or ())


def _puller(pool: Pool, node: Node) -> Pod | None:
    """The pod that pulls there; of several, the one that was made last: the images have changed."""
    known = pool.pullers.get(node.metadata.name, {}).values()
    here = [pod for pod in known if pod.metadata.deletion_timestamp is None]
    return max(here, key=_creation_order, default=None)


def _creation_order(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.uid


def _has_images(node: Node, names: tuple[str, ...]) -> bool:
    if not names:
        return True
    there = {name for image in node.status.images or () for name in image.names or ()}
    return all(name in there or normalized_image(name) in there for name in names)


def is_maintained(pool: Pool, pod: Pod) -> bool:
    """Whether one of the pod's images is among those that are pulled ahead, as far as that is
    known: a pod that brings its own gains nothing by waiting. What comes beside a user's notebook
    (the chart's init container, a sidecar) makes no difference."""
    names = pool.spec.images.names
    if not names:
        return True
    known = {normalized_image(name) for name in names}
    return any(normalized_image(c.image) in known for c in pod.spec.containers)
