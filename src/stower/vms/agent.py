"""Handles an autoscaler-agent's request for CPU and memory, received over HTTP.

Writes the request to the annotations of the VM. Answers with what the pod shows as approved,
after one second at most. Agents that write the annotations themselves do not need this module.
Source: seed 004; neondatabase/autoscaling pkg/plugin/run.go, pkg/api.
"""

import json
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from stower.framework.writes import JsonPatchObject
from stower.model.kinds import Pod, VirtualMachine
from stower.model.times import SECOND_NS
from stower.vms.amounts import (
    CPU_MASK,
    BadAmount,
    Resources,
    cpu_value,
    memory_value,
    quantity,
    resources_of,
    resources_text,
)
from stower.vms.approval import annotation_path, raise_reserved
from stower.vms.enforcer import Answer, Enforcer
from stower.vms.figures import REQUEST_RESULTS, REQUESTS
from stower.vms.notes import ERROR, INFO, WARN
from stower.vms.pods import (
    APPROVED,
    REQUESTED,
    UNIT,
    BadPod,
    largest_size,
    pod_state,
    vm_owner,
)

PORT: Final = 10299
BODY_BYTES_MAX: Final = 1024
MEMORY_MAX: Final = 2**63 - 2  # larger quantities are cut off just above it
WAIT_NS: Final = SECOND_NS
JSON: Final = "application/json"
TEXT: Final = "text/plain"
VERSIONS: Final = ("v1.0", "v1.1", "v2.0", "v2.1", "v3.0", "v4.0", "v5.0")
SPOKEN: Final = 7  # v5.0


class Response(NamedTuple):
    """What the agent is told."""

    status: int
    body: str
    type: str = TEXT


class PodWait(NamedTuple):
    """Go on when the pod has changed since `heard`, or at a time."""

    uid: str
    heard: int
    until_ns: int


class Request(NamedTuple):
    """What an agent asks for. `permit`: what it was permitted last, None where that is nothing;
    `fault`: the field whose amount makes no sense, and why."""

    version: int
    namespace: str
    name: str
    unit: Resources
    wanted: Resources
    permit: Resources | None
    fault: str = ""


class _RefusedError(Exception):
    """The request, with a status and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


# A request asks for a write or for time, and is sent an answer, or whether it is still in time.
Talk = Generator[JsonPatchObject | PodWait, Answer | bool, Response]
Find = Callable[[str, str], Pod | None]


def handle_request(
    enforcer: Enforcer, method: str, body: bytes, find: Find, listen: Callable[[str], int]
) -> Talk:
    """One request. find: a pod by namespace and name; listen: how often a pod has changed so far,
    by its uid."""
    figures, notes = enforcer.figures, enforcer.notes
    if method != "POST":
        figures.count(REQUESTS, code="400")
        return Response(400, "must be POST", "")
    request = read_request(body)
    if request is None:
        notes.add(WARN, "Received bad JSON in request")
        figures.count(REQUESTS, code="400")
        return Response(400, "bad JSON")
    where = ["<none>"]
    try:
        permit = yield from _handle(enforcer, request, find, listen, where)
        response = Response(200, f'{{"permit":{resources_text(permit)}}}', JSON)
    except _RefusedError as error:
        level = ERROR if error.status >= 500 else WARN
        notes.add(level, "Responding to autoscaler-agent request with error", str(error))
        response = Response(error.status, str(error))
    code = str(response.status)
    figures.count(REQUESTS, code=code)
    figures.count(REQUEST_RESULTS, code=code, node=where[0])
    return response


def read_request(body: bytes) -> Request | None:
    """None where it is none. Names are taken in any case; what is behind the first value, and what
    nobody asked for, is not looked at."""
    try:
        text = body[:BODY_BYTES_MAX].decode("utf-8", "replace").lstrip()
        data, _ = json.JSONDecoder().raw_decode(text)
        fields = _fields(data)
        pod = _fields(fields.get("pod"))
        _fields(fields.get("metrics"))
        version = fields.get("protoversion") or 0
        permit = fields.get("lastpermit")
        namespace, name = pod.get("namespace") or "", pod.get("name") or ""
        if not isinstance(version, int) or not 0 <= version < 2**32 or isinstance(version, bool):
            return None
        if not isinstance(namespace, str) or not isinstance(name, str):
            return None
        return Request(
            version, namespace, name, resources_of(fields.get("computeunit")),
            resources_of(fields.get("resources")),
            resources_of(permit) if permit is not None else None,
            next(_amount_faults(fields), ""),
        )  # fmt: skip
    except (ValueError, RecursionError, BadAmount):
        return None


def _amount_faults(fields: dict[str, Any]) -> Iterator[str]:
    """Yields amounts that no VM can have: negative, or more than an annotation can hold."""
    for path in ("computeUnit", "resources", "lastPermit"):
        amounts = _fields(fields.get(path.lower()))
        for name, per, most in (("vCPUs", 1000, CPU_MASK), ("mem", 1, MEMORY_MAX)):
            given = amounts.get(name.lower())
            found = quantity(msgspec.Raw(msgspec.json.encode(given)))
            if found is None:
                continue
            amount = found.milli_value() if per == 1000 else found.value()
            if amount < 0:
                yield f"{path}.{name}: must not be negative, got {given}"
            elif amount > most:
                yield f"{path}.{name}: {given} is more than a VM can have"


def _fields(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return {name.lower(): one for name, one in value.items()}


def _check(request: Request) -> None:
    if not request.version:
        raise _RefusedError(400, "invalid protocol version <invalid: zero>")
    if request.version != SPOKEN:
        known = request.version <= len(VERSIONS)
        beyond = f"<unknown = {VERSIONS[-1]} + {request.version - len(VERSIONS)}>"
        name = VERSIONS[request.version - 1] if known else beyond
        need = VERSIONS[SPOKEN - 1]
        raise _RefusedError(400, f"protocol version mismatch: need {need} but got {name}")
    for name, amount in (("vCPUs", request.unit.cpu), ("mem", request.unit.memory)):
        if not amount:
            why = f"computeUnit fields must be non-zero: {name} must be non-zero"
            raise _RefusedError(400, why)
    if request.fault:
        raise _RefusedError(400, request.fault)


def _handle(
    enforcer: Enforcer, request: Request, find: Find, listen: Callable[[str], int], where: list[str]
) -> Generator[JsonPatchObject | PodWait, Answer | bool, Resources]:
    """What is permitted. Raises _RefusedError."""
    _check(request)
    notes, key = enforcer.notes, f"{request.namespace}/{request.name}"
    pod = find(request.namespace, request.name)
    if pod is None:
        notes.add(WARN, "Received request for Pod we don't know", key)
        raise _RefusedError(404, "pod not found")
    if not pod.spec.node_name:
        notes.add(WARN, "Received request for Pod we don't know where it was scheduled", key)
        raise _RefusedError(404, "pod's node is unknown")
    where[0] = pod.spec.node_name
    vm = vm_owner(pod)
    if vm is None:
        notes.add(ERROR, "Received request for non-VM Pod", key)
        raise _RefusedError(400, "pod is not associated with a VM")
    _check_bounds(request, pod)
    heard = listen(pod.metadata.uid)
    wanted = _annotations(request, _checked_permit(enforcer, pod, request.permit))
    own = pod.metadata.annotations or {}
    if any(own.get(name) != value for name, value in wanted.items()):
        operations: list[dict[str, Any]] = [
            {"op": "replace", "path": annotation_path(name), "value": value}
            for name, value in wanted.items()
        ]
        namespace = pod.metadata.namespace
        answer = yield JsonPatchObject(
            0, VirtualMachine, namespace, vm.name, pod.metadata.uid, operations
        )
        code, message = answer if isinstance(answer, Answer) else (0, "")
        enforcer.figures.count_write("Patch", "VirtualMachine", vm.name, message if code else "")
        if code:
            notes.add(ERROR, "Failed to patch VM object", key)
            raise _RefusedError(500, "failed to patch VM object")
        notes.add(INFO, "Patched VirtualMachine for agent request", key)
    if request.permit is not None and not request.wanted.exceeds(request.permit):
        notes.add(INFO, "Handled agent request", key)
        return request.wanted
    return (yield from _wait_for_grant(enforcer, request, find, listen, heard))


def _check_bounds(request: Request, pod: Pod) -> None:
    """Raises _RefusedError for more than the VM may ever have."""
    try:
        most = largest_size(pod)
    except BadPod:
        return  # nothing is granted to it anyway
    for name, wanted, bound, text in (
        ("vCPUs", request.wanted.cpu, most.cpu, cpu_value),
        ("mem", request.wanted.memory, most.memory, memory_value),
    ):
        if bound and wanted > bound:
            why = f"{text(wanted)} is more than the VM's maximum {text(bound)}"
            raise _RefusedError(400, f"resources.{name}: {why}")


def _checked_permit(enforcer: Enforcer, pod: Pod, permit: Resources | None) -> Resources | None:
    """Returns what the agent was permitted last, if it is counted on the node or has room there,
    where it counts then; None for nothing, and for what would be more than the node has."""
    known = enforcer.nodes.get(pod.spec.node_name)
    held = known.node.pods.get(pod.metadata.uid) if known is not None else None
    if permit is None or known is None or held is None:
        return None
    raised = raise_reserved(held, permit)
    if raised == held:
        return permit
    before = known.node.is_over
    known.node.update(raised)
    if known.node.is_over and not before:
        known.node.update(held)
        return None
    enforcer.changed(pod.metadata.uid)
    return permit if not before else None


def _annotations(request: Request, permit: Resources | None) -> dict[str, str]:
    found = {UNIT: resources_text(request.unit), REQUESTED: resources_text(request.wanted)}
    if permit is not None:
        found[APPROVED] = resources_text(permit)
    return found


def _wait_for_grant(
    enforcer: Enforcer, request: Request, find: Find, listen: Callable[[str], int], heard: int
) -> Generator[JsonPatchObject | PodWait, Answer | bool, Resources]:
    """Wait until the pod shows that more was granted. Raises _RefusedError."""
    notes, key = enforcer.notes, f"{request.namespace}/{request.name}"
    until_ns = enforcer.now_ns + WAIT_NS
    pod = find(request.namespace, request.name)
    while pod is not None:
        in_time = bool((yield PodWait(pod.metadata.uid, heard, until_ns)))
        pod = find(request.namespace, request.name)
        if pod is None:
            break
        heard = listen(pod.metadata.uid)
        try:
            state = pod_state(pod)
        except BadPod as error:
            notes.add(ERROR, "Failed to extract Pod state from Pod object for agent request", key)
            raise _RefusedError(500, "failed to extract state from pod") from error
        approved = Resources(state.cpu.reserved, state.memory.reserved)
        shown = Resources(state.cpu.requested, state.memory.requested) == request.wanted
        if request.permit is None:
            is_enough = APPROVED in (pod.metadata.annotations or {})
        else:
            is_enough = approved.exceeds(request.permit)
        if shown and (is_enough or not in_time):
            if not in_time:
                text = "Timed out while waiting for updates to respond to agent request"
                notes.add(WARN, text, key)
            notes.add(INFO, "Handled agent request", key)
            return approved
        if not in_time:
            text = "Timed out while waiting for updates without suitable response to agent request"
            notes.add(ERROR, text, key)
            raise _RefusedError(500, "timed out waiting for updates to be processed")
    notes.add(WARN, "Pod for request no longer exists", key)
    raise _RefusedError(404, "pod not found")
