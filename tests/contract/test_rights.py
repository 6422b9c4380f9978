"""What every part of the scheduler does with the rights that deploy/ gives it, and no more.

tests/rights.py holds all requests of the suite against the roles; here each of them is made once,
on a server that refuses what no role allows."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stower.apiserver.server_process import Options
from tests.contract.faulty import Faults, faulty
from tests.contract.kubectl import Kubectl
from tests.contract.servers import Client, Command, in_thread, until
from tests.contract.test_live import PODS, add_nodes, bound, scheduler
from tests.contract.test_vms import VMS, machine

Object = dict[str, Any]
ROOT = Path(__file__).parents[2]
PARTS = ("scheduler", "groups", "groups/making", "negotiation", "vms", "warm")
V1 = "/api/v1"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
STORAGE = "/apis/storage.k8s.io/v1/storageclasses"
OWN = "/apis/stower.dev/v1/namespaces/default"
MIGRATIONS = "/apis/vm.neon.tech/v1/namespaces/default/virtualmachinemigrations"


class Account:
    """A server with roles, and the scheduler's own account on it."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.kubectl = Kubectl(client, folder)
        for part in PARTS:
            self.kubectl("apply", "-k", str(ROOT / "deploy" / part))
        token = self.kubectl("create", "token", "stower", "-n", "stower-system").strip()
        config = yaml.safe_load(client.kubeconfig.read_text())
        config["users"][0]["user"] = {"token": token}
        self.kubeconfig = folder / "account.yaml"
        self.kubeconfig.write_text(yaml.safe_dump(config))

    def add(self, path: str, body: Object) -> None:
        """An object."""
        code, told = self.client.call("POST", path, body)
        assert 201 == code, told

    def pod(self, name: str, **spec: Any) -> None:
        """A pod of the default scheduler."""
        container = {"name": "c", "image": "i", **spec.pop("container", {})}
        meta = {"name": name, **spec.pop("meta", {})}
        self.add(PODS, {"metadata": meta, "spec": {"containers": [container], **spec}})

    @contextlib.contextmanager
    def scheduler(self, *arguments: str, faults: Faults | None = None) -> Iterator[Command]:
        """The scheduler with its account's rights, perhaps over a way with faults."""
        with contextlib.ExitStack() as stack:
            kubeconfig = self.kubeconfig
            if faults is not None:
                proxied = self.folder / "proxied"
                stack.enter_context(faulty(self.kubeconfig, proxied, faults))
                kubeconfig = proxied
            lock = ("--leader-elect-resource-name", "stower",
                    "--leader-elect-resource-namespace", "stower-system")  # fmt: skip
            yield stack.enter_context(scheduler(kubeconfig, *lock, *arguments))

    @contextlib.contextmanager
    def actors(self, nodes: int) -> Iterator[None]:
        """Nodes and controllers, with every right."""
        command = Command("actors", "--kubeconfig", str(self.client.kubeconfig),
                          "--nodes", str(nodes))  # fmt: skip
        try:
            yield
        finally:
            command.kill()

    def until(self, path: str, good: Callable[[dict[str, Object]], bool]) -> dict[str, Object]:
        """The objects of a list as soon as they are so."""
        return until(self.client, path, good)


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    options = Options(tmp_path / "state", memory=True, version="1.37", by_roles=True)
    with in_thread(options) as (_, client):
        yield Account(client, tmp_path)


def test_lists_where_nothing_is_streamed(account: Account) -> None:
    add_nodes(account.client, 1)
    account.pod("a")
    with account.scheduler(faults=Faults(lists=True)):
        account.until(PODS, lambda o: "a" in bound(o))


def test_pods_are_preempted(account: Account) -> None:
    add_nodes(account.client, 1)
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    account.add(classes, {"metadata": {"name": "high"}, "value": 1000})
    whole = {"resources": {"requests": {"cpu": "4"}}}
    with account.scheduler():
        account.pod("low", container=whole)
        account.until(PODS, lambda o: "low" in bound(o))
        account.pod("high", container=whole, priorityClassName="high")
        account.until(PODS, lambda o: "low" not in o or "deletionTimestamp" in o["low"]["metadata"])


def test_volumes_are_bound_and_asked_for(account: Account) -> None:
    for name, provisioner in (("local", "kubernetes.io/no-provisioner"), ("made", "x.example.com")):
        account.add(STORAGE, {"metadata": {"name": name}, "provisioner": provisioner,
                              "volumeBindingMode": "WaitForFirstConsumer"})  # fmt: skip
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": name,
                "resources": {"requests": {"storage": "1Gi"}}}  # fmt: skip
        account.add(f"{V1}/namespaces/default/persistentvolumeclaims",
                    {"metadata": {"name": name}, "spec": spec})  # fmt: skip
    on_node = {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n0"]}]}]}  # fmt: skip
    disks = f"{V1}/persistentvolumes"
    account.add(disks, {"metadata": {"name": "disk"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local", "local": {"path": "/mnt"},
        "nodeAffinity": {"required": on_node}}})  # fmt: skip
    account.kubectl("patch", "pv", "disk", "--subresource=status", "--type=merge", "-p",
                    '{"status": {"phase": "Available"}}')  # fmt: skip
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "9"}
    account.add(f"{V1}/nodes", {"metadata": {"name": "n0", "labels": {
        "kubernetes.io/hostname": "n0"}}, "status": {"allocatable": amounts}})  # fmt: skip
    with account.scheduler():
        for name in ("local", "made"):
            claim = {"claimName": name}
            account.pod(name, volumes=[{"name": "v", "persistentVolumeClaim": claim}])
        account.until(disks, lambda o: o["disk"]["spec"].get("claimRef", {}).get("name") == "local")
        account.until(
            f"{V1}/namespaces/default/persistentvolumeclaims",
            lambda o: (
                "volume.kubernetes.io/selected-node" in o["made"]["metadata"].get("annotations", {})
            ),
        )


def test_claims_of_extended_resources_come_and_go(account: Account) -> None:
    add_nodes(account.client, 1)
    account.add(CLASSES, {"metadata": {"name": "gpu"}, "spec": {
        "extendedResourceName": "example.com/gpu",
        "selectors": [{"cel": {"expression": "device.driver == 'd.example.com'"}}]}})  # fmt: skip
    account.add(SLICES, {"metadata": {"name": "s"}, "spec": {
        "driver": "d.example.com", "nodeName": "n0", "devices": [{"name": "g0"}],
        "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1}}})  # fmt: skip
    refused: list[str] = []

    def once(method: str, path: str) -> tuple[int, bytes] | None:
        """The first binding is refused for good: the claim that was made for it has to go."""
        if not path.endswith("/binding") or "pods" not in path or refused:
            return None
        refused.append(path)
        told = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not today"}
        return 403, json.dumps(told).encode()

    with account.scheduler(faults=Faults(answers=once)):
        account.pod("a", container={"resources": {"limits": {"example.com/gpu": "1"}}})
        pods = account.until(PODS, lambda o: "a" in bound(o))
        status = pods["a"]["status"]["extendedResourceClaimStatus"]
        claims = account.until(CLAIMS, lambda o: list(o) == [status["resourceClaimName"]])
        assert refused
        (claim,) = claims.values()
        assert "g0" == claim["status"]["allocation"]["devices"]["results"][0]["device"]


@pytest.mark.behaviour("S3.40")
def test_groups_of_a_cluster_that_has_none_of_its_own(account: Account) -> None:
    account.kubectl("apply", "-k", str(ROOT / "deploy" / "groups" / "crds"))
    add_nodes(account.client, 1)
    gone = (404, b'{"kind":"Status","code":404,"message":"not found"}')

    def without_groups(method: str, path: str) -> tuple[int, bytes] | None:
        later = ("/apis/scheduling.k8s.io/v1beta1", "/apis/scheduling.k8s.io/v1alpha")
        return gone if path.startswith(later) else None

    root = {"schedulingPolicy": {"gang": {"minGroupCount": 1}}}
    gang = {"schedulingPolicy": {"gang": {"minCount": 2}}, "parentCompositePodGroupName": "root"}
    account.add(f"{OWN}/compositepodgroups", {"metadata": {"name": "root"}, "spec": root})
    account.add(f"{OWN}/podgroups", {"metadata": {"name": "gang"}, "spec": gang})
    with account.scheduler(faults=Faults(answers=without_groups)):
        for name in ("a", "b"):
            account.pod(name, meta={"labels": {"stower.dev/pod-group": "gang"}})
        account.until(PODS, lambda o: {"a", "b"} <= set(bound(o)))
        for plural, name in (("podgroups", "gang"), ("compositepodgroups", "root")):
            account.until(
                f"{OWN}/{plural}",
                lambda o, n=name: bool((o[n].get("status") or {}).get("conditions")),
            )


def test_groups_are_made_for_pods_as_operators_make_them(account: Account) -> None:
    """A Job of a JobSet, and a replica of a LeaderWorkerSet, of which one pod is still to come."""
    add_nodes(account.client, 2)
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    labels = {"jobset.sigs.k8s.io/jobset-name": "train",
              "jobset.sigs.k8s.io/global-replicas": "1"}  # fmt: skip
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    template = {"metadata": {"labels": labels}, "spec": spec}
    job = {"metadata": {"name": "train-w-0", "labels": labels},
           "spec": {"parallelism": 2, "completions": 2, "template": template}}  # fmt: skip
    account.add(jobs, job)
    uid = account.client.call("GET", f"{jobs}/train-w-0")[1]["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train-w-0", "uid": uid,
             "controller": True}  # fmt: skip
    lws = {"leaderworkerset.sigs.k8s.io/name": "serve",
           "leaderworkerset.sigs.k8s.io/group-index": "0"}  # fmt: skip
    size = {"leaderworkerset.sigs.k8s.io/size": "2"}
    with account.scheduler("--make-groups", "all"):
        for i in range(2):
            meta = {"labels": labels, "ownerReferences": [owner]}
            account.pod(f"train-w-0-{i}", meta=meta, restartPolicy="Never")
        account.pod("serve-0", meta={"labels": lws, "annotations": size})
        pods = account.until(PODS, lambda o: {"train-w-0-0", "train-w-0-1"} <= set(bound(o)))
        assert "serve-0" not in bound(pods)
        account.pod("serve-0-1", meta={"labels": lws, "annotations": size})
        account.until(PODS, lambda o: {"serve-0", "serve-0-1"} <= set(bound(o)))
        account.pod("odd", meta={"labels": lws})
        events = f"{V1}/namespaces/default/events"
        account.until(events, lambda o: any("odd" in name for name in o))


@pytest.mark.behaviour("S4.28")
def test_a_vm_grows_and_moves(account: Account) -> None:
    """Its approval is written to its pod; a node that runs over sends one of its VMs away."""
    config = str(ROOT / "examples" / "vms" / "scheduler.yaml")
    nodes = f"{V1}/nodes"
    with account.actors(2), account.scheduler("--config", config):
        account.until(nodes, lambda o: len(o) == 2)
        account.kubectl("cordon", "node-2")
        for name in ("one", "two"):
            vm = machine(name)
            load = {"low": 1, "high": 1, "periodSeconds": 9}
            vm["metadata"]["annotations"] = {"stower.dev/load": json.dumps(load)}
            account.add(VMS, vm)
        account.until(PODS, lambda o: len(bound(o)) == 2)
        account.kubectl("uncordon", "node-2")
        account.until(MIGRATIONS, bool)
        account.until(MIGRATIONS, lambda o: not o)
        account.until(PODS, lambda o: {"node-1", "node-2"} == {*bound(o).values()})


def test_ready_nodes_get_the_pools_label(account: Account) -> None:
    add_nodes(account.client, 1)
    account.add(f"{OWN}/warmpools", {"metadata": {"name": "users"}, "spec": {
        "users": {"matchLabels": {"a": "b"}}, "placeholders": {"selector": {}},
        "images": {"ofUsers": False, "label": "example.com/ready"}}})  # fmt: skip
    config = account.folder / "labels.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{pluginConfig: [{name: WarmCapacity, args: {nodeLabels: [example.com/*]}}]}]\n"
    )
    with account.scheduler("--config", str(config)):
        account.until(f"{V1}/nodes",
                      lambda o: (o["n0"]["metadata"].get("labels") or {}).get("example.com/ready")
                      == "true")  # fmt: skip
