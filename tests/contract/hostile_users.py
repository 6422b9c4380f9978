"""A user of one namespace creates the worst objects that there are, and another namespace's pods
are scheduled meanwhile: `python -m tests.contract.hostile_users MINUTES`.

The user may write everything in a namespace of its own, has OBJECTS_MAX objects at most, and sends
RATE requests a second: of one kind of objects after another, each for the same time, then of all
together. When the namespace is full it deletes its oldest. Priorities and room are left alone:
nothing of it is ever placed, or takes next to nothing. Exit code 1 if a plain pod waits longer than
WAIT_SECONDS_MAX, or a process grows
above its limit.
"""

import http.client
import random
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.contract.kills.client import Api
from tests.contract.servers import Command, Process, resident_mib

Object = dict[str, Any]
OBJECTS_MAX: Final = 2_000
RATE: Final = 20.0
PATCHED_SHARE: Final = 0.2  # of requests
WAIT_SECONDS_MAX: Final = 5.0
NODES: Final = 50
SCHEDULER_MIB_MAX: Final = 400
SERVER_MIB_MAX: Final = 1024
EVIL: Final = "/api/v1/namespaces/evil"
CLAIMS: Final = "/apis/resource.k8s.io/v1/namespaces/evil/resourceclaims"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"


def _pod(name: str, **spec: Any) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1m"}}}
    return {"metadata": {"name": name, "labels": {"a": name}},
            "spec": {"containers": [container], **spec}}  # fmt: skip


def _resources(name: str) -> Object:
    amounts = {f"example.com/{name}-{i}": "1" for i in range(9_000)}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    return _pod(name, containers=[container])


def _terms(name: str) -> Object:
    terms = [
        {"labelSelector": {"matchExpressions": [
            {"key": f"{name}-{i}", "operator": "NotIn", "values": [str(i)]}
        ]}, "topologyKey": f"k-{name}-{i}", "namespaceSelector": {}}
        for i in range(100)
    ]  # fmt: skip
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return _pod(name, affinity=affinity, nodeSelector={"nowhere": name})


def _carriers(name: str) -> Object:
    """A pod that is placed, and whose terms select nearly all pods."""
    terms = [
        {"weight": 1, "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchExpressions": [
                {"key": f"{name}-{i}", "operator": "DoesNotExist"}
            ]}}}
        for i in range(100)
    ]  # fmt: skip
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    return _pod(name, affinity=affinity)


def _spread(name: str) -> Object:
    constraints = [
        {"maxSkew": 1, "topologyKey": f"k-{name}-{i}", "whenUnsatisfiable": "DoNotSchedule",
         "labelSelector": {"matchLabels": {f"l-{name}-{i}": "x"}}}
        for i in range(100)
    ]  # fmt: skip
    return _pod(name, topologySpreadConstraints=constraints)


def _tolerations(name: str) -> Object:
    tolerations = [{"key": f"{name}-{i}", "operator": "Exists"} for i in range(2_000)]
    return _pod(name, tolerations=tolerations, nodeSelector={"nowhere": name})


def _images(name: str) -> Object:
    containers = [{"name": f"c{i}", "image": f"{name}/{i}"} for i in range(500)]
    return _pod(name, containers=containers, nodeSelector={"nowhere": name})


def _selector(name: str) -> Object:
    labels = {f"{name}-{i}": "x" for i in range(500)}
    terms = [{"matchExpressions": [{"key": f"{name}-{i}", "operator": "Exists"}]}
             for i in range(500)]  # fmt: skip
    node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return _pod(name, nodeSelector=labels, affinity={"nodeAffinity": node})


def _many_expressions(name: str) -> Object:
    expressions = [{"key": f"{name}-{i}.example.com/y", "operator": "Exists"} for i in range(9_000)]
    term = {"labelSelector": {"matchExpressions": expressions}, "topologyKey": "zone"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return _pod(name, affinity=affinity)


def _many_node_terms(name: str) -> Object:
    terms = [{"matchExpressions": [{"key": f"{name}-{i}.example.com/y", "operator": "Exists"}]}
             for i in range(9_000)]  # fmt: skip
    node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return _pod(name, affinity={"nodeAffinity": node})


def _labels(name: str) -> Object:
    pod = _pod(name, nodeSelector={"nowhere": name})
    pod["metadata"]["labels"] = {f"{name}-{i}.example.com/y": "x" for i in range(9_000)}
    return pod


def _volumes(name: str) -> Object:
    volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"{name}-{i}"}}
               for i in range(500)]  # fmt: skip
    return _pod(name, volumes=volumes)


def _gang(name: str) -> Object:
    return _pod(name, schedulingGroup={"podGroupName": f"g{random.randrange(20)}"},
                nodeSelector={"nowhere": name})  # fmt: skip


def _claim(name: str) -> Object:
    turns = "&&".join(f"device.driver != 'x{i}'" for i in range(100))
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 4,
               "selectors": [{"cel": {"expression": turns}}]}  # fmt: skip
    return {"metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}  # fmt: skip


def _pattern(name: str) -> Object:
    """A million characters, at each of which each of a thousand places of a pattern is tried."""
    text = f"'{'a' * 1000}'.replace('a', '{'ab' * 500}')"
    exactly = {"deviceClassName": "any", "selectors": [
        {"cel": {"expression": f"!{text}.matches('a[ab]{{1000}}c|b[ab]{{1000}}c|c')"}}
    ]}  # fmt: skip
    return {"metadata": {"name": f"c{random.randrange(50)}"},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}  # fmt: skip


def _claiming(name: str) -> Object:
    claim = {"name": "c", "resourceClaimName": f"c{random.randrange(50)}"}
    return _pod(name, resourceClaims=[claim])


def _budget(name: str) -> Object:
    expressions = [{"key": f"{name}-{i}", "operator": "NotIn", "values": ["x"]} for i in range(100)]
    return {"metadata": {"name": name},
            "spec": {"minAvailable": 1, "selector": {"matchExpressions": expressions}}}  # fmt: skip


def _group(name: str) -> Object:
    return {"metadata": {"name": f"g{random.randrange(20)}"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 500}}}}  # fmt: skip


def _pool(name: str) -> Object:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"no": name}}}
    return {"metadata": {"name": name}, "spec": {
        "users": {"matchLabels": {"u": name}},
        "placeholders": {"template": template, "replicas": 1},
    }}  # fmt: skip


def _service(name: str) -> Object:
    return {"metadata": {"name": f"s-{name}"},
            "spec": {"selector": {"a": name}, "ports": [{"port": 80}]}}  # fmt: skip


# Collection, and what makes an object of a name.
KINDS: Final[tuple[tuple[str, Callable[[str], Object]], ...]] = (
    (f"{EVIL}/pods", _resources), (f"{EVIL}/pods", _terms), (f"{EVIL}/pods", _carriers),
    (f"{EVIL}/pods", _spread),
    (f"{EVIL}/pods", _tolerations), (f"{EVIL}/pods", _images), (f"{EVIL}/pods", _selector),
    (f"{EVIL}/pods", _many_expressions), (f"{EVIL}/pods", _many_node_terms),
    (f"{EVIL}/pods", _labels), (f"{EVIL}/pods", _volumes), (f"{EVIL}/pods", _gang),
    (CLAIMS, _claim), (CLAIMS, _pattern), (f"{EVIL}/pods", _claiming),
    ("/apis/policy/v1/namespaces/evil/poddisruptionbudgets", _budget),
    ("/apis/scheduling.k8s.io/v1beta1/namespaces/evil/podgroups", _group),
    ("/apis/stower.dev/v1/namespaces/evil/warmpools", _pool), (f"{EVIL}/services", _service),
)  # fmt: skip


@dataclass
class Report:
    """What was seen."""

    waits: list[float] = field(default_factory=list)
    created: int = 0
    refused: dict[int, int] = field(default_factory=dict)
    mib_max: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def sizes(self) -> Iterator[str]:
        """Yields how large each process was."""
        return (f"{name}: {size} MiB at most" for name, size in self.mib_max.items())

    def lines(self) -> Iterator[str]:
        """Yields what is printed."""
        waits = sorted(self.waits)
        yield (
            f"{len(waits)} plain pods bound, half of them within {waits[len(waits) // 2]:.2f} s, "
            f"the slowest after {waits[-1]:.2f} s"
        )
        yield f"{self.created} hostile objects created, refused by code: {self.refused}"
        yield from self.sizes()
        yield f"{len(self.findings)} findings"
        yield from self.findings


def _must(answer: tuple[int, Any]) -> Any:
    if answer[0] >= 300:
        raise RuntimeError(f"{answer}")
    return answer[1]


def _prepare(admin: Api) -> str:
    """Makes namespaces, nodes and the user; returns its token."""
    for name in ("good", "evil"):
        _must(admin.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}}))
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    for i in range(NODES):
        labels = {"kubernetes.io/hostname": f"n{i}", "topology.kubernetes.io/zone": f"z{i % 3}"}
        body = {"metadata": {"name": f"n{i}", "labels": labels},
                "status": {"allocatable": amounts, "capacity": amounts}}  # fmt: skip
        _must(admin.call("POST", "/api/v1/nodes", body))
    _must(admin.call("POST", "/apis/resource.k8s.io/v1/deviceclasses",
                     {"metadata": {"name": "any"}, "spec": {}}))  # fmt: skip
    for i in range(5):
        devices = [{"name": f"d{k}"} for k in range(4)]
        pool = {"name": f"n{i}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "d.example.com", "nodeName": f"n{i}", "pool": pool, "devices": devices}
        _must(admin.call("POST", "/apis/resource.k8s.io/v1/resourceslices",
                         {"metadata": {"name": f"s{i}"}, "spec": spec}))  # fmt: skip
    _must(admin.call("POST", f"{EVIL}/serviceaccounts", {"metadata": {"name": "user"}}))
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["create", "delete", "patch"]}
    roles = f"{RBAC}/namespaces/evil"
    _must(admin.call("POST", f"{roles}/roles", {"metadata": {"name": "all"}, "rules": [rule]}))
    _must(admin.call("POST", f"{roles}/rolebindings", {
        "metadata": {"name": "all"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"},
        "subjects": [{"kind": "ServiceAccount", "name": "user", "namespace": "evil"}],
    }))  # fmt: skip
    lasting = {"spec": {"expirationSeconds": 24 * 3600}}
    answer = _must(admin.call("POST", f"{EVIL}/serviceaccounts/user/token", lasting))
    return str(answer["status"]["token"])


class User:
    """Creates, changes and deletes as fast as it may."""

    def __init__(self, kubeconfig: Path, token: str, phase_s: float, report: Report) -> None:
        self._random = random.Random(1)
        self._phase_s = phase_s
        self._api = Api(kubeconfig, token=token)
        self._report = report
        self._objects: deque[str] = deque()
        self._number = 0
        self._is_full = False

    def run(self, ended: threading.Event) -> None:
        """Until the event."""
        began = due = time.monotonic()
        while not ended.is_set():
            phase = int((time.monotonic() - began) / self._phase_s)
            kinds = KINDS[phase : phase + 1] or KINDS
            try:
                self._act(self._random.choice(kinds))
            except (OSError, http.client.HTTPException) as error:
                self._report.findings.append(f"the server does not answer: {error}")
                return
            due = max(due + 1 / RATE, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))

    def close(self) -> None:
        """Closes the connection."""
        self._api.close()

    def _act(self, kind: tuple[str, Callable[[str], Object]]) -> None:
        if len(self._objects) >= OBJECTS_MAX or self._is_full:
            self._is_full = False
            self._send("DELETE", f"{self._objects.popleft()}?gracePeriodSeconds=0", None)
            return
        if self._objects and self._random.random() < PATCHED_SHARE:
            labels = {"labels": {f"p{self._number}": "x"}}
            self._send("PATCH", self._random.choice(self._objects), {"metadata": labels})
            return
        self._number += 1
        path, make = kind
        body = make(f"x{self._number}")
        code = self._send("POST", path, body)
        self._is_full = code == 403
        if code == 201:
            self._report.created += 1
            self._objects.append(f"{path}/{body['metadata']['name']}")
        else:
            self._report.refused[code] = self._report.refused.get(code, 0) + 1

    def _send(self, method: str, path: str, body: Any) -> int:
        content = "application/merge-patch+json" if method == "PATCH" else ""
        response = self._api.send(method, path, body, content)
        response.read()
        return response.status


def _probe(admin: Api, number: int) -> float:
    """Returns after how many seconds a plain pod is bound."""
    name, pods = f"p{number}", "/api/v1/namespaces/good/pods"
    began = time.monotonic()
    _must(admin.call("POST", pods, _pod(name)))
    while True:
        pod = _must(admin.call("GET", f"{pods}/{name}"))
        waited = time.monotonic() - began
        if pod["spec"].get("nodeName") or waited > 6 * WAIT_SECONDS_MAX:
            break
        time.sleep(0.02)
    admin.call("DELETE", f"{pods}/{name}?gracePeriodSeconds=0")
    return waited


def run(folder: Path, seconds: float, tell: Callable[[str], None]) -> Report:
    """Runs both users; returns what was seen."""
    report = Report()
    state = folder / "state"
    kubeconfig = state / "kubeconfig"
    with ExitStack() as stack:
        server = Process(state, "--authorization-mode", "RBAC", "--kubernetes", "1.37")
        stack.callback(server.stop)
        scheduler = Command("run", "--kubeconfig", str(kubeconfig), "--no-leader-elect")
        stack.callback(scheduler.stop)
        admin = Api(kubeconfig)
        user = User(kubeconfig, _prepare(admin), seconds / (len(KINDS) + 1), report)
        ended = threading.Event()
        thread = threading.Thread(target=user.run, args=(ended,))
        thread.start()
        watched = (("scheduler", scheduler, SCHEDULER_MIB_MAX), ("server", server, SERVER_MIB_MAX))
        try:
            until = time.monotonic() + seconds
            number = told = 0
            while time.monotonic() < until and not report.findings:
                number += 1
                report.waits.append(_probe(admin, number))
                for name, program, limit in watched:
                    size = round(resident_mib(program.process.pid) or 0)
                    report.mib_max[name] = max(size, report.mib_max.get(name, 0))
                    if size > limit:
                        report.findings.append(f"{name} has {size} MiB")
                if report.waits[-1] > WAIT_SECONDS_MAX:
                    report.findings.append(f"a plain pod waited {report.waits[-1]:.1f} s")
                if number // 30 > told:
                    told = number // 30
                    sizes = ", ".join(report.sizes())
                    tell(f"{report.created} objects, {max(report.waits):.2f} s, {sizes}")
                time.sleep(0.5)
        finally:
            ended.set()
            thread.join()
            user.close()
            admin.close()
    return report


def main(arguments: list[str]) -> int:
    """Returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="stower-hostile-") as folder:
        minutes = float(arguments[0])
        report = run(Path(folder), minutes * 60, lambda text: print(text, file=sys.stderr))
    print("\n".join(report.lines()))
    return int(bool(report.findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
