"""Chooses the scheduler's configuration for a script: profiles for VMs and for warm pools."""

from collections.abc import Mapping
from typing import Any, Final

from stower.framework.profile import Profile
from stower.sim.script import Script
from stower.sim.vm_load import PROFILE as VM_PROFILE
from stower.sim.vm_load import SCHEDULER, has_vms
from stower.sim.warm_load import PROFILE as WARM_PROFILE
from stower.sim.warm_load import has_pools

DEFAULT: Final = "default-scheduler"
# Parts of the load that not every configuration schedules: the profile and the plugin that do.
PART_PLUGINS: Final = {
    "negotiation": (DEFAULT, "NegotiatedResources"),
    "vms": (SCHEDULER, "AutoscaleEnforcer"),
    "warm": (DEFAULT, "WarmCapacity"),
}


def lacking_plugins(profiles: Mapping[str, Profile]) -> dict[str, str]:
    """Returns the parts of the load that these profiles do not schedule, each with what they
    lack."""
    found = {}
    for part, (name, plugin) in PART_PLUGINS.items():
        profile = profiles.get(name)
        if profile is None or plugin not in profile.plugins:
            found[part] = f"plugin {plugin} of a profile {name}"
    return found


def configuration_for(
    script: Script, configuration: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """Returns the configuration of a run: the given one, or else one with a profile for VMs and one
    that knows warm pools, where the script has them; None for the default."""
    if configuration is not None or not (has_vms(script) or has_pools(script)):
        return configuration
    default = WARM_PROFILE if has_pools(script) else {}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {"schedulerName": DEFAULT, **default},
            *((VM_PROFILE,) if has_vms(script) else ()),
        ],
    }


def configuration_of_profile(name: str) -> Mapping[str, Any]:
    """Returns a configuration with one profile of that name."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": name}],
    }
