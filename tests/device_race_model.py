"""Small worlds in which schedulers that know nothing of each other allocate the same devices, in
every possible order.

The rules are those of docs/devices.md, "Several schedulers": what each scheduler does follows from
what its watches have shown, and from its own requests that are not answered. Around them is an API
server with compare-and-set whose watch of claims shows changes in the order of their revisions; the
watch of pods may skip versions. Every interleaving is explored, breadth first. A scheduler that
restarts forgets everything; its requests may still arrive, at any time.

Each claim wants one device, any of `devices`. Not in it: time, shares, several claims of a pod.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

FREE: Final = ""


class Setup(NamedTuple):
    """A world at its beginning. `claims`, `schedulers`: by pod; `restarts`: who may restart, once
    each; `without`: rules that are left out."""

    claims: Mapping[str, str]
    schedulers: Mapping[str, str]
    devices: Sequence[str] = ("d",)
    restarts: Sequence[str] = ()
    without: frozenset[str] = frozenset()


class Claim(NamedTuple):
    """A claim in the API, or as a scheduler has seen it: then `order` says when its allocation was
    first seen, the same for all that came with one list."""

    version: int = 0
    device: str = FREE
    users: frozenset[str] = frozenset()
    order: int = 0


class Pod(NamedTuple):
    """A pod. `mark`: the version of a claim, as the pod was touched for it."""

    version: int = 0
    is_bound: bool = False
    mark: int = -1


class Request(NamedTuple):
    """A request on its way. `sender`: whose, "" where that scheduler has restarted since."""

    sender: str
    verb: str  # allocate, reserve, release, touch, bind
    pod: str
    version: int  # of the object that it relies on
    value: str = ""


class Scheduler(NamedTuple):
    """What one scheduler knows. `behind`: changes of claims that its watch has not shown yet."""

    claims: tuple[Claim, ...]
    pods: tuple[Pod, ...]
    behind: tuple[tuple[int, Claim], ...] = ()
    assumed: frozenset[str] = frozenset()  # pods that it is binding
    restarts: int = 0


class World(NamedTuple):
    """One state."""

    claims: tuple[Claim, ...]
    pods: tuple[Pod, ...]
    schedulers: tuple[Scheduler, ...]
    requests: frozenset[Request] = frozenset()


class Result(NamedTuple):
    """What was found: the first fault, and how it came to it."""

    states: int
    fault: str
    way: tuple[str, ...]


class Explorer:
    """All states of one setup."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.pods = sorted(setup.claims)
        self.names = sorted(set(setup.schedulers.values()))
        self.claims = sorted(set(setup.claims.values()))
        self.claim_of = [self.claims.index(setup.claims[pod]) for pod in self.pods]

    def first(self) -> World:
        """Everything is there, and nothing has happened."""
        claims, pods = (Claim(),) * len(self.claims), (Pod(),) * len(self.pods)
        restarts = [int(name in self.setup.restarts) for name in self.names]
        return World(
            claims, pods, tuple(Scheduler(claims, pods, restarts=count) for count in restarts)
        )

    # What can happen

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Everything that can happen next."""
        for request in sorted(world.requests):
            rest = world._replace(requests=world.requests - {request})
            yield f"server: {' '.join(map(str, request[:4]))}", self._serve(rest, request)
        for number, name in enumerate(self.names):
            scheduler = world.schedulers[number]
            for i in self._deliverable(scheduler):
                yield f"{name} sees a claim", self._put(world, number, _see(scheduler, i))
            if scheduler.pods != world.pods:
                shown = scheduler._replace(pods=world.pods)
                bound = {p for p, pod in zip(self.pods, world.pods) if pod.is_bound}
                shown = shown._replace(assumed=scheduler.assumed - bound)
                yield f"{name} sees the pods", self._put(world, number, shown)
            if scheduler.restarts:
                yield f"{name} restarts", self._restart(world, number)
            busy = {request.pod for request in world.requests if request.sender == name}
            for pod in self.pods:
                if self.setup.schedulers[pod] == name and pod not in busy:
                    request = self._decide(scheduler, name, pod, busy, world)
                    if request is not None:
                        yield (
                            f"{name}: {' '.join(request[1:3])}",
                            self._send(world, number, request),
                        )

    def _deliverable(self, scheduler: Scheduler) -> Sequence[int]:
        """Which of the changes may be shown next: the oldest; of each claim, without that rule."""
        if "in order" not in self.setup.without:
            return [0] if scheduler.behind else []
        claims = [claim for claim, _ in scheduler.behind]
        return [i for i, claim in enumerate(claims) if claim not in claims[:i]]

    def _put(self, world: World, number: int, scheduler: Scheduler) -> World:
        changed = [*world.schedulers]
        changed[number] = scheduler
        return world._replace(schedulers=tuple(changed))

    def _send(self, world: World, number: int, request: Request) -> World:
        scheduler = world.schedulers[number]
        if request.verb == "bind":
            scheduler = scheduler._replace(assumed=scheduler.assumed | {request.pod})
        return self._put(world, number, scheduler)._replace(requests=world.requests | {request})

    def _restart(self, world: World, number: int) -> World:
        """It knows what a list says; its requests have nobody who waits for their answers."""
        name = self.names[number]
        listed = tuple(claim._replace(order=0) for claim in world.claims)
        again = Scheduler(listed, world.pods, restarts=world.schedulers[number].restarts - 1)
        requests = [r._replace(sender="") if r.sender == name else r for r in world.requests]
        return self._put(world, number, again)._replace(requests=frozenset(requests))

    # The server

    def _serve(self, world: World, request: Request) -> World:
        place = self.pods.index(request.pod)
        if request.verb in ("bind", "touch"):
            return self._serve_pod(world, request, place)
        number = self.claim_of[place]
        claim = world.claims[number]
        is_unsafe = request.verb == "release" and "version" in self.setup.without
        if claim.version != request.version and not is_unsafe:
            return world
        if request.verb == "allocate":
            new = Claim(0, request.value, frozenset((request.pod,)))
        elif request.verb == "reserve":
            new = claim._replace(users=claim.users | {request.pod})
        else:
            new = Claim()
        return self._store(world, number, new._replace(version=claim.version + 1))

    def _store(self, world: World, number: int, claim: Claim) -> World:
        claims = [*world.claims]
        claims[number] = claim
        told = [s._replace(behind=(*s.behind, (number, claim))) for s in world.schedulers]
        return world._replace(claims=tuple(claims), schedulers=tuple(told))

    def _serve_pod(self, world: World, request: Request, place: int) -> World:
        pod, pods = world.pods[place], [*world.pods]
        if request.verb == "touch":
            if pod.version != request.version:
                return world
            pods[place] = pod._replace(version=pod.version + 1, mark=int(request.value))
        elif pod.is_bound or (
            pod.version != request.version and "bind version" not in self.setup.without
        ):
            # Its sender hears of it, and does not count the pod as bound any more.
            forgetting = [s._replace(assumed=s.assumed - {request.pod}) for s in world.schedulers]
            is_heard = bool(request.sender)
            return world._replace(schedulers=tuple(forgetting)) if is_heard else world
        else:
            pods[place] = pod._replace(version=pod.version + 1, is_bound=True)
        return world._replace(pods=tuple(pods))

    # The rules

    def _decide(
        self, scheduler: Scheduler, name: str, pod: str, busy: set[str], world: World
    ) -> Request | None:
        """What a scheduler does for a pod, by what it knows."""
        place = self.pods.index(pod)
        seen = scheduler.pods[place]
        if seen.is_bound or pod in scheduler.assumed:
            return None
        number = self.claim_of[place]
        claim = scheduler.claims[number]
        if not claim.device:
            # Devices of its own decisions that are not seen yet count as taken.
            taken = {other.device for other in scheduler.claims}
            own = [r for r in world.requests if r.sender == name and r.verb == "allocate"]
            taken |= {request.value for request in own}
            if any(self.claim_of[self.pods.index(r.pod)] == number for r in own):
                return None
            if any(n == number for n, _ in scheduler.behind):
                return None  # it waits for what its last write has made of the claim
            free = [device for device in self.setup.devices if device not in taken]
            return Request(name, "allocate", pod, claim.version, free[0]) if free else None
        others = [
            other.order
            for i, other in enumerate(scheduler.claims)
            if i != number and other.device == claim.device
        ]
        is_later = any(
            order < claim.order or (order == claim.order and "doubt" not in self.setup.without)
            for order in others
        )
        is_used = any(scheduler.pods[self.pods.index(user)].is_bound for user in claim.users)
        is_marked = seen.mark == claim.version and not is_used
        is_marked &= "mark" not in self.setup.without
        if (is_later or is_marked) and "look" not in self.setup.without:
            return self._give_back(scheduler, name, pod, claim)
        if pod not in claim.users:
            return Request(name, "reserve", pod, claim.version)
        return Request(name, "bind", pod, seen.version)

    def _give_back(self, scheduler: Scheduler, name: str, pod: str, claim: Claim) -> Request | None:
        """Takes an allocation back that only own pods have which are not being bound. The pods are
        touched before: no binding arrives that was sent before a restart, and after a restart
        nobody binds on what is being taken back."""
        for user in sorted(claim.users):
            place = self.pods.index(user)
            if self.setup.schedulers[user] != name or user in scheduler.assumed:
                return None
            if scheduler.pods[place].is_bound:
                return None
            is_touched = scheduler.pods[place].mark == claim.version
            if not is_touched and "touch" not in self.setup.without:
                return Request(
                    name, "touch", user, scheduler.pods[place].version, str(claim.version)
                )
        return Request(name, "release", pod, claim.version)

    # The laws

    def fault(self, world: World) -> str:
        """Which law the state breaks, or ""."""
        holders: dict[str, str] = {}
        for pod, state, number in zip(self.pods, world.pods, self.claim_of):
            claim = world.claims[number]
            if not state.is_bound:
                continue
            if pod not in claim.users:
                return f"{pod} is bound, and has no device"
            holder = holders.setdefault(claim.device, self.claims[number])
            if holder != self.claims[number]:
                return f"{claim.device} has two bound users"
        return ""

    def end_fault(self, world: World) -> str:
        """What is wrong where nothing more happens, or ""."""
        devices = [claim.device for claim in world.claims if claim.device]
        if len(set(devices)) < len(devices):
            return "a device stays allocated twice"
        wanted = min(len(self.claims), len(self.setup.devices))
        if len(devices) < wanted:
            return "a device stays free, and a pod waits for it"
        for state, number in zip(world.pods, self.claim_of):
            if world.claims[number].device and not state.is_bound:
                return "a pod has its device, and is not bound"
        return ""


def _see(scheduler: Scheduler, i: int) -> Scheduler:
    """The scheduler is shown a change of a claim."""
    number, claim = scheduler.behind[i]
    behind = scheduler.behind[:i] + scheduler.behind[i + 1 :]
    claims = [*scheduler.claims]
    old = claims[number]
    if claim.version <= old.version:
        return scheduler._replace(behind=behind)  # a list has shown it, or a newer one
    is_known = old.device == claim.device
    order = old.order if is_known else max(each.order for each in claims) + 1
    claims[number] = claim._replace(order=order if claim.device else 0)
    return scheduler._replace(claims=tuple(claims), behind=behind)


def canonical(world: World) -> World:
    """The state, with orders by their ranks alone."""
    schedulers = []
    for scheduler in world.schedulers:
        orders = sorted({claim.order for claim in scheduler.claims if claim.device})
        claims = tuple(
            claim._replace(order=orders.index(claim.order) + 1 if claim.device else 0)
            for claim in scheduler.claims
        )
        schedulers.append(scheduler._replace(claims=claims))
    return world._replace(schedulers=tuple(schedulers))


def explore(setup: Setup, states_max: int = 2_000_000) -> Result:
    """Goes through all states, to the first that breaks a law."""
    explorer = Explorer(setup)
    first = canonical(explorer.first())
    came: dict[World, tuple[World, str] | None] = {first: None}
    waiting = deque((first,))
    while waiting:
        world = waiting.popleft()
        fault = explorer.fault(world)
        following = [*explorer.steps(world)]
        if not fault and all(label.endswith("restarts") for label, _ in following):
            fault = explorer.end_fault(world)
        if fault:
            return Result(len(came), fault, _way(came, world))
        for label, after in following:
            after = canonical(after)
            if after not in came:
                came[after] = (world, label)
                waiting.append(after)
        if len(came) > states_max:
            return Result(len(came), "too many states", ())
    return Result(len(came), "", ())


def _way(came: Mapping[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    labels: list[str] = []
    step = came[world]
    while step is not None:
        world, label = step
        labels.append(label)
        step = came[world]
    return tuple(label for label, _ in groupby(reversed(labels)))
