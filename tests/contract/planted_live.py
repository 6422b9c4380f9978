"""Plants causes that keep a pod from its node on a cluster of `stower up`, explains the pod there,
and does what the explanation says: the pod gets its node.
`python -m tests.contract.planted_live [COUNT]`.

A pod's own fields cannot be changed: it is made anew as the steps want it.
"""

import copy
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from stower.framework.explanation import ExplanationClass
from tests.change_steps import Object, set_field
from tests.contract.servers import Client
from tests.contract.test_up import OPEN, stower, up
from tests.unit.engine.explain.planted import DRA, Planted, plant

COUNT: Final = 200
BOUND_S: Final = 20.0
QUIET_S: Final = 0.3
# A cluster undoes or refuses these: taints that tell a node's condition, volumes whose claim is
# bound by hand, overhead without a RuntimeClass.
UNDONE: Final = {"condition", "volume elsewhere", "overhead"}
# What has no end that somebody could bring about.
WAITED_FOR: Final = {"leaving", "deadline", "lower priority", "group"}
PATHS: Final = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/default/pods",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/namespaces/default/persistentvolumeclaims",
    "DeviceClass": f"/apis/{DRA}/deviceclasses",
    "ResourceSlice": f"/apis/{DRA}/resourceslices",
    "ResourceClaim": f"/apis/{DRA}/namespaces/default/resourceclaims",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}
KEPT: Final = ("PriorityClass",)
PROTECTION: Final = "resource.kubernetes.io/delete-protection"
IMAGE: Final = "example.com/pause:1"


class Cluster:
    """A cluster, and what was planted on it."""

    def __init__(self, client: Client, state: Path) -> None:
        self.client, self.state = client, state
        high = {"metadata": {"name": "high"}, "value": 10}
        self.call("POST", PATHS["PriorityClass"], high)

    def call(self, method: str, path: str, body: Object | None = None) -> Any:
        """The answer, which is none of an error."""
        status, answer = self.client.call(method, path, body)
        assert status < 300, (method, path, body, answer)
        return answer

    def create(self, given: Object) -> None:
        """An object, with its status."""
        obj, kind = copy.deepcopy(given), given["kind"]
        obj["metadata"].pop("uid", None)
        spec = obj.get("spec", {})
        if kind == "Node":
            spec["providerID"] = f"stower://{obj['metadata']['name']}"
            obj["status"]["capacity"] = obj["status"]["allocatable"]
        if kind == "ResourceClaim" and obj.get("status"):
            obj["metadata"]["finalizers"] = [PROTECTION]
        if kind == "Pod":
            if spec.pop("priority", 0):
                spec["priorityClassName"] = "high"
            for container in (*spec["containers"], *spec.get("initContainers", ())):
                container.setdefault("image", IMAGE)
        self.call("POST", PATHS[kind], obj)
        if kind == "Node" or (kind != "Pod" and obj.get("status")):
            self.update(
                kind,
                obj["metadata"]["name"],
                "status",
                lambda it: it.update(status=self.named(obj["status"])),
            )

    def named(self, status: Object) -> Object:
        """The status, with uids of pods as they are here."""
        for user in status.get("reservedFor", ()):
            user["uid"] = self.call("GET", f"{PATHS['Pod']}/{user['name']}")["metadata"]["uid"]
        return status

    def update(self, kind: str, name: str, part: str, change: Any) -> None:
        """Changes an object, or its status, until nobody else does at the same time."""
        path = f"{PATHS[kind]}/{name}"
        for _ in range(20):
            obj = self.call("GET", path)
            change(obj)
            status, answer = self.client.call("PUT", f"{path}/{part}".rstrip("/"), obj)
            if status != 409:
                assert status < 300, answer
                return
        raise AssertionError(f"{path}: always changed by others")

    def apply(self, step: Object, asked: Object) -> None:
        """Does one step; of the asked pod, to what it is made anew from."""
        kind, name, field = step["kind"], step["object"].rpartition("/")[2], step.get("field", "")
        if step["code"] == "CreateObject":
            self.create(step.get("to"))
        elif step["code"] == "RemovePod":
            self.delete("Pod", name)
        elif kind == "Pod" and name == "asked":
            set_field(asked, field, step.get("to"))
        else:
            part = "status" if field.startswith("status") else ""
            self.update(kind, name, part, lambda obj: set_field(obj, field, step.get("to")))

    def delete(self, kind: str, name: str) -> None:
        """At once."""
        self.client.call("DELETE", f"{PATHS[kind]}/{name}", {"gracePeriodSeconds": 0})

    def node_of_asked(self, seconds: float) -> str:
        """Waits for the pod's node; "" where it gets none."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            status, pod = self.client.call("GET", f"{PATHS['Pod']}/asked")
            if status == 200 and pod["spec"].get("nodeName"):
                return str(pod["spec"]["nodeName"])
            time.sleep(0.05)
        return ""

    def clear(self) -> None:
        """Takes everything away, and waits until it has gone."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            left = 0
            for kind, path in PATHS.items():
                for item in () if kind in KEPT else self.call("GET", path)["items"]:
                    left += 1
                    if item["metadata"].get("finalizers"):
                        bare = copy.deepcopy(item)
                        bare["metadata"]["finalizers"] = []
                        self.client.call("PUT", f"{path}/{item['metadata']['name']}", bare)
                    self.delete(kind, item["metadata"]["name"])
            if not left:
                return
        raise AssertionError("something does not go")


def ordered(documents: list[Object]) -> list[Object]:
    """What others refer to comes first; claims whose status names pods come after these."""
    late = [obj for obj in documents if obj["kind"] == "ResourceClaim" and obj.get("status")]
    return [obj for obj in documents if obj not in late] + late


def try_one(cluster: Cluster, planted: Planted) -> str:
    """What is wrong, "" where nothing is."""
    documents = planted.cluster.documents
    asked = documents[-1]
    for obj in ordered(documents[:-1]):
        cluster.create(obj)
    cluster.create(asked)
    time.sleep(QUIET_S)
    words = ("explain", "pod", "asked", "--state", str(cluster.state), "--output", "json")
    code, said, error = stower(*words)
    if code:
        return f"explain failed: {error}"
    found = json.loads(said)
    if found["class"] != planted.class_:
        return f"class {found['class']}, want {planted.class_}: {found['because']}"
    if not found["changes"]:
        return ""
    change = found["changes"][0]
    again = copy.deepcopy(asked)
    for step in change["steps"]:
        cluster.apply(step, again)
    if again != asked:
        cluster.delete("Pod", "asked")
        cluster.create(again)
    node = cluster.node_of_asked(BOUND_S)
    if not node:
        return f"still without a node: {change['what']}"
    # A pod that was made anew has another uid, which decides between nodes that are equally good.
    is_told = node == change["node"] or change["alike"] or again != asked
    return "" if is_told else f"on {node}: {change}"


def main() -> None:
    """Exit code 1: an explanation was wrong, or its change did not help."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    tried, wrong, seed = 0, 0, 0
    with tempfile.TemporaryDirectory() as name:
        state = Path(name) / "state"
        cluster = Cluster(up(state, "--nodes", "0"), state)
        try:
            while tried < count:
                planted, seed = plant(seed, 1 + seed % 3), seed + 1
                causes = {cause for found in planted.causes.values() for cause in found}
                if causes & (UNDONE | WAITED_FOR) or planted.class_ is ExplanationClass.READY:
                    continue
                fault = try_one(cluster, planted)
                tried, wrong = tried + 1, wrong + bool(fault)
                if fault:
                    print(f"seed {seed - 1}: {planted.causes}: {fault}", flush=True)
                cluster.clear()
        finally:
            while OPEN:
                OPEN.pop().close()
            stower("down", "--state", str(state))
    print(f"{tried - wrong} of {tried} explanations were right, and their changes helped")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
