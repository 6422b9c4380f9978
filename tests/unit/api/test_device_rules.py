"""What the API takes and refuses of claims, classes, slices and taint rules."""

import json
from typing import Any

import pytest

from stower.api.optional_kinds import serve_device_taint_rules
from stower.api.registry import Registry
from stower.api.requests import JSON, MERGE_PATCH, Request, Response
from stower.api.server import Api
from stower.apiserver.tables import load_registry

Object = dict[str, Any]
S = 1_000_000_000
GROUP = "/apis/resource.k8s.io"
CLAIMS = f"{GROUP}/v1/namespaces/default/resourceclaims"
SLICES = f"{GROUP}/v1/resourceslices"
CLASSES = f"{GROUP}/v1/deviceclasses"
RULES = f"{GROUP}/v1beta2/devicetaintrules"
REGISTRY: Registry = load_registry()
DRIVER = {"driver": "gpu.example.com", "pool": "p"}


class Client:
    """One API, asked one request a second."""

    def __init__(self, registry: Registry = REGISTRY) -> None:
        self.api = Api(registry, seed=1)
        self.api.bootstrap(0)
        self.now_s = 0

    def send(self, method: str, path: str, body: Object) -> tuple[int, Object]:
        self.now_s += 1
        form = MERGE_PATCH if method == "PATCH" else JSON
        request = Request(
            method, path, self.now_s * S, body=json.dumps(body).encode(), content_type=form
        )
        response = self.api.handle(request)
        assert isinstance(response, Response)
        return response.status, json.loads(response.body)

    def faults(self, method: str, path: str, body: Object) -> set[tuple[str, str]]:
        """Why a write is refused, by field; empty: it is not."""
        status, answer = self.send(method, path, body)
        if status in (200, 201):
            return set()
        assert 422 == status, answer
        return {(c["field"], c["reason"].removeprefix("FieldValue"))
                for c in answer["details"]["causes"]}  # fmt: skip


def claim(*requests: Object, **devices: Any) -> Object:
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [*requests], **devices}}}


def exactly(name: str = "r", **more: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": "gpu", **more}}


def device_slice(*devices: Object, **spec: Any) -> Object:
    pool = {"name": "p", "resourceSliceCount": 1, "generation": 1}
    named = [{"name": f"d{i}", **device} for i, device in enumerate(devices)]
    given = {"driver": "gpu.example.com", "pool": pool, "nodeName": "n", "devices": named, **spec}
    return {"metadata": {"name": "s"}, "spec": {n: v for n, v in given.items() if v is not None}}


@pytest.mark.behaviour("S2.9", "S2.12")
def test_request_policies_are_for_shared_devices_and_of_one_kind() -> None:
    values = {"default": "2Gi", "validValues": ["1Gi", "2Gi"]}
    bounds = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "4Gi", "step": "1Gi"}}
    at = "spec.devices[0].capacity[memory].requestPolicy"

    def faults(policy: Object, is_shared: bool = True) -> set[tuple[str, str]]:
        capacity = {"memory": {"value": "4Gi", "requestPolicy": policy}}
        device = {"capacity": capacity, "allowMultipleAllocations": is_shared}
        return Client().faults("POST", SLICES, device_slice(device))

    assert set() == faults(values) == faults(bounds)
    assert {(at, "Forbidden")} == faults(values, is_shared=False) == faults({**values, **bounds})
    assert {(f"{at}.default", "Required")} == faults({**bounds, "default": None})
    assert {(f"{at}.validValues[1]", "Invalid")} == faults(
        {"default": "1Gi", "validValues": ["2Gi", "1Gi"]}
    )
    assert {(f"{at}.validValues", "Invalid")} == faults({**values, "default": "3Gi"})
    many = [str(n) for n in range(1, 12)]
    assert (f"{at}.validValues", "TooMany") in faults({"default": "1", "validValues": many})
    # In whole units of any spelling: 1536Mi is one and a half steps.
    assert {(f"{at}.validRange.step", "Invalid")} == faults({**bounds, "default": "1536Mi"})


@pytest.mark.behaviour("S2.32", "S2.35")
def test_slices_have_fewer_devices_where_devices_have_more_to_them() -> None:
    client = Client()
    taint = {"key": "k", "effect": "NoSchedule"}
    consumes = {"counterSet": "cs", "counters": {"c": {"value": "1"}}}
    assert set() == client.faults("POST", SLICES, device_slice(*[{}] * 128))
    many = {("spec.devices", "TooMany")}
    assert many == client.faults("POST", SLICES, device_slice(*[{}] * 129))
    for device in ({"taints": [taint]}, {"consumesCounters": [consumes]}):
        assert many == client.faults("POST", SLICES, device_slice(device, *[{}] * 64))
    at = "spec.devices[0]"
    assert {(f"{at}.taints", "TooMany")} == client.faults(
        "POST", SLICES, device_slice({"taints": [taint] * 17})
    )
    three = [{**consumes, "counterSet": name} for name in "abc"]
    assert {(f"{at}.consumesCounters", "TooMany")} == client.faults(
        "POST", SLICES, device_slice({"consumesCounters": three})
    )
    sets = [{"name": f"s{i}", "counters": {"c": {"value": "1"}}} for i in range(9)]
    assert {("spec.sharedCounters", "TooMany")} == client.faults(
        "POST", SLICES, device_slice(devices=None, sharedCounters=sets)
    )
    counters = {f"c{i}": {"value": "1"} for i in range(33)}
    assert {("spec.sharedCounters[0].counters", "TooMany")} == client.faults(
        "POST", SLICES,
        device_slice(devices=None, sharedCounters=[{"name": "s", "counters": counters}]),
    )  # fmt: skip
    both = device_slice({}, sharedCounters=sets[:1])
    assert {("spec", "Invalid")} == client.faults("POST", SLICES, both)


def test_a_slice_says_once_where_it_is_and_stays_there() -> None:
    client = Client()
    assert {("spec", "Required")} == client.faults("POST", SLICES, device_slice(nodeName=None))
    assert {("spec", "Invalid")} == client.faults("POST", SLICES, device_slice(allNodes=True))
    by_device = device_slice({}, {"allNodes": True}, nodeName=None, perDeviceNodeSelection=True)
    assert {("spec.devices[0]", "Required")} == client.faults("POST", SLICES, by_device)
    assert set() == client.faults("POST", SLICES, device_slice())
    moved = {"nodeName": "m", "driver": "other.example.com", "pool": {"name": "q"}}
    assert {(f"spec.{field}", "Invalid") for field in ("nodeName", "driver", "pool.name")} == (
        client.faults("PATCH", f"{SLICES}/s", {"spec": moved})
    )


def test_taints_of_devices_are_dated_and_what_is_behind_gates_is_dropped() -> None:
    device = {
        "taints": [{"key": "k", "effect": "None"}],
        "nodeAllocatableResourceMappings": {"cpu": {}},
    }
    status, made = Client().send("POST", SLICES, device_slice(device))
    assert (201, 1) == (status, made["metadata"]["generation"])
    (kept,) = made["spec"]["devices"]
    assert [{"key": "k", "effect": "None", "timeAdded": "1970-01-01T00:00:01Z"}] == kept["taints"]
    assert "nodeAllocatableResourceMappings" not in kept


def test_what_claims_take_of_a_node_is_dropped_from_the_status_of_a_pod() -> None:
    client, pods = Client(), "/api/v1/namespaces/default/pods"
    spec = {"containers": [{"name": "main", "image": "i"}]}
    client.send("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})
    client.send(
        "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}
    )
    status, _ = client.send("POST", pods, {"metadata": {"name": "p"}, "spec": spec})
    assert 201 == status
    taken = {"resourceClaimName": "c", "containers": ["main"], "resources": {"cpu": "1"}}
    patch = {"status": {"nodeAllocatableResourceClaimStatuses": [taken]}}
    status, made = client.send("PATCH", f"{pods}/p/status", patch)
    assert 200 == status
    assert "nodeAllocatableResourceClaimStatuses" not in made["status"]


@pytest.mark.behaviour("S2.33", "S2.34")
def test_requests_are_bounded_and_their_selectors_compiled() -> None:
    client = Client()
    at = "spec.devices.requests[0].exactly.selectors"
    for text, reason in (
        ("device.driver ==", "Invalid"),
        ("device.driver", "Invalid"),
        ("device.nothing", "Invalid"),
        ("'" + "x" * 10_240 + "' == ''", "TooLong"),
        ("device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, "
         "device.attributes.all(d, a + b == c + d))))", "Forbidden"),
    ):  # fmt: skip
        bad = claim(exactly(selectors=[{"cel": {"expression": text}}]))
        assert {(f"{at}[0].cel.expression", reason)} == client.faults("POST", CLAIMS, bad), text
    good = {"cel": {"expression": "device.driver == 'gpu.example.com'"}}
    assert {(at, "TooMany")} == client.faults("POST", CLAIMS, claim(exactly(selectors=[good] * 33)))
    part = {"deviceClassName": "gpu", "selectors": [good]}
    for count, faults in (
        (8, set()),
        (9, {("spec.devices.requests[0].firstAvailable", "TooMany")}),
    ):
        parts = [{"name": f"p{i}", **part} for i in range(count)]
        body = claim({"name": "r", "firstAvailable": parts})
        assert faults == Client().faults("POST", CLAIMS, body)
    unknown = claim(exactly(), constraints=[{"requests": ["r", "x"], "matchAttribute": "a.b/c"}])
    assert {("spec.devices.constraints[0].requests[1]", "Invalid")} == client.faults(
        "POST", CLAIMS, unknown
    )


@pytest.mark.behaviour("S2.37")
def test_administrators_claim_in_namespaces_that_are_for_them() -> None:
    client = Client()
    body = claim(exactly(adminAccess=True))
    path = "spec.devices.requests[0].adminAccess"
    assert {(path, "Forbidden")} == client.faults("POST", CLAIMS, body)
    label = {"resource.kubernetes.io/admin-access": "true"}
    client.send("PATCH", "/api/v1/namespaces/default", {"metadata": {"labels": label}})
    assert set() == client.faults("POST", CLAIMS, body)
    template = {"metadata": {"name": "t"}, "spec": {"spec": body["spec"]}}
    other = f"{GROUP}/v1/namespaces/kube-system/resourceclaimtemplates"
    assert {(path, "Forbidden")} == client.faults("POST", other, template)


@pytest.mark.behaviour("S2.15", "S2.36")
def test_an_allocation_is_given_once_and_what_is_said_of_it_goes_with_it() -> None:
    client = Client()
    capacity = {"requests": {"memory": "1Gi"}}
    assert set() == client.faults("POST", CLAIMS, claim(exactly(capacity=capacity)))
    more = {"spec": {"devices": {"requests": [exactly(capacity=capacity, count=2)]}}}
    assert {("spec", "Invalid")} == client.faults("PATCH", f"{CLAIMS}/c", more)
    same = claim(exactly(capacity={"requests": {"memory": "1024Mi"}}))
    assert set() == client.faults("PUT", f"{CLAIMS}/c", same), "the same amount"

    user = {"resource": "pods", "name": "p", "uid": "u"}
    result = {**DRIVER, "request": "r", "device": "d"}

    def change(**status: Any) -> set[tuple[str, str]]:
        return client.faults("PATCH", f"{CLAIMS}/c/status", {"status": status})

    def allocation(**more: Any) -> Object:
        return {"devices": {"results": [{**result, **more}]}}

    results = "status.allocation.devices.results[0]"
    assert {("status.reservedFor", "Forbidden")} == change(reservedFor=[user])
    assert {(f"{results}.request", "Invalid")} == change(allocation=allocation(request="x"))
    waits = [f"example.com/c{i}" for i in range(5)]
    assert {(f"{results}.bindingConditions", "TooMany")} == change(
        allocation=allocation(bindingConditions=waits, bindingFailureConditions=["bad"])
    )
    assert {(f"{results}.bindingFailureConditions", "Invalid")} == change(
        allocation=allocation(bindingConditions=waits[:4])
    )
    share = "6f1e6a9c-9d0c-4a0e-8c07-2a8b3a1f3f11"
    assert {(f"{results}.shareID", "Invalid")} == change(allocation=allocation(shareID=share[1:]))
    assert set() == change(allocation=allocation(shareID=share), reservedFor=[user])
    assert {("status.allocation", "Invalid")} == change(allocation=allocation(shareID=None))
    about = {**DRIVER, "device": "d", "data": {"a": 1}}
    assert {("status.devices[0]", "Invalid")} == change(devices=[about]), "another share"
    assert set() == change(devices=[{**about, "shareID": share}])
    assert set() == change(allocation=None, reservedFor=None)
    assert {} == client.send("PATCH", f"{CLAIMS}/c", {})[1]["status"]


def test_classes_are_for_drivers_and_resources_of_others() -> None:
    client = Client()

    def faults(**spec: Any) -> set[tuple[str, str]]:
        return client.faults("POST", CLASSES, {"metadata": {"name": "gpu"}, "spec": spec})

    assert {("spec.extendedResourceName", "Invalid")} == faults(extendedResourceName="cpu")
    at = "spec.config[0].opaque"
    assert {(at, "Required")} == faults(config=[{}])
    parts = {(f"{at}.driver", "Required"), (f"{at}.parameters", "Required")}
    assert parts == faults(config=[{"opaque": {}}])
    bad: Object = {"driver": "gpu.example.com", "parameters": [1]}
    assert {(f"{at}.parameters", "Invalid")} == faults(config=[{"opaque": bad}])
    bad["parameters"] = {"text": "x" * 10_240}
    assert {(f"{at}.parameters", "TooLong")} == faults(config=[{"opaque": bad}])
    assert set() == faults(extendedResourceName="example.com/gpu")


@pytest.mark.behaviour("S2.35")
def test_taint_rules_are_served_where_that_is_asked_for() -> None:
    assert 404 == Client().send("POST", RULES, {})[0]
    registry = load_registry()
    serve_device_taint_rules(registry)
    client = Client(registry)
    taint = {"key": "example.com/broken", "effect": "NoSchedule"}
    rule: Object = {"metadata": {"name": "t"}, "spec": {"deviceSelector": DRIVER, "taint": taint}}
    bad = {**rule, "spec": {**rule["spec"], "taint": {"key": "", "effect": "Never"}}}
    assert {("spec.taint.key", "Invalid"), ("spec.taint.effect", "NotSupported")} == (
        client.faults("POST", RULES, bad)
    )
    status, made = client.send("POST", RULES, rule)
    assert (201, "1970-01-01T00:00:02Z") == (status, made["spec"]["taint"]["timeAdded"])
    evicts = {"spec": {"taint": {"effect": "NoExecute"}}}
    _, changed = client.send("PATCH", f"{RULES}/t", evicts)
    assert (2, "1970-01-01T00:00:03Z") == (
        changed["metadata"]["generation"], changed["spec"]["taint"]["timeAdded"],
    )  # fmt: skip
    conditions = {"status": {"conditions": [{"type": "A", "status": "Maybe"}]}}
    at = "status.conditions[0]"
    assert {(f"{at}.status", "NotSupported"), (f"{at}.reason", "Required"),
            (f"{at}.lastTransitionTime", "Required")} == (
        client.faults("PATCH", f"{RULES}/t/status", conditions)
    )  # fmt: skip


def test_amounts_of_devices_keep_what_they_say() -> None:
    """Upstream rounds core resource lists alone up to thousandths."""
    client = Client()
    policy = {"default": "500u", "validRange": {"min": "100u", "step": "1n"}}
    devices = [{"name": "d", "allowMultipleAllocations": True,
                "capacity": {"x": {"value": "1500u", "requestPolicy": policy}}}]  # fmt: skip
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": "n", "pool": pool, "devices": devices}
    status, made = client.send("POST", SLICES, {"metadata": {"name": "s"}, "spec": spec})
    assert 201 == status, made
    assert devices[0]["capacity"] == made["spec"]["devices"][0]["capacity"]
    counters = [{"name": "c", "counters": {"y": {"value": "30n"}}}]
    spec = {"driver": "gpu.example.com", "nodeName": "n", "pool": pool, "sharedCounters": counters}
    status, made = client.send("POST", SLICES, {"metadata": {"name": "t"}, "spec": spec})
    assert (201, counters) == (status, made["spec"].get("sharedCounters"))
    capacity = {"requests": {"x": "500u"}}
    _, made = client.send("POST", CLAIMS, claim(exactly(capacity=capacity)))
    assert capacity == made["spec"]["devices"]["requests"][0]["exactly"]["capacity"]
    result = {**DRIVER, "device": "d", "request": "r", "consumedCapacity": {"x": "500u"},
              "shareID": "11111111-1111-1111-1111-111111111111"}  # fmt: skip
    patch = {"status": {"allocation": {"devices": {"results": [result]}}}}
    status, made = client.send("PATCH", f"{CLAIMS}/c/status", patch)
    assert 200 == status, made
    shown = made["status"]["allocation"]["devices"]["results"][0]
    assert {"x": "500u"} == shown["consumedCapacity"]


def test_amounts_of_nodes_are_rounded_up() -> None:
    body = {"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "1500u"}}}
    status, made = Client().send("POST", "/api/v1/nodes", body)
    assert (201, {"cpu": "2m"}) == (status, made["status"]["capacity"])
