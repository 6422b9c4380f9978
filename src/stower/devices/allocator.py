"""Searches devices for all claims of a pod on one node, or proves that there are none.

Input: the plans of the claims, the pools that the node reaches, and the use of their devices.
Output: the chosen devices for each claim; None where no allocation exists; StepsExhaustedError
where the step limit was reached first. The search is depth-first and backtracking: claims, requests
and devices are tried in order, so the first answer is upstream's. Two rules shorten the search
without losing an answer: of devices that are equal for the search, only one is tried in each place,
and a partial allocation that was proved to fail is not searched again. The limit counts steps, not
time.

Source: dynamic-resource-allocation allocator_experimental.go, Kubernetes 1.36; KEP-4381, KEP-4815
(counters), KEP-4816 (alternatives), KEP-5055 (taints), KEP-5075 (shares).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from stower.devices.capacity import Amount, taken_amounts
from stower.devices.constraints import State, extended
from stower.devices.effort import COMPARISON, STEP, STEPS_ON_NODE_MAX
from stower.devices.inventory import Inventory, PoolView, Record, Views
from stower.devices.requests import AllocationError, Alternative, ClaimPlan
from stower.framework.device_gates import DeviceGates
from stower.model.kinds import Node
from stower.model.kinds.resource_claim import RESULTS_MAX
from stower.model.kinds.resource_slice import DeviceTaint
from stower.state.device_usage import UNUSED, DeviceUsage
from stower.state.devices import Devices

STEPS_MAX: Final = 1_000_000
# Choices after which a search asks whether there are enough devices at all.
LOOK_AFTER: Final = 64


class StepsExhaustedError(Exception):
    """The steps were used up: there may be an answer, and there may be none."""


class AllocatedDevice(NamedTuple):
    """One device for one request of a claim, and what is taken of it (None: all of it)."""

    alternative: Alternative
    record: Record
    taken: dict[str, Amount] | None


AllocatedDevices_ = tuple[
    tuple[AllocatedDevice, ...], ...
]  # for each claim, in the order of its requests
# Orders the devices that a request may have, best first; by their places, where it is None.
Prefer = Callable[[Alternative, "Candidate", dict[str, Amount]], Any]


class Candidate:
    """A device as the search sees it: what it is, and how it is used right now."""

    __slots__ = (
        "_texts",
        "avoiding",
        "claims", "content", "in_use", "kind", "nodes", "place", "record", "shares", "taints",
        "taken", "view",
    )  # fmt: skip

    def __init__(self, place: int, view: int, record: Record, use: DeviceUsage) -> None:
        self.place = place
        self.view = view
        self.record = record
        self.content = record.content
        self.taints = record.taints
        self.in_use = use.exclusive_count > 0
        self.shares = use.share_count  # how many claims share it, those of this search included
        self.taken = dict(use.consumed_capacity)
        self.claims: tuple[int, ...] = ()  # of this search, which have it alone
        self.avoiding: tuple[int, ...] = ()  # of this search, which do not get it
        self.nodes = record.nodes
        # Devices of one kind are alike in everything that a search looks at.
        pool = view if record.content.counters else -1
        self.kind: tuple[object, ...] = (
            record.content.serial, record.taints, record.nodes, pool,
            use.exclusive_count > 0, use.share_count, use.consumed_capacity,
        )  # fmt: skip
        self._texts: tuple[str, str] | None = None

    @property
    def texts(self) -> tuple[str, str]:
        """Its kind, as something that can be put in order."""
        if self._texts is None:
            self._texts = repr(self.kind[0]), repr(self.kind[1:])
        return self._texts


def allocate(
    plans: Sequence[ClaimPlan],
    views: Views,
    node: Node,
    devices: Devices,
    gates: DeviceGates,
    steps_max: int = STEPS_MAX,
    prefer: Prefer | None = None,
) -> AllocatedDevices_ | None:
    """Devices for each claim; None where there are none.

    Raises AllocationError where something is wrong with a claim or a pool, StepsExhaustedError
    after `steps_max` choices.
    """
    effort, most = devices.extension(Inventory).effort, min(steps_max, STEPS_ON_NODE_MAX)
    search = _Search(plans, views, node, devices, gates, most, prefer)
    try:
        return search.run()
    finally:
        effort.spend((most - search.steps_left) * STEP + search.compared * COMPARISON)


class _UnsatisfiableError(Exception):
    """There is nothing, whatever is tried."""


class _Search:
    def __init__(
        self,
        plans: Sequence[ClaimPlan],
        views: Views,
        node: Node,
        devices: Devices,
        gates: DeviceGates,
        steps_max: int,
        prefer: Prefer | None,
    ) -> None:
        self.plans = plans
        self.views = views
        self.node = node
        self.devices = devices
        self.gates = gates
        self.steps_left = steps_max
        self.look_at = steps_max - LOOK_AFTER  # for a reason why there can be nothing
        self.compared = 0
        self.prefer = prefer
        self.candidates = [
            Candidate(0, number, record, UNUSED) for number, record in self._usable_records()
        ]
        self._take_stock()
        self.free = {
            number: view.pool.free_counters(devices)
            for number, view in enumerate(views)
            if view.pool.counters and not view.is_incomplete and not view.fault
        }
        self.overdrawn = any(n < 0 for free in self.free.values() for n in free.values())
        self.results: list[list[AllocatedDevice]] = [[] for _ in plans]
        self.states: list[list[State]] = [[()] * len(plan.constraints) for plan in plans]
        # Upstream ends with the first; here it is told where there is no way round it.
        self.fault: AllocationError | None = None
        self.touched: dict[int, None] = {}
        self.dead: set[Any] = set()
        self.everything: dict[tuple[int, int, int], list[Candidate]] = {}
        self.judged: dict[tuple[Any, ...], bool] = {}
        self.wanted: dict[tuple[int, int, int, int], dict[str, Amount] | None] = {}

    def _usable_records(self) -> Iterator[tuple[int, Record]]:
        for number, view in enumerate(self.views):
            if not view.is_incomplete and not view.fault:
                for record in view.records:
                    yield number, record

    def _take_stock(self) -> None:
        """How each device is used as the search begins."""
        used = [self.devices.usage(view.pool.id) for view in self.views]
        for place, candidate in enumerate(self.candidates):
            use = used[candidate.view].get(candidate.record.name, UNUSED)
            self.candidates[place] = Candidate(place, candidate.view, candidate.record, use)
        if any(plan.avoided for plan in self.plans):
            for candidate in self.candidates:
                id = (candidate.record.pool, candidate.record.name)
                avoiding = tuple(i for i, plan in enumerate(self.plans) if id in plan.avoided)
                if avoiding:
                    candidate.avoiding = avoiding
                    candidate.kind = (*candidate.kind, avoiding)

    # ------------------------------------------------------------------------------ beginning

    def run(self) -> AllocatedDevices_ | None:
        for claim, plan in enumerate(self.plans):
            self._check_claim(claim, plan)
        try:
            if self._request(0, 0):
                return tuple(tuple(given) for given in self.results)
        except _UnsatisfiableError:
            pass
        if self.fault is not None:
            raise self.fault
        if any(view.fault for view in self.views):
            raise AllocationError("invalid resource pools were encountered", on_node_only=True)
        return None

    def _check_claim(self, claim: int, plan: ClaimPlan) -> None:
        """What `all` means for each request that wants all; whether the claim can be met at all."""
        least = 0
        for request, alternatives in enumerate(plan.requests):
            counts = []
            for choice, alternative in enumerate(alternatives):
                key = (claim, request, choice)
                if alternative.takes_all:
                    self.everything[key] = self._all_for(claim, alternative, key)
                    counts.append(len(self.everything[key]))
                else:
                    counts.append(alternative.number)
            least += min(counts)
        if least > RESULTS_MAX:
            text = f": number of requested devices {least} exceeds the claim limit of {RESULTS_MAX}"
            raise AllocationError(text, claim)

    def _all_for(
        self, claim: int, alternative: Alternative, key: tuple[int, int, int]
    ) -> list[Candidate]:
        found: list[Candidate] = []
        for view in self.views:
            fault = "updated" if view.is_incomplete else "invalid"
            if view.is_incomplete or view.fault:
                during = "currently being" if view.is_incomplete else "currently"
                raise AllocationError(
                    f", request {alternative.name}: asks for all devices, but resource pool "
                    f"{view.pool.key} is {during} {fault}",
                    claim,
                    here=True,
                )
            for candidate in self._candidates_of(view):
                if not self._is_selected(claim, alternative, candidate, key):
                    continue
                if self._has_room(alternative, candidate, key):
                    found.append(candidate)
        return found

    def _candidates_of(self, view: PoolView) -> Iterator[Candidate]:
        number = self.views.index(view)
        return (candidate for candidate in self.candidates if candidate.view == number)

    # -------------------------------------------------------------------------- what may be had

    def _is_selected(
        self, claim: int, alternative: Alternative, candidate: Candidate, key: tuple[int, int, int]
    ) -> bool:
        """Whether class, selectors and nodes allow the device, whoever uses it."""
        if claim in candidate.avoiding and not alternative.takes_all:
            return False
        kind = (*key, candidate.content.serial, candidate.nodes)
        known = self.judged.get(kind)
        if known is None:
            known = self.judged[kind] = self._judge(claim, alternative, candidate)
        return known

    def _judge(self, claim: int, alternative: Alternative, candidate: Candidate) -> bool:
        content = candidate.content
        if not self.gates.binding and content.binding_conditions:
            return False
        for is_class, selectors in (
            (True, alternative.class_selectors),
            (False, alternative.selectors),
        ):
            for number, selector in enumerate(selectors):
                expression = selector.cel.expression if selector.cel is not None else ""
                matches = content.match(expression, self.gates.list_attributes)
                if isinstance(matches, str):
                    said = f": selector #{number}: {matches}"
                    if is_class:
                        raise AllocationError(f"class {alternative.class_name}{said}")
                    raise AllocationError(said, claim)
                if not matches:
                    return False
        return candidate.nodes is None or candidate.nodes.include(self.node)

    def _amounts(
        self, alternative: Alternative, candidate: Candidate, key: tuple[int, int, int]
    ) -> dict[str, Amount] | None:
        """What the request takes of the device's capacities, None where it has too little left or
        allows no such amount."""
        content = candidate.content
        known = (*key, content.serial)
        if known not in self.wanted:
            self.wanted[known] = taken_amounts(content.capacity, alternative.amounts)
        wanted = self.wanted[known]
        if wanted is None:
            return None
        taken = candidate.taken
        for name, part in wanted.items():
            if taken.get(name, 0) + part.nano > content.capacity[name].whole.nano:
                return None
        return wanted

    def _has_room(
        self, alternative: Alternative, candidate: Candidate, key: tuple[int, int, int]
    ) -> bool:
        return not self.gates.consumable or self._amounts(alternative, candidate, key) is not None

    def _is_shared(self, candidate: Candidate) -> bool:
        return self.gates.consumable and candidate.content.is_shared

    def _is_taken(self, candidate: Candidate) -> bool:
        """Whether somebody has the device for himself, or it was shared while it still could be."""
        if candidate.in_use or candidate.claims:
            return True
        return candidate.shares > 0 and not self._is_shared(candidate)

    def _taints_allow(self, alternative: Alternative, taints: tuple[DeviceTaint, ...]) -> bool:
        return not self.gates.taints or all(
            taint.effect not in ("NoSchedule", "NoExecute") or alternative.tolerates(taint)
            for taint in taints
        )

    # ------------------------------------------------------------------------------- the search

    def _request(self, claim: int, request: int) -> bool:
        """Devices for this request and all that follow."""
        if claim == len(self.plans):
            return True
        plan = self.plans[claim]
        if request == len(plan.requests):
            return self._request(claim + 1, 0)
        situation = (claim, request, self._situation(claim))
        if situation in self.dead:
            return False
        for choice, alternative in enumerate(plan.requests[request]):
            key = (claim, request, choice)
            count = len(self.everything[key]) if alternative.takes_all else alternative.number
            if alternative.takes_all and not count:
                continue
            if len(self.results[claim]) + count > RESULTS_MAX:
                continue
            if alternative.takes_all:
                if self._allocate_all(key, alternative, self.everything[key], 0):
                    return True
            elif self._allocate_count(key, alternative, self._options(key, alternative), 0, count):
                return True
        self.dead.add(situation)
        return False

    def _situation(self, claim: int) -> Any:
        """All that what follows depends on: kinds of devices, and what was taken of them."""
        self.compared += len(self.touched)
        touched = sorted(
            (
                self.candidates[place].texts,
                self.candidates[place].claims,
                self.candidates[place].shares,
                tuple(sorted(self.candidates[place].taken.items())),
            )
            for place in self.touched
        )
        return (tuple(touched), len(self.results[claim]), tuple(self.states[claim]))

    def _options(self, key: tuple[int, int, int], alternative: Alternative) -> list[Candidate]:
        """The devices in the order in which they are tried."""
        if self.prefer is None:
            return self.candidates
        prefer = self.prefer
        ranked = []
        for candidate in self.candidates:
            if not alternative.admin and self._is_taken(candidate):
                continue
            if not self._is_selected(key[0], alternative, candidate, key):
                continue
            amounts = self._amounts(alternative, candidate, key) if self.gates.consumable else {}
            if amounts is not None:
                ranked.append((prefer(alternative, candidate, amounts), candidate.place))
        return [self.candidates[place] for _, place in sorted(ranked)]

    def _step(self) -> None:
        """A choice. Raises StepsExhaustedError, and _UnsatisfiableError."""
        self.steps_left -= 1
        if self.steps_left < 0:
            raise StepsExhaustedError
        if self.steps_left == self.look_at and self._has_shortage():
            raise _UnsatisfiableError

    def _has_shortage(self) -> bool:
        """Whether the first requests, some or all, want more devices than there are for them.

        No more than a search would find in the end, if it tried all that is left in each order.
        """
        wanted, found = 0, set[int]()
        try:
            for claim, plan in enumerate(self.plans):
                for request, alternatives in enumerate(plan.requests):
                    if any(one.admin or one.takes_all for one in alternatives):
                        continue
                    wanted += min(one.number for one in alternatives)
                    for candidate in self.candidates:
                        if not candidate.in_use and candidate.place not in found and any(
                            self._is_selected(claim, one, candidate, (claim, request, choice))
                            for choice, one in enumerate(alternatives)
                        ):  # fmt: skip
                            if self._is_shared(candidate):
                                return False
                            found.add(candidate.place)
                    if wanted > len(found):
                        return True
        except AllocationError:
            pass
        return False

    def _allocate_count(
        self,
        key: tuple[int, int, int],
        alternative: Alternative,
        options: list[Candidate],
        start: int,
        count: int,
    ) -> bool:
        """`count` more of the options from `start` on, then what follows."""
        claim, request, _ = key
        if count == 0:
            return self._request(claim, request + 1)
        tried: set[Any] = set()
        for at in range(start, len(options)):
            candidate = options[at]
            if alternative.admin:
                if claim in candidate.claims:
                    continue
            elif self._is_taken(candidate):
                continue
            # After another of its kind has failed in this place, it would fail too.
            kind = candidate.kind if not candidate.shares else (candidate.kind, candidate.place)
            if kind in tried and not candidate.claims:
                continue
            self._step()
            if not self._is_selected(claim, alternative, candidate, key):
                continue
            amounts: dict[str, Amount] | None = {}
            if self.gates.consumable:
                amounts = self._amounts(alternative, candidate, key)
                if amounts is None:
                    continue
            undo = self._take(key, alternative, candidate, amounts or {})
            if undo is None:
                continue
            if self._allocate_count(key, alternative, options, at + 1, count - 1):
                return True
            undo()
            tried.add(kind)
        return False

    def _allocate_all(
        self,
        key: tuple[int, int, int],
        alternative: Alternative,
        wanted: list[Candidate],
        at: int,
    ) -> bool:
        """All of the wanted devices from `at` on, then what follows."""
        claim, request, _ = key
        if at == len(wanted):
            return self._request(claim, request + 1)
        candidate = wanted[at]
        if not alternative.admin and self._is_taken(candidate):
            return False
        if alternative.admin and claim in candidate.claims and not self._is_shared(candidate):
            return False
        self._step()
        amounts: dict[str, Amount] | None = {}
        if self.gates.consumable:
            amounts = self._amounts(alternative, candidate, key)
            if amounts is None:
                return False
        undo = self._take(key, alternative, candidate, amounts or {}, must=True)
        if undo is None:
            return False
        if self._allocate_all(key, alternative, wanted, at + 1):
            return True
        undo()
        return False

    def _take(
        self,
        key: tuple[int, int, int],
        alternative: Alternative,
        candidate: Candidate,
        amounts: dict[str, Amount],
        must: bool = False,
    ) -> Callable[[], None] | None:
        """Take a device that the request may have; None where something stands in the way."""
        claim = key[0]
        content = candidate.content
        shared = self._is_shared(candidate)
        if content.counters and not self.gates.partitionable:
            return None
        # A device that somebody has already has drawn its part of the counters.
        is_used = candidate.in_use or bool(candidate.claims) or candidate.shares > 0
        draws = bool(content.counters) and not is_used
        if draws and not self._has_counters(candidate):
            return None
        if not self._taints_allow(alternative, candidate.taints):
            return None
        states = self.states[claim]
        before = list(states)
        for number, constraint in enumerate(self.plans[claim].constraints):
            if not constraint.concerns(alternative):
                continue
            grown = extended(constraint, states[number], content, self.gates.list_attributes)
            if grown is None:
                states[:] = before
                if must:
                    self.fault = self.fault or AllocationError(
                        f", request {alternative.name}: cannot add device {candidate.record.key} "
                        "because a claim constraint would not be satisfied",
                        claim,
                        here=True,
                    )
                return None
            states[number] = grown
        if draws:
            self._draw(candidate, -1)
        was_touched = candidate.place in self.touched
        self.touched[candidate.place] = None
        claims, taken = candidate.claims, candidate.taken
        if shared:
            candidate.shares += 1
            candidate.taken = dict(taken)
            for name, part in amounts.items():
                candidate.taken[name] = taken.get(name, 0) + part.nano
        else:
            candidate.claims = (*claims, claim)
        given = AllocatedDevice(alternative, candidate.record, amounts if shared else None)
        self.results[claim].append(given)

        def undo() -> None:
            self.results[claim].pop()
            if shared:
                candidate.shares -= 1
                candidate.taken = taken
            else:
                candidate.claims = claims
            if draws:
                self._draw(candidate, 1)
            if not was_touched:
                del self.touched[candidate.place]
            states[:] = before

        return undo

    def _has_counters(self, candidate: Candidate) -> bool:
        free = self.free.get(candidate.view, {})
        wanted = candidate.content.counters
        if self.overdrawn and any(n < 0 for n in free.values()):
            return False
        return all(free.get(counter, 0) >= nano for counter, nano in wanted.items())

    def _draw(self, candidate: Candidate, sign: int) -> None:
        free = self.free[candidate.view]
        for counter, nano in candidate.content.counters.items():
            free[counter] += sign * nano
