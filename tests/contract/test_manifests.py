"""deploy/: kustomize's and Helm's ways to install, applied to a server with roles, and run.

The scheduler is started as its Deployment says, with the rights that the manifests give it."""

import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import helm_python as helm
import pytest
import yaml

from stower.apiserver.server_process import Options
from tests.contract.kubectl import PROGRAM, Kubectl
from tests.contract.servers import Client, in_thread, until
from tests.contract.test_live import PODS, add_nodes, bound
from tests.contract.test_status_reports import get, url_of

Object = dict[str, Any]
DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "chart" / "stower"
OVERLAYS = sorted(path.name for path in (DEPLOY / "overlays").iterdir())
NAMESPACE = "stower-system"
NOBODY = 65532  # the user that the Deployment names
# What the chart installs as each overlay does.
VALUES: dict[str, Object] = {
    "second-scheduler": {},
    "kube-scheduler": {"config": {"profiles": [{"schedulerName": "default-scheduler"}]}},
}


def values_of(overlay: str) -> Object:
    if overlay in VALUES:
        return VALUES[overlay]
    found: Object = yaml.safe_load((CHART / "presets" / f"{overlay}.yaml").read_text())
    return found


def built(folder: Path) -> list[Object]:
    done = subprocess.run(
        [PROGRAM, "kustomize", str(folder)], capture_output=True, text=True, timeout=60
    )
    assert 0 == done.returncode, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def rendered(values: Object, name: str = "stower") -> list[Object]:
    chart = helm.Chart.load(CHART)
    texts = chart.render(values, name=name, namespace=NAMESPACE)
    return [
        document
        for path, text in sorted(texts.items())
        if not path.endswith("NOTES.txt")
        for document in yaml.safe_load_all(text)
        if document
    ]


# The chart


def test_the_chart_has_no_faults() -> None:
    for overlay in OVERLAYS:
        found = helm.lint(CHART, values_of(overlay), strict=True)
        assert [] == found["errors"]
        assert ["icon is recommended"] == [one["error"] for one in found["messages"]]


def plain(obj: Object) -> Object:
    """What an object says, without the marks of whoever made it."""
    meta = {"name": obj["metadata"]["name"]}
    if "namespace" in obj["metadata"]:
        meta["namespace"] = obj["metadata"]["namespace"]
    said = json.loads(json.dumps({**obj, "metadata": meta}))
    kind = said["kind"]
    if kind == "ConfigMap":
        said["metadata"]["name"] = "stower-config"  # without the hash of its content
        said["data"] = {name: yaml.safe_load(text) for name, text in said["data"].items()}
    if kind.endswith(("RoleBinding", "Role")):
        for one in (said["metadata"], said.get("roleRef", {})):
            if "name" in one:
                one["name"] = one["name"].replace("stower-scheduler", "stower")
    if kind == "Deployment":
        pod = said["spec"]["template"]
        pod["metadata"].pop("annotations", None)
        (container,) = pod["spec"]["containers"]
        container.setdefault("imagePullPolicy", "IfNotPresent")
        pod["spec"]["volumes"][0]["configMap"]["name"] = "stower-config"
    if kind == "NetworkPolicy":
        said["spec"]["ingress"][1].pop("from")  # by expression, not by label
    text = json.dumps(said, sort_keys=True)
    found: Object = json.loads(text.replace(', "app.kubernetes.io/instance": "stower"', "").replace(
        '"app.kubernetes.io/instance": "stower", ', ""))  # fmt: skip
    return found


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_chart_installs_what_kustomize_does(overlay: str) -> None:
    def by_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
        plainly = [plain(obj) for obj in objects if obj["kind"] != "Namespace"]
        return {(obj["kind"], obj["metadata"]["name"]): obj for obj in plainly}

    expected = by_name(built(DEPLOY / "overlays" / overlay))
    assert expected == by_name(rendered(values_of(overlay)))


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"replicas": "2"}, "/replicas"),
        ({"feature": {"warm": True}}, "'feature' not allowed"),
        ({"config": {"profiles": []}}, "/config/profiles"),
        ({"config": {"profiles": [{"schedulerName": "a"}], "kind": "X"}}, "/config"),
        ({"extraArgs": ["run"]}, "/extraArgs/0"),
        ({"agents": {"port": 0}}, "/agents/port"),
    ],
)
def test_values_that_are_wrong_are_named(values: Object, fault: str) -> None:
    with pytest.raises(helm.HelmValuesError, match=fault):
        rendered(values)


def test_names_are_those_of_the_release() -> None:
    objects = rendered({"features": {"warm": True}, "monitoring": {"serviceMonitor": True}}, "blue")
    names = {obj["metadata"]["name"] for obj in objects if "crd" not in obj["kind"].lower()}
    assert {name for name in names if "blue-stower" not in name} == {"warmpools.stower.dev"}
    (config,) = [yaml.safe_load(o["data"]["scheduler.yaml"]) for o in objects
                 if o["kind"] == "ConfigMap"]  # fmt: skip
    (role,) = [o for o in objects if o["kind"] == "Role"]
    assert [config["leaderElection"]["resourceName"]] == role["rules"][1]["resourceNames"]


def test_every_manifest_is_in_a_kustomization() -> None:
    used = {DEPLOY / "groups" / "maker-rbac.yaml"}  # for whom runs `stower make-groups`
    for path in DEPLOY.rglob("kustomization.yaml"):
        said = yaml.safe_load(path.read_text())
        generated = said.get("configMapGenerator", ())
        names = [*said["resources"], *(name for one in generated for name in one["files"])]
        used |= {path} | {(path.parent / name.rpartition("=")[2]).resolve() for name in names}
    assert used >= {path for path in DEPLOY.rglob("*.yaml") if CHART not in path.parents}


# On a server


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    with in_thread(Options(tmp_path / "state", memory=True, by_roles=True)) as (_, client):
        yield Kubectl(client, tmp_path)


MONITORING = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{kind.lower()}s.monitoring.coreos.com"},
            "spec": {
                "group": "monitoring.coreos.com",
                "names": {"plural": f"{kind.lower()}s", "kind": kind},
                "scope": "Namespaced",
                "versions": [
                    {
                        "name": "v1", "served": True, "storage": True,
                        "schema": {"openAPIV3Schema": {
                            "type": "object", "x-kubernetes-preserve-unknown-fields": True,
                        }},
                    }
                ],
            },
        }
        for kind in ("ServiceMonitor", "PrometheusRule")
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    "folder", [*(f"overlays/{name}" for name in OVERLAYS), "groups/crds", "vms/crds", "monitoring"]
)
def test_kubectl_applies_it(folder: str, kubectl: Kubectl) -> None:
    if folder == "groups/crds":
        kubectl("apply", "--validate=strict", "-f", str(DEPLOY / "groups" / "maker-rbac.yaml"))
    if folder == "monitoring":
        kubectl("apply", "-f", kubectl.file(MONITORING))
        kubectl("create", "namespace", NAMESPACE)
    apply = ("apply", "--validate=strict", "-k", str(DEPLOY / folder))
    lines = kubectl(*apply).splitlines()
    assert lines
    assert all(line.endswith("created") for line in lines), lines
    assert "" == kubectl("diff", "-k", str(DEPLOY / folder))
    kubectl(*apply)
    kubectl(*apply, "--server-side", "--force-conflicts")
    assert "" == kubectl("diff", "-k", str(DEPLOY / folder))


def test_helm_installs_upgrades_and_goes_back(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", kubectl.file(MONITORING))
    monitoring = {"serviceMonitor": True, "rules": True, "dashboard": True}
    with helm.Config(kubeconfig_path=kubectl.client.kubeconfig, namespace=NAMESPACE) as release:
        values = {**values_of("z2jh"), "monitoring": monitoring}
        release.install(
            CHART, "stower", values, namespace=NAMESPACE, create_namespace=True, timeout=60
        )
        kinds = "deployments,configmaps,servicemonitors,prometheusrules,networkpolicies"
        names = kubectl("get", kinds, "-n", NAMESPACE, "-o", "name").split()
        assert {
            "deployment.apps/stower", "configmap/stower-config", "configmap/stower-dashboard",
            "servicemonitor.monitoring.coreos.com/stower",
            "prometheusrule.monitoring.coreos.com/stower",
        } == set(names) - {"configmap/kube-root-ca.crt"}  # fmt: skip
        release.upgrade(
            CHART, "stower", {**values, "features": {"warm": True, "vms": True}, "replicas": 3},
            namespace=NAMESPACE, timeout=60,
        )  # fmt: skip
        replicas = ("get", "deployment", "stower", "-n", NAMESPACE, "-o=jsonpath={.spec.replicas}")
        assert "3" == kubectl(*replicas)
        assert "stower-vms" in kubectl("get", "clusterroles", "-o", "name")
        release.rollback("stower", version=1, timeout=60)
        assert "2" == kubectl(*replicas)
        assert "stower-vms" not in kubectl("get", "clusterroles", "-o", "name")
        release.uninstall("stower", timeout=60)
    assert "" == kubectl("get", "deployments,roles", "-n", NAMESPACE, "-o", "name")
    assert "warmpools.stower.dev" in kubectl("get", "crds", "-o", "name"), "pools are lost with it"


# As its Deployment says


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that the Deployment's user can read."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def can_be_nobody() -> bool:
    """Whether this test may become another user who reads the program's files."""
    if os.geteuid() != 0:
        return False
    command = [sys.executable, "-c", "import stower.cli.main"]
    try:
        done = subprocess.run(command, user=NOBODY, group=NOBODY, cwd="/", capture_output=True)
    except PermissionError:
        return False
    return 0 == done.returncode


# stower on a file system that is read-only: no file is opened for writing.
READ_ONLY = """
import errno, os, sys

def read_only(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
        if flags & writes and not str(path).startswith(("/dev/", "/proc/")):
            raise OSError(errno.EROFS, "read-only", path)
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.chmod"):
        raise OSError(errno.EROFS, event)

sys.addaudithook(read_only)
from stower.cli.main import main
main()
"""


def as_deployed(kubectl: Kubectl, folder: Path) -> tuple[list[str], str]:
    """Arguments of the container, for a kubeconfig with its service account's rights; and the name
    that pods give."""
    client = kubectl.client
    found = json.loads(kubectl("get", "deployment", "stower", "-n", NAMESPACE, "-o", "json"))
    pod = found["spec"]["template"]["spec"]
    name = pod["volumes"][0]["configMap"]["name"]
    configs = json.loads(kubectl("get", "configmap", name, "-n", NAMESPACE, "-o", "json"))
    config = folder / "scheduler.yaml"
    config.write_text(configs["data"]["scheduler.yaml"])
    token = kubectl("create", "token", pod["serviceAccountName"], "-n", NAMESPACE).strip()
    kubeconfig = yaml.safe_load(client.kubeconfig.read_text())
    kubeconfig["users"][0]["user"] = {"token": token}
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    places = {
        "/etc/stower/scheduler.yaml": str(config),
        "10259": "0",
        "0.0.0.0:10299": "127.0.0.1:0",
    }
    arguments = []
    for argument in pod["containers"][0]["args"]:
        option, _, value = argument.partition("=")
        arguments.append(f"{option}={places.get(value, value)}" if value else option)
    profile = yaml.safe_load(config.read_text())["profiles"][0]["schedulerName"]
    return [*arguments, "--kubeconfig", str(folder / "kubeconfig")], profile


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_it_runs_with_the_rights_that_it_gets(
    overlay: str, kubectl: Kubectl, open_folder: Path
) -> None:
    client: Client = kubectl.client
    kubectl("apply", "-k", str(DEPLOY / "overlays" / overlay))
    arguments, profile = as_deployed(kubectl, open_folder)
    add_nodes(client, 1)
    nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if can_be_nobody() else {}
    with subprocess.Popen(
        [sys.executable, "-c", READ_ONLY, *arguments], text=True, cwd="/",
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"},
        **nobody,  # type: ignore[call-overload]
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        said = ""
        try:
            while "Ctrl-C" not in said:
                line = process.stdout.readline()
                assert line, process.stderr.read()
                said += line
            containers = [{"name": "c", "image": "i"}]
            spec = {"schedulerName": profile, "containers": containers}
            assert 201 == client.call("POST", PODS, {"metadata": {"name": "a"}, "spec": spec})[0]
            until(client, PODS, lambda pods: "a" in bound(pods))
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            url = url_of(said).partition(";")[0].replace("0.0.0.0", "127.0.0.1")
            assert (200, "ok") == get(f"{url}/livez", context=context)
            assert (200, "ok") == get(f"{url}/readyz", context=context)
        finally:
            process.terminate()
            process.wait(15)
        errors = process.stderr.read()
    assert 0 == process.returncode, errors
    refused = [line for line in errors.splitlines() if "forbidden" in line]
    assert all("running without these objects" in line for line in refused), (
        "of features that are off"
    )
    assert "Traceback" not in errors
