"""Generates pods of two schedulers that know nothing of each other and want the same devices.

The second scheduler has a profile and a Lease of its own. Pods of both come in bursts, at the same
time. Only laws that hold with several schedulers are checked then (docs/limits.md).
"""

import random
from typing import Any, Final

import msgspec

from stower.sim.device_load import draw_claim_spec
from stower.sim.script import AddPod, AnyHappening, Script, StartScheduler, Template

RIVAL: Final = "rival-scheduler"
SHARE_OF_SEEDS: Final = 0.125
STARTS_MS: Final = 30_000
BURSTS: Final = (5, 30)
PODS_OF_BURST: Final = (1, 4)  # of each scheduler
LASTS_MS: Final = (500, 15_000)


def draw_rivals(
    seed: int, has_devices: bool, active_ms: int
) -> tuple[list[Template], list[AnyHappening]]:
    """Returns the templates of both schedulers, the start of the second one and the bursts; nothing
    for most seeds, and where there are no devices."""
    chance = random.Random(f"{seed}:other")
    if chance.random() >= SHARE_OF_SEEDS or not has_devices:
        return [], []
    pairs = []
    for i in range(chance.randint(1, 3)):
        mine = Template(f"contested-{i}", _pod_spec(), claim=draw_claim_spec(chance))
        pairs.append((mine, _for_rival(msgspec.structs.replace(mine, name=f"rival-{i}"))))
    happenings: list[AnyHappening] = [StartScheduler(chance.randrange(STARTS_MS), RIVAL)]
    for _ in range(chance.randint(*BURSTS)):
        at_ms = chance.randrange(active_ms)
        for template in chance.choice(pairs):
            for _ in range(chance.randint(*PODS_OF_BURST)):
                lasts_ms = chance.randint(*LASTS_MS)
                happenings.append(AddPod(at_ms, template.name, lasts_ms=lasts_ms))
    return [template for pair in pairs for template in pair], happenings


def _pod_spec() -> dict[str, Any]:
    resources = {"requests": {"cpu": "10m"}}
    return {
        "containers": [{"name": "main", "image": "busybox", "resources": resources}],
        "resourceClaims": [{"name": "device", "resourceClaimTemplateName": "device"}],
    }


def _for_rival(template: Template) -> Template:
    spec = {**template.spec, "schedulerName": RIVAL}
    return msgspec.structs.replace(template, spec=spec)


def has_rivals(script: Script) -> bool:
    """Returns whether a second scheduler starts."""
    return any(isinstance(happening, StartScheduler) for happening in script.happenings)
