"""Arguments of DynamicResources in a KubeSchedulerConfiguration.

Source: kube-scheduler apis/config DynamicResourcesArgs; `deviceOrder` is Stower's own.
"""

from collections.abc import Mapping
from typing import Any, Final

from stower.devices.allocator import STEPS_MAX
from stower.devices.best_fit import best_fit
from stower.devices.fit_cache import Rules
from stower.devices.random_order import by_chance
from stower.framework.args import Args, convert_args, invalid, raise_faults
from stower.framework.plugin import Features
from stower.model.times import SECOND_NS, duration_ns

# How long a search of so many steps may take at most, as filterTimeout means it.
STEPS_PER_SECOND: Final = STEPS_MAX // 10
DEVICE_ORDERS: Final = {"BestFit": best_fit, "FirstFit": None, "Random": by_chance}
DEFAULT_ORDER: Final = "BestFit"


class DynamicResourcesArgs(Args, frozen=True, rename="camel"):
    """Arguments of the plugin in a KubeSchedulerConfiguration.

    `deviceOrder` is Stower's own: BestFit (of several devices the one of which least is left over),
    FirstFit (the first, as upstream) or Random (any: a hash of claims and devices decides).
    Where it is not given, Fragmentation decides if the profile enables it, else BestFit.
    """

    filter_timeout: str = "10s"
    binding_timeout: str = "10m0s"
    device_order: str = ""


def read_args(
    args: Mapping[str, Any] | None, path: str, features: Features
) -> tuple[Rules, int, bool]:
    """Returns the rules of device searches, the binding timeout in ns, and whether `deviceOrder`
    was given. Raises InvalidObject."""
    read = convert_args(args, DynamicResourcesArgs, path)
    lasts, faults = [], []
    for field, text, least_ns, must in (
        ("filterTimeout", read.filter_timeout, 0, "must be zero or positive"),
        ("bindingTimeout", read.binding_timeout, SECOND_NS, "must be at least 1 second"),
    ):
        lasts_ns = duration_ns(text)
        if lasts_ns is None and not text.startswith("-"):
            faults.append(invalid(f"{path}.{field}", text, 'must be a duration such as "10s"'))
        elif lasts_ns is None or lasts_ns < least_ns:
            faults.append(invalid(f"{path}.{field}", text, must))
        lasts.append(lasts_ns or 0)
    order = read.device_order or DEFAULT_ORDER
    if order not in DEVICE_ORDERS:
        must = f"must be one of {', '.join(DEVICE_ORDERS)}"
        faults.append(invalid(f"{path}.deviceOrder", order, must))
    raise_faults(faults)
    # No timeout is no limit: as many steps as nobody waits for.
    steps = STEPS_PER_SECOND * lasts[0] // SECOND_NS if lasts[0] else 1 << 62
    rules = Rules(features.devices, max(steps, 1), DEVICE_ORDERS[order])
    return rules, lasts[1], bool(read.device_order)
