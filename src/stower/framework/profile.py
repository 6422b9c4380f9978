"""A profile: the plugins of one scheduler name, in order, with their weights.

Must not know any plugin by name.
"""

from collections.abc import Mapping
from typing import Final

from stower.framework.plugin import ExtensionPoint, Normalize, Plugin, Scope
from stower.model.errors import InvariantError
from stower.state.cluster import ClusterState
from stower.state.shapes import Shape

DEFAULT_SCHEDULER_NAME: Final = "default-scheduler"


# Shapes whose relevant plugins are kept.
SHAPES_MAX: Final = 8_192


class ShapePlugins:
    """The plugins of a profile that are relevant for pods of one shape."""

    __slots__ = ("negotiating", "pod_filters", "pod_pre_filters", "pod_scores", "reserve")

    def __init__(self, profile: "Profile", shape: Shape) -> None:
        self.pod_pre_filters = tuple(p for p in profile.pod_pre_filters if p.is_relevant(shape))
        self.pod_filters = tuple(p for p in profile.pod_filters if p.is_relevant(shape))
        self.pod_scores = tuple((p, w) for p, w in profile.pod_scores if p.is_relevant(shape))
        self.negotiating = tuple(p for p in profile.negotiating_plugins if p.is_relevant(shape))
        self.reserve = tuple(p for p in profile.reserve_plugins if p.is_relevant(shape))


def _scores_domains(plugin: Plugin) -> bool:
    """Returns whether `domain_scores` was written for this `score_pod`: a class that overrides
    scores of another one may know nothing of them."""

    def definer(method: str) -> type:
        return next(one for one in type(plugin).__mro__ if method in vars(one))

    own = definer("domain_scores")
    return own is not Plugin and issubclass(own, definer("score_pod"))


class Profile:
    """Plugins per extension point, in the order in which they run."""

    def __init__(
        self,
        scheduler_name: str,
        points: Mapping[ExtensionPoint, tuple[Plugin, ...]],
        weights: Mapping[str, int],
        others: tuple[Plugin, ...] = (),
    ) -> None:
        """`others`: plugins without an extension point, such as one with a companion alone."""
        self.scheduler_name = scheduler_name
        self._by_shape: dict[Shape, ShapePlugins] = {}
        self.weights = dict(weights)
        self.queue_sort = points[ExtensionPoint.QUEUE_SORT][0]
        self.pre_enqueue = points[ExtensionPoint.PRE_ENQUEUE]
        self.pre_filters = points[ExtensionPoint.PRE_FILTER]
        self.shape_pre_filters = tuple(p for p in self.pre_filters if p.scope is not Scope.PODS)
        self.pod_pre_filters = tuple(p for p in self.pre_filters if p.scope is Scope.PODS)
        self.reserve_plugins = points[ExtensionPoint.RESERVE]
        self.filters = points[ExtensionPoint.FILTER]
        self.post_filters = points[ExtensionPoint.POST_FILTER]
        self.scores = tuple((p, self.weights[p.name]) for p in points[ExtensionPoint.SCORE])
        self.negotiating_plugins = tuple(
            p for p in self.reserve_plugins if type(p).negotiate is not Plugin.negotiate
        )
        self.binders = points[ExtensionPoint.BIND]
        self.post_binders = points[ExtensionPoint.POST_BIND]
        self.plugins = {p.name: p for plugins in (*points.values(), others) for p in plugins}
        makers = (
            p
            for p in self.plugins.values()
            if type(p).displaceable_pods is not Plugin.displaceable_pods
        )
        self.displacing_plugins = tuple(makers)
        self.node_filters = tuple(p for p in self.filters if p.scope is Scope.NODE)
        self.usage_filters = tuple(p for p in self.filters if p.scope is Scope.USAGE)
        self.pod_filters = tuple(p for p in self.filters if p.scope is Scope.PODS)
        self.pod_scores = tuple((p, w) for p, w in self.scores if p.scope is Scope.PODS)
        # Whose `domain_scores` are those of `score_pod`.
        self.domain_scoring = frozenset(p.name for p, _ in self.pod_scores if _scores_domains(p))
        own = [(p, w) for p, w in self.scores if p.scope is not Scope.PODS]
        plain = [(p, w) for p, w in own if p.normalize is Normalize.NONE]
        self.node_scores = tuple((p, w) for p, w in plain if p.scope is Scope.NODE)
        self.usage_scores = tuple((p, w) for p, w in plain if p.scope is Scope.USAGE)
        scores = (p for p, _ in (*self.node_scores, *self.usage_scores))
        static = dict.fromkeys((*self.node_filters, *self.usage_filters, *scores))
        self.generation_plugins = tuple(
            p for p in static if type(p).generation is not Plugin.generation
        )
        self.normalized_scores = tuple((p, w) for p, w in own if p.normalize is not Normalize.NONE)
        for plugin, _ in self.normalized_scores:
            if plugin.scope is not Scope.NODE:
                raise InvariantError(f"{plugin.name}: a normalised score must be of scope NODE")

    def plugins_for(self, shape: Shape) -> ShapePlugins:
        """Returns the plugins that are relevant for the shape."""
        plugins = self._by_shape.get(shape)
        if plugins is None:
            if len(self._by_shape) >= SHAPES_MAX:
                self._by_shape.clear()
            plugins = self._by_shape[shape] = ShapePlugins(self, shape)
        return plugins

    def forget_shapes(self, serials: set[int]) -> None:
        """Drops what is kept of shapes that no pod has."""
        kept = self._by_shape
        self._by_shape = {s: p for s, p in kept.items() if s.serial not in serials}

    def generation(self, shape: Shape, state: ClusterState) -> int:
        """Returns a number that changes whenever the answers of plugins for unchanged rows may."""
        result = 0
        for plugin in self.generation_plugins:
            result = result * 31 + plugin.generation(shape, state)
        return result
