"""The rules of devices over plain JSON: who may have what, and every way of giving it.

Slow and obvious: each rule is a loop over what was given. It shares nothing with stower.devices but
the quantities and the language of selectors.
"""

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any, Final

import msgspec

from stower.cel.device import Device, Gates, attribute_value, compile_selector
from stower.cel.values import CelError
from stower.model.kinds.resource_slice import DeviceAttribute
from stower.model.quantity import parse_quantity

Json = dict[str, Any]
Id = tuple[str, str, str]  # driver, pool, device
# A device that was given: claim, request, alternative ("" where there is no choice), device id.
Gift = tuple[int, str, str, Id]


def exact(text: Any) -> Fraction:
    """A quantity as a number."""
    quantity = parse_quantity(str(text))
    return Fraction(quantity.mantissa) * Fraction(10) ** quantity.scale


def consumed(capacity: Json, requested: Any) -> Fraction | None:
    """KEP-5075: what a request takes of a capacity; None where it is not allowed."""
    whole, policy = exact(capacity["value"]), capacity.get("requestPolicy") or {}
    bounds = policy.get("validRange")
    values = [exact(value) for value in policy.get("validValues") or ()]
    if requested is None:
        amount = exact(policy["default"]) if "default" in policy else whole
        if "default" in policy:
            return amount
    else:
        amount = exact(requested)
        if bounds is not None and bounds.get("min") is not None:
            least = exact(bounds["min"])
            if amount < least:
                amount = least
            elif bounds.get("step") is not None:
                step = exact(bounds["step"])
                steps = -((least - amount) // step)
                amount = least + steps * step
        elif values:
            amount = next((value for value in values if value >= amount), amount)
    if "default" in policy and amount == exact(policy["default"]):
        return amount
    if values and amount not in values:
        return None
    if bounds is not None and bounds.get("max") is not None and amount > exact(bounds["max"]):
        return None
    return amount


# What selectors see of a device.
SELECTED_BY: Final = ("attributes", "capacity", "allowMultipleAllocations")


@lru_cache(maxsize=65_536)
def _is_chosen(driver: str, text: bytes, expressions: tuple[str, ...], lists: bool) -> bool:
    """Whether all expressions choose a driver's device, which is JSON: many devices are alike."""
    device = msgspec.json.decode(text)
    seen = Device(
        driver,
        {
            name: attribute_value(msgspec.convert(value, DeviceAttribute), lists)
            for name, value in (device.get("attributes") or {}).items()
        },
        {n: parse_quantity(str(c["value"])) for n, c in (device.get("capacity") or {}).items()},
        bool(device.get("allowMultipleAllocations")),
    )
    try:
        return all(
            compile_selector(expression, Gates(lists)).matches(seen) for expression in expressions
        )
    except CelError:
        return False


class World:
    """The devices that a node reaches, how they are used, the classes, and which gates are on."""

    def __init__(
        self,
        node: Json,
        slices: list[Json],
        classes: dict[str, Json],
        alone: set[tuple[str, str, str]],
        shares: dict[tuple[str, str, str], list[Json]],
        consumable: bool = True,
        lists: bool = False,
        taints: bool = True,
    ) -> None:
        self.node, self.slices, self.classes = node, slices, classes
        self.alone, self.shares = alone, shares
        self.consumable, self.lists, self.taints = consumable, lists, taints
        self.devices: dict[tuple[str, str, str], tuple[Json, Json]] = {}
        self.everywhere: dict[tuple[str, str, str], Json] = {}
        self._selected: dict[Any, bool] = {}
        for slice_ in slices:
            spec = slice_["spec"]
            for device in spec.get("devices") or ():
                id = (spec["driver"], spec["pool"]["name"], device["name"])
                self.everywhere[id] = device
                reach = device if spec.get("perDeviceNodeSelection") else spec
                if self.reaches(reach):
                    self.devices[id] = (slice_, device)

    def reaches(self, reach: Json) -> bool:
        name = self.node["metadata"]["name"]
        if reach.get("nodeName"):
            return bool(reach["nodeName"] == name)
        if reach.get("allNodes"):
            return True
        labels = self.node["metadata"].get("labels") or {}
        for term in (reach.get("nodeSelector") or {}).get("nodeSelectorTerms") or ():
            holds = all(_holds(r, labels) for r in term.get("matchExpressions") or ())
            fields = {"metadata.name": name}
            if holds and all(_holds(r, fields) for r in term.get("matchFields") or ()):
                return True
        return False

    def selects(self, id: tuple[str, str, str], request: Json) -> bool:
        """Class and selectors; a device for which one has no answer is not selected."""
        selectors = [
            *(self.classes[request["deviceClassName"]]["spec"].get("selectors") or ()),
            *(request.get("selectors") or ()),
        ]
        key = (id, *(selector["cel"]["expression"] for selector in selectors))
        if key not in self._selected:
            self._selected[key] = self.matches(id, key[1:])
        return self._selected[key]

    def matches(self, id: tuple[str, str, str], expressions: tuple[str, ...]) -> bool:
        """Whether all expressions choose it."""
        device = self.devices[id][1]
        text = msgspec.json.encode({name: device.get(name) for name in SELECTED_BY})
        return _is_chosen(id[0], text, expressions, self.lists)

    def amounts(self, id: tuple[str, str, str], request: Json) -> dict[str, Fraction] | None:
        if not self.consumable:
            return {}
        capacity = self.devices[id][1].get("capacity") or {}
        wanted = (request.get("capacity") or {}).get("requests") or {}
        if any(name not in capacity for name in wanted):
            return None
        found = {name: consumed(c, wanted.get(name)) for name, c in capacity.items()}
        return None if None in found.values() else found  # type: ignore[return-value]

    def tolerated(self, id: tuple[str, str, str], request: Json) -> bool:
        for taint in (self.devices[id][1].get("taints") or ()) if self.taints else ():
            if taint["effect"] not in ("NoSchedule", "NoExecute"):
                continue
            if not any(_tolerates(t, taint) for t in request.get("tolerations") or ()):
                return False
        return True

    # ---------------------------------------------------------------------------- the rules

    def fault(self, claims: list[Json], gifts: list[Gift]) -> str:
        """Which rule the gifts break, or "". Every request must have all its devices."""
        for number, claim in enumerate(claims):
            fault = self.claim_fault(number, claim, gifts)
            if fault:
                return fault
        by_device: dict[tuple[str, str, str], list[Gift]] = {}
        for gift in gifts:
            by_device.setdefault(gift[3], []).append(gift)
        for id, given in by_device.items():
            fault = self.device_fault(id, given, claims)
            if fault:
                return fault
        return self.counter_fault(set(by_device))

    def claim_fault(self, number: int, claim: Json, gifts: list[Gift]) -> str:
        devices = claim["spec"]["devices"]
        own = [gift for gift in gifts if gift[0] == number]
        if len(own) > 32:
            return "more than 32 devices"
        for request in devices.get("requests") or ():
            given = [gift for gift in own if gift[1] == request["name"]]
            chosen = _chosen(request, given[0][2] if given else "")
            if len({gift[2] for gift in given}) > 1:
                return f"{request['name']}: devices of two alternatives"
            ids = [gift[3] for gift in given]
            if len(set(ids)) != len(ids):
                return f"{request['name']}: a device twice"
            if chosen.get("allocationMode") == "All":
                if set(ids) != set(self.all_for(chosen)) or not ids:
                    return f"{request['name']}: not all devices"
            elif len(ids) != chosen.get("count"):
                return f"{request['name']}: {len(ids)} devices, not {chosen.get('count')}"
            for id in ids:
                if id not in self.devices:
                    return f"{id}: not on this node"
                if not self.selects(id, chosen):
                    return f"{id}: not selected"
                if not self.tolerated(id, chosen):
                    return f"{id}: tainted"
        for constraint in devices.get("constraints") or ():
            if not self.constraint_holds(constraint, own):
                return f"constraint {constraint}"
        return ""

    def all_for(self, request: Json) -> list[tuple[str, str, str]]:
        """What `All` means: what is selected and has room, whoever has it."""
        found = []
        for id in self.devices:
            amounts = self.amounts(id, request)
            if self.selects(id, request) and amounts is not None and self.room(id, amounts):
                found.append(id)
        return found

    def room(self, id: tuple[str, str, str], amounts: dict[str, Fraction]) -> bool:
        capacity = self.devices[id][1].get("capacity") or {}
        for name, amount in amounts.items():
            taken = sum((exact(s.get(name, 0)) for s in self.shares.get(id, ())), Fraction(0))
            if taken + amount > exact(capacity[name]["value"]):
                return False
        return True

    def constraint_holds(self, constraint: Json, gifts: list[Gift]) -> bool:
        name = constraint.get("matchAttribute") or constraint["distinctAttribute"]
        sets = []
        for _, request, alternative, id in gifts:
            concerned = constraint.get("requests") or ()
            if concerned and request not in concerned:
                if f"{request}/{alternative}" not in concerned:
                    continue
            attributes = self.devices[id][1].get("attributes") or {}
            domain, _, short = name.partition("/")
            value = attributes.get(name) or (attributes.get(short) if domain == id[0] else None)
            if not value:
                return False
            (kind, found), *_ = value.items()
            items = found if isinstance(found, list) else [found]
            sets.append({(kind.removesuffix("s"), str(item)) for item in items})
        if constraint.get("matchAttribute"):
            return not sets or bool(set.intersection(*sets))
        return all(not (a & b) for a, b in combinations(sets, 2))

    def device_fault(self, id: tuple[str, str, str], given: list[Gift], claims: list[Json]) -> str:
        requests = [_request(claims, gift) for gift in given]
        is_shared = self.is_shared(id)
        plain = [r for r in requests if not r.get("adminAccess")]
        if plain and id in self.alone:
            return f"{id}: in use"
        if not is_shared:
            if plain and self.shares.get(id):
                return f"{id}: shared"
            for at, (gift, request) in enumerate(zip(given, requests)):
                # Whoever comes first has it; an administrator may look at what another claim has.
                holders = [holder[0] for holder in given[:at]]
                if gift[0] in holders or (holders and not request.get("adminAccess")):
                    return f"{id}: not shared"
        total: dict[str, Fraction] = {}
        for request in requests:
            amounts = self.amounts(id, request)
            if amounts is None:
                return f"{id}: no such amount"
            if not self.room(id, amounts):
                return f"{id}: no room"
            for name, amount in amounts.items():
                total[name] = total.get(name, Fraction(0)) + amount
        if is_shared and not self.room(id, total):
            return f"{id}: no room for all"
        return ""

    def counter_fault(self, given: set[tuple[str, str, str]]) -> str:
        in_use = given | self.alone | {id for id, shares in self.shares.items() if shares}
        for slice_ in self.slices:
            pool = (slice_["spec"]["driver"], slice_["spec"]["pool"]["name"])
            if not any(id[:2] == pool and self.draws(id) for id in given):
                continue
            for counter_set in slice_["spec"].get("sharedCounters") or ():
                for name, counter in counter_set["counters"].items():
                    left = exact(counter["value"])
                    for id in in_use:
                        if id[:2] != pool or id not in self.everywhere:
                            continue
                        for consumption in self.everywhere[id].get("consumesCounters") or ():
                            if consumption["counterSet"] == counter_set["name"]:
                                left -= exact(
                                    consumption["counters"].get(name, {"value": 0})["value"]
                                )
                    if left < 0:
                        return f"counter {counter_set['name']}/{name}"
        return ""

    def draws(self, id: tuple[str, str, str]) -> bool:
        """Whether it takes counters that it has not taken yet."""
        is_new = id not in self.alone and not self.shares.get(id)
        return is_new and bool(self.everywhere[id].get("consumesCounters"))

    # --------------------------------------------------------------------------- every way

    def exists(self, claims: list[Json]) -> bool:
        """Whether there is any way to give all claims what they ask for, by trying all."""
        return self.first(claims) is not None

    def first(self, claims: list[Json]) -> list[Gift] | None:
        """The first of all ways: earlier requests, alternatives and devices count for more."""
        slots = [(n, r) for n, c in enumerate(claims) for r in c["spec"]["devices"]["requests"]]
        ways = self.ways(slots, set())
        return next((gifts for gifts in ways if not self.fault(claims, gifts)), None)

    def ways(
        self, slots: list[tuple[int, Json]], held: set[tuple[str, str, str]]
    ) -> Iterator[list[Gift]]:
        """Every choice of devices, but for those that somebody before has for himself."""
        if not slots:
            yield []
            return
        (number, request), *rest = slots
        for alternative in request.get("firstAvailable") or ({"name": ""} | request["exactly"],):
            is_admin = alternative.get("adminAccess")
            ids = [
                id
                for id in self.devices
                if self.selects(id, alternative)
                and self.tolerated(id, alternative)
                and (is_admin or (id not in held and id not in self.alone))
            ]
            if alternative.get("allocationMode") == "All":
                choices: Any = [tuple(self.all_for(alternative))]
            else:
                choices = combinations(ids, alternative["count"])
            for chosen in choices:
                own = [(number, request["name"], alternative["name"], id) for id in chosen]
                alone = {id for id in chosen if not self.is_shared(id)}
                for others in self.ways(rest, held | alone):
                    yield own + others

    def is_shared(self, id: tuple[str, str, str]) -> bool:
        return self.consumable and bool(self.devices[id][1].get("allowMultipleAllocations"))


def _chosen(request: Json, alternative: str) -> Json:
    if request.get("exactly"):
        exactly: Json = request["exactly"]
        return exactly
    found = [a for a in request["firstAvailable"] if a["name"] == alternative]
    return found[0] if found else {"count": -1}


def _request(claims: list[Json], gift: Gift) -> Json:
    requests = claims[gift[0]]["spec"]["devices"]["requests"]
    return _chosen(next(r for r in requests if r["name"] == gift[1]), gift[2])


def _holds(requirement: Json, labels: dict[str, str]) -> bool:
    value, values = labels.get(requirement["key"]), requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
    return value is None


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    same = toleration.get("value", "") == taint.get("value", "")
    return toleration.get("operator") == "Exists" or same
