"""What filters and scores see of VMs is what a plain count over all pods gives."""

import random

import numpy as np
import pytest

from stower.framework.plugin import Plugin
from stower.model.kinds import Pod
from stower.vms.ledger import amounts_of
from tests.builders import make_node, make_pod
from tests.vms.rig import SCHEDULER, Rig, amount, changed, vm_pod

NODES = ("n1", "n2", "n3")


def random_pod(name: str, chance: random.Random) -> Pod:
    node = chance.choice(("", "", *NODES))
    if chance.random() < 0.3:
        cpu = f"{chance.randint(1, 20)}00m"
        return make_pod(name, node=node, cpu=cpu, memory="64Mi", schedulerName=SCHEDULER,
                        namespace=chance.choice(("default", "ignored")))  # fmt: skip
    use = (chance.randint(1, 8) / 4, chance.randint(1, 4))
    wanted = (use[0] + chance.randint(0, 6) / 4, use[1] + chance.randint(0, 3))
    notes = {"vm.neon.tech/overcommit": '{"cpu":"3"}'} if chance.random() < 0.3 else {}
    return vm_pod(name, node=node, use=use, requested=wanted, annotations=notes,
                  scaled=chance.random() < 0.8, moves=chance.random() < 0.5,
                  created=chance.randint(0, 59))  # fmt: skip


def check(rig: Rig) -> None:
    """The arrays against a count over all pods."""
    state, scheduling = rig.engine.state, rig.scheduling
    for name in NODES:
        row = state.row_of(name)
        held = [scheduling.enforcer.held_state(entry.uid, name) or entry.pod
                for entry in state.pods.values() if entry.row == row]  # fmt: skip
        sums = [amounts_of(one) or (0, 0) for one in held]
        plain = tuple(sum(one[i] for one in sums) for i in (0, 1))
        assert plain == (scheduling.ledger.cpu[row], scheduling.ledger.memory[row])
        known = scheduling.enforcer.nodes[name].node
        pods = [amounts_of(pod) or (0, 0) for pod in known.pods.values()]
        assert (known.cpu.reserved, known.memory.reserved) == (
            sum(cpu for cpu, _ in pods), sum(memory for _, memory in pods),
        )  # fmt: skip
        cpu, memory = known.cpu, known.memory
        assert [cpu.reserved, cpu.total, memory.reserved, memory.total] == (
            scheduling.reserved_amounts(np.array([row]))[:, 0].tolist()
        )


def check_dry_runs(rig: Rig, chance: random.Random) -> None:
    """What is said of a row while pods leave it and come back equals what the filter says then."""
    state = rig.engine.state
    plugin = rig.engine.profiles[SCHEDULER].plugins["AutoscaleEnforcer"]
    waiting = [entry for entry in state.pods.values() if entry.row < 0]
    for entry in waiting[:2]:
        fast = plugin.dry_runs(entry.pod, entry.shape, state)
        slow = Plugin.dry_runs(plugin, entry.pod, entry.shape, state)
        assert fast is not None
        assert slow is not None
        for row in state.present_rows():
            run, trial = fast(row), slow(row)
            there = [*state.pods_by_row[row].values()]
            for other in (*there, *waiting[2:]):
                for each in (run, trial):
                    each.remove(other) if other in there else each.add(other)
                assert trial.code() == run.code()
                if chance.random() < 0.5:
                    for each in (run, trial):
                        each.add(other) if other in there else each.remove(other)
                    assert trial.code() == run.code()


@pytest.mark.behaviour("S4.33", "S4.36")
@pytest.mark.parametrize("seed", range(20))
def test_arrays_are_what_a_plain_count_gives(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [make_node(name, cpu="6", memory="12Gi") for name in NODES]
    rig = Rig(*nodes, ignoredNamespaces=["ignored"], seed=seed).start()
    for turn in range(40):
        pods = [obj for obj in rig.objects.values() if isinstance(obj, Pod)]
        match chance.randrange(6):
            case 0 | 1:
                rig.put(random_pod(f"p{turn}", chance))
            case 2 if pods:
                rig.drop(chance.choice(pods).metadata.uid)
            case 3 if pods:
                wanted = amount(chance.randint(1, 16) / 4, chance.randint(1, 6))
                rig.put(changed(chance.choice(pods), requested=wanted))
            case 4:
                rig.advance(chance.choice((0.5, 6, 40)))
            case 5 if chance.random() < 0.3:
                rig.restart()
        check(rig)
        check_dry_runs(rig, chance)
