"""Chooses the scheduler's configuration for a script: profiles for VMs and for warm pools."""

from collections.abc import Mapping
from typing import Any

from stower.sim.script import Script
from stower.sim.vm_load import PROFILE as VM_PROFILE
from stower.sim.vm_load import has_vms
from stower.sim.warm_load import PROFILE as WARM_PROFILE
from stower.sim.warm_load import has_pools


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
            {"schedulerName": "default-scheduler", **default},
            *((VM_PROFILE,) if has_vms(script) else ()),
        ],
    }
