"""Arguments of DynamicResources in a KubeSchedulerConfiguration.

Source: kube-scheduler apis/config DynamicResourcesArgs. Kubernetes has no `deviceOrder`, the order
in which the devices of a node are tried.
"""

from collections.abc import Mapping
from typing import Any, Final

from stower.devices.allocator import STEPS_MAX
from stower.devices.best_fit import best_fit
from stower.devices.fit_cache import Rules
from stower.devices.random_order import random_rank
from stower.framework.args import Args, convert_args, invalid, raise_faults
from stower.framework.plugin import Features
from stower.model.times import SECOND_NS, duration_ns

# Converts filterTimeout into a limit of search steps, so that results do not depend on speed.
STEPS_PER_SECOND: Final = STEPS_MAX // 10
DEVICE_ORDERS: Final = {"BestFit": best_fit, "FirstFit": None, "Random": random_rank}
DEFAULT_ORDER: Final = "BestFit"


class DynamicResourcesArgs(Args, frozen=True, rename="camel"):
    """Arguments of the plugin in a KubeSchedulerConfiguration.

    `deviceOrder` is Stower's own: BestFit (the device with the least capacity left over), FirstFit
    (the first device, as in kube-scheduler) or Random (a hash of claims and devices decides). If it
    is not set, Fragmentation decides if the profile enables it, else BestFit.
    """

    filter_timeout: str = "10s"
    binding_timeout: str = "10m0s"
    device_order: str = ""


def read_args(
    args: Mapping[str, Any] | None, path: str, features: Features
) -> tuple[Rules, int, bool]:
    """Returns the rules of device searches, the binding timeout in ns, and whether `deviceOrder` is
    set. Raises InvalidObject."""
    parsed = convert_args(args, DynamicResourcesArgs, path)
    durations, faults = [], []
    for field, text, min_ns, requirement in (
        ("filterTimeout", parsed.filter_timeout, 0, "must be zero or positive"),
        ("bindingTimeout", parsed.binding_timeout, SECOND_NS, "must be at least 1 second"),
    ):
        parsed_ns = duration_ns(text)
        if parsed_ns is None and not text.startswith("-"):
            faults.append(invalid(f"{path}.{field}", text, 'must be a duration such as "10s"'))
        elif parsed_ns is None or parsed_ns < min_ns:
            faults.append(invalid(f"{path}.{field}", text, requirement))
        durations.append(parsed_ns or 0)
    order = parsed.device_order or DEFAULT_ORDER
    if order not in DEVICE_ORDERS:
        requirement = f"must be one of {', '.join(DEVICE_ORDERS)}"
        faults.append(invalid(f"{path}.deviceOrder", order, requirement))
    raise_faults(faults)
    # A timeout of 0 means no limit: more steps than any search takes.
    steps = STEPS_PER_SECOND * durations[0] // SECOND_NS if durations[0] else 1 << 62
    rules = Rules(features.devices, max(steps, 1), DEVICE_ORDERS[order])
    return rules, durations[1], bool(parsed.device_order)
