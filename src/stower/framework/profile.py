"""A profile: the plugins of one scheduler name, in order, with their weights."""

from collections.abc import Mapping
from typing import Final

from stower.framework.plugin import Normalize, Plugin, Point, Scope
from stower.model.errors import InvariantError
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"


class Profile:
    """Plugins per extension point, in the order in which they run."""

    def __init__(
        self,
        scheduler_name: str,
        points: Mapping[Point, tuple[Plugin, ...]],
        weights: Mapping[str, int],
    ) -> None:
        self.scheduler_name = scheduler_name
        self.weights = dict(weights)
        self.queue_sort = points[Point.QUEUE_SORT][0]
        self.pre_enqueue = points[Point.PRE_ENQUEUE]
        self.pre_filters = points[Point.PRE_FILTER]
        self.shape_pre_filters = tuple(p for p in self.pre_filters if p.scope is not Scope.PODS)
        self.pod_pre_filters = tuple(p for p in self.pre_filters if p.scope is Scope.PODS)
        self.reservers = points[Point.RESERVE]
        self.filters = points[Point.FILTER]
        self.post_filters = points[Point.POST_FILTER]
        self.scores = tuple((p, self.weights[p.name]) for p in points[Point.SCORE])
        self.settlers = tuple(p for p in self.reservers if type(p).settle is not Plugin.settle)
        self.binders = points[Point.BIND]
        self.post_binders = points[Point.POST_BIND]
        self.plugins = {p.name: p for plugins in points.values() for p in plugins}
        makers = (p for p in self.plugins.values() if type(p).give_way is not Plugin.give_way)
        self.way_makers = tuple(makers)
        self.node_filters = tuple(p for p in self.filters if p.scope is Scope.NODE)
        self.use_filters = tuple(p for p in self.filters if p.scope is Scope.USE)
        self.pod_filters = tuple(p for p in self.filters if p.scope is Scope.PODS)
        self.pod_scores = tuple((p, w) for p, w in self.scores if p.scope is Scope.PODS)
        own = [(p, w) for p, w in self.scores if p.scope is not Scope.PODS]
        plain = [(p, w) for p, w in own if p.normalize is Normalize.NONE]
        self.node_scores = tuple((p, w) for p, w in plain if p.scope is Scope.NODE)
        self.use_scores = tuple((p, w) for p, w in plain if p.scope is Scope.USE)
        scores = (p for p, _ in (*self.node_scores, *self.use_scores))
        static = dict.fromkeys((*self.node_filters, *self.use_filters, *scores))
        self.generational = tuple(p for p in static if type(p).generation is not Plugin.generation)
        self.normalized = tuple((p, w) for p, w in own if p.normalize is not Normalize.NONE)
        for plugin, _ in self.normalized:
            if plugin.scope is not Scope.NODE:
                raise InvariantError(f"{plugin.name}: a normalised score must be of scope NODE")

    def generation(self, shape: Shape, state: ClusterState) -> int:
        """Changes where a node's change may alter what plugins say of other rows."""
        result = 0
        for plugin in self.generational:
            result = result * 31 + plugin.generation(shape, state)
        return result
