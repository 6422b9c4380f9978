"""A cluster at its watermarks comes to rest: VMs move as long as that helps, and then no more."""

import random

import pytest

from tests.builders import make_node
from tests.vms.migrating_rig import Moving
from tests.vms.rules_compared import compare


@pytest.mark.parametrize("seed", range(3))
def test_a_full_cluster_comes_to_rest_and_no_legal_move_is_left(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"n{i}" for i in range(50)]
    rig = Moving(*(make_node(name, cpu="10", memory="100Gi") for name in names))
    pods = [pod for name in names for pod in rig.fill(chance, name, chance.uniform(8.5, 9.5))]
    rig.start(*pods)
    before = {name: sum(cpu for cpu, _ in loads) for name, loads in rig.loads().items()}
    above = [name for name in names if before[name] > 9000]
    assert above, "there is something to do"
    rig.run(600)
    moves = len(rig.moves)
    rig.run(600)
    assert 0 < moves == len(rig.moves), "no more moves"
    assert len({vm for _, vm in rig.moves}) == moves, "no VM twice"
    after = rig.loads()
    used = {name: sum(cpu for cpu, _ in after.get(name, ())) for name in names}
    free = {name: 9000 - used[name] for name in names}
    for name in above:
        smallest = min(cpu for cpu, _ in after[name])
        can_move = any(free[other] >= smallest for other in names if other != name)
        assert used[name] <= 9000 or not can_move, f"{name} could send a VM to another node"


def test_the_rule_of_least_memory_moves_fewer_bytes_and_is_done_no_later() -> None:
    old, new = compare(nodes=12, seeds=range(3))
    assert new.gib < 0.8 * old.gib
    assert new.node_seconds_above < 1.1 * old.node_seconds_above
    assert new.nodes_left_above <= old.nodes_left_above
