"""The companions of an engine's plugins, one of each name."""

from collections.abc import Iterable

from stower.framework.companion import Companion
from stower.framework.profile import Profile
from stower.state.cluster import ClusterState


def companions(profiles: Iterable[Profile], state: ClusterState, seed: int) -> list[Companion]:
    """Make them, and let plugins find theirs in the state. Profiles that have arguments for one
    plugin have the same."""
    for profile in profiles:
        for name, plugin in sorted(profile.plugins.items()):
            if name not in state.companions:
                made = plugin.companion(state, seed)
                if made is not None:
                    state.companions[name] = made
    return list(state.companions.values())
