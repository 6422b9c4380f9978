"""What the API takes and refuses of pods, by upstream's rules for their parts."""

from typing import Any

import pytest

from stower.api.requests import JSON_PATCH, MERGE_PATCH
from tests.unit.api.one_client import PODS, Client, Object, pod

Faults = set[tuple[str, str]]


def new(**spec: Any) -> Faults:
    return Client().faults("POST", PODS, pod(**spec))


def one(**container: Any) -> Faults:
    """Faults of a container, below it."""
    found = new(containers=[{"name": "c", "image": "i", **container}])
    return {(field.removeprefix("spec.containers[0]."), why) for field, why in found}


def volume(**source: Any) -> Faults:
    """Faults of a volume, below it."""
    found = new(volumes=[{"name": "v", **source}], serviceAccountName="a")
    return {(field.removeprefix("spec.volumes[0]."), why) for field, why in found}


def test_volumes_name_what_they_cannot_do_without() -> None:
    assert set() == volume(emptyDir={}) == volume(hostPath={"path": "/a"})
    assert {("persistentDisk.pdName", "Required")} == volume(gcePersistentDisk={})
    assert {("nfs.path", "Invalid")} == volume(nfs={"server": "s", "path": "a"})
    assert {("iscsi.iqn", "Invalid")} == volume(iscsi={"targetPortal": "p", "iqn": "x", "lun": 0})
    assert {("secret", "Forbidden")} == volume(emptyDir={}, secret={"secretName": "s"})
    assert {("secret.items[0].path", "Invalid")} == volume(
        secret={"secretName": "s", "items": [{"key": "k", "path": "..a"}]}
    )
    assert {("image.reference", "Required")} == volume(image={"pullPolicy": "Always"})


def test_projected_volumes_write_each_file_once() -> None:
    token = {"serviceAccountToken": {"path": "t", "expirationSeconds": 60}}
    at = "projected.sources[0].serviceAccountToken.expirationSeconds"
    assert {(at, "Invalid")} == volume(projected={"sources": [token]})
    assert {("projected.path", "Required")} == volume(
        projected={"sources": [{"serviceAccountToken": {"expirationSeconds": 600, "path": ""}}]}
    )
    keys = {"name": "s", "items": [{"key": "k", "path": "f"}]}
    assert {("projected", "Invalid")} == volume(
        projected={"sources": [{"secret": keys}, {"configMap": keys}]}
    )


def test_a_projection_whose_gate_is_off_is_dropped() -> None:
    client = Client()
    sources = [{"podCertificate": {"keyType": "BAD"}}, {"configMap": {"name": "m"}}]
    body = pod(volumes=[{"name": "v", "projected": {"sources": sources}}])
    status, made = client.send("POST", PODS, body)
    assert 201 == status
    assert [{}, {"configMap": {"name": "m"}}] == made["spec"]["volumes"][0]["projected"]["sources"]


def test_a_pod_does_not_claim_what_is_made_for_it() -> None:
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}
    ephemeral = {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    other = {"name": "w", "persistentVolumeClaim": {"claimName": "p-v"}}
    at = "spec.volumes[1].persistentVolumeClaim.claimName"
    assert {(at, "Invalid")} == new(volumes=[ephemeral, other])
    assert {("spec.volumes[0].name", "Invalid")} == Client().faults(
        "POST", PODS, pod("x" * 253, volumes=[ephemeral])
    )


def test_variables_are_of_one_source_that_is_there() -> None:
    assert set() == one(
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    )
    assert {("env[0].valueFrom.fieldRef.fieldPath", "NotSupported")} == one(
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}}]
    )
    assert {("env[0].valueFrom.fieldRef.fieldPath", "Invalid")} == one(
        env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.odd"}}}]
    )
    assert {("env[0].valueFrom.resourceFieldRef.divisor", "Invalid")} == one(
        env=[{"name": "A", "valueFrom": {
            "resourceFieldRef": {"resource": "limits.cpu", "divisor": "1Gi"}}}]
    )  # fmt: skip
    assert {("envFrom", "Invalid")} == one(envFrom=[{}])
    reference = {"key": "K", "volumeName": "v", "path": "f"}
    file = [{"name": "A", "valueFrom": {"fileKeyRef": reference}}]
    assert {("env[0].valueFrom.fileKeyRef.volumeName", "NotFound")} == one(env=file)


def test_mounts_and_devices_do_not_share_a_name_or_a_path() -> None:
    mount, device = {"name": "v", "mountPath": "/a"}, {"name": "v", "devicePath": "/a"}
    found = new(
        volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        containers=[
            {"name": "c", "image": "i", "volumeMounts": [mount], "volumeDevices": [device]}
        ],
    )
    at = "spec.containers[0]"
    assert {
        (f"{at}.{field}", "Invalid")
        for field in ("volumeMounts[0].name", "volumeMounts[0].mountPath",
                      "volumeDevices[0].name", "volumeDevices[0].devicePath")
    } == found  # fmt: skip


def test_a_sleep_is_no_longer_than_the_pod_has_to_end() -> None:
    sleep = {"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}}
    assert {("lifecycle.preStop.sleep", "Invalid")} == one(**sleep)
    assert set() == new(
        containers=[{"name": "c", "image": "i", **sleep}], terminationGracePeriodSeconds=31
    )


@pytest.mark.parametrize(
    ("context", "field", "reason"),
    [
        ({"supplementalGroupsPolicy": "Some"}, "supplementalGroupsPolicy", "NotSupported"),
        ({"seLinuxChangePolicy": "MountOption"}, "seLinuxChangePolicy", "NotSupported"),
        ({"sysctls": [{"name": "NET.A", "value": "1"}]}, "sysctls[0].name", "Invalid"),
        ({"seccompProfile": {"type": "Localhost"}}, "seccompProfile.localhostProfile", "Required"),
        ({"appArmorProfile": {"type": "Localhost", "localhostProfile": " a"}},
         "appArmorProfile.localhostProfile", "Invalid"),
        ({"windowsOptions": {"runAsUserName": "a\\b\\c"}},
         "windowsOptions.runAsUserName", "Invalid"),
    ],
)  # fmt: skip
def test_security_contexts(context: Object, field: str, reason: str) -> None:
    assert {(f"spec.securityContext.{field}", reason)} == new(securityContext=context)


def test_sysctls_of_the_hosts_namespaces_are_refused() -> None:
    context = {"sysctls": [{"name": "net/ipv4/a", "value": "1"}]}
    assert set() == new(securityContext=context)
    found = new(securityContext=context, hostNetwork=True)
    assert {("spec.securityContext.sysctls[0].name", "Invalid")} == found


def test_a_pod_on_windows_has_none_of_linux() -> None:
    found = new(os={"name": "windows"}, hostPID=True, securityContext={"runAsUser": 1},
                resources={"requests": {"cpu": "1"}})  # fmt: skip
    assert {
        ("spec.hostPID", "Forbidden"), ("spec.securityContext.runAsUser", "Forbidden"),
        ("spec.resources", "Forbidden"),
    } == found  # fmt: skip


def test_annotations_and_fields_say_the_same_of_profiles() -> None:
    body = pod(securityContext={"seccompProfile": {"type": "Unconfined"}})
    body["metadata"]["annotations"] = {
        "seccomp.security.alpha.kubernetes.io/pod": "runtime/default"
    }
    at = "spec.securityContext.seccompProfile.type"
    assert {(at, "Forbidden")} == Client().faults("POST", PODS, body)


def test_an_app_armor_annotation_becomes_a_field_of_its_container() -> None:
    body = pod()
    key = "container.apparmor.security.beta.kubernetes.io/c"
    body["metadata"]["annotations"] = {key: "localhost/mine"}
    _, made = Client().send("POST", PODS, body)
    profile = {"type": "Localhost", "localhostProfile": "mine"}
    assert profile == made["spec"]["containers"][0]["securityContext"]["appArmorProfile"]


def test_label_keys_are_merged_into_selectors_once() -> None:
    client = Client()
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
              "labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["v"]}  # fmt: skip
    body = pod(topologySpreadConstraints=[spread])
    body["metadata"]["labels"] = {"app": "a", "v": "1"}
    status, made = client.send("POST", PODS, body)
    assert 201 == status
    merged = {"key": "v", "operator": "In", "values": ["1"]}
    selector = made["spec"]["topologySpreadConstraints"][0]["labelSelector"]
    assert {"matchLabels": {"app": "a"}, "matchExpressions": [merged]} == selector
    # A change goes through, though key and selector are the same now; a new pod like it does not.
    change = {"metadata": {"labels": {"v": "2"}}}
    assert set() == client.faults("PATCH", f"{PODS}/p", change, MERGE_PATCH)
    again = {"metadata": {"name": "q", "labels": {"v": "1"}}, "spec": made["spec"]}
    assert {("spec.topologySpreadConstraints[0][0]", "Invalid")} == client.faults(
        "POST", PODS, again
    )


def test_preferred_terms_may_have_values_that_are_no_labels() -> None:
    requirement = {"key": "a", "operator": "In", "values": ["-x"]}
    term = {"matchExpressions": [requirement]}
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": term}]}  # fmt: skip
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    assert set() == new(affinity={"nodeAffinity": preferred})
    ((field, _),) = new(affinity={"nodeAffinity": required})
    assert field.endswith("matchExpressions[0].values[0]")


def test_a_negative_grace_period_reads_as_one_second() -> None:
    _, made = Client().send("POST", PODS, pod(terminationGracePeriodSeconds=-5))
    assert 1 == made["spec"]["terminationGracePeriodSeconds"]


def test_limits_of_huge_pages_of_a_pod_follow_its_containers() -> None:
    own = {"limits": {"hugepages-2Mi": "4Mi", "cpu": "1"}}
    _, made = Client().send("POST", PODS, pod(
        resources={"requests": {"cpu": "1"}},
        containers=[{"name": "c", "image": "i", "resources": own}],
    ))  # fmt: skip
    assert {"hugepages-2Mi": "4Mi"} == made["spec"]["resources"]["limits"]
    assert {"cpu": "1", "hugepages-2Mi": "4Mi"} == made["spec"]["resources"]["requests"]


def test_quality_of_service_counts_amounts_above_zero() -> None:
    def quality(own: Object, **spec: Any) -> str:
        body = pod(containers=[{"name": "c", "image": "i", "resources": own}], **spec)
        _, made = Client().send("POST", PODS, body)
        return str(made["status"]["qosClass"])

    both = {"cpu": "1", "memory": "1"}
    assert "Guaranteed" == quality({"limits": both})
    assert "BestEffort" == quality({"limits": {"cpu": "0"}})
    assert "Burstable" == quality({"limits": both, "requests": {"cpu": "500m"}})
    assert "BestEffort" == quality({"limits": both}, resources={})


# Changes


def test_a_resize_changes_cpu_and_memory_of_init_containers_too() -> None:
    client = Client()
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    first = {"name": "i", "image": "i", "resources": resources}
    client.send("POST", PODS, pod(initContainers=[first]))

    def resize(path: str, value: Any, op: str = "replace") -> Faults:
        patch = [{"op": op, "path": f"/spec/initContainers/0/{path}", "value": value}]
        return client.faults("PATCH", f"{PODS}/p/resize", patch, JSON_PATCH)

    assert set() == resize("resources/requests/cpu", "1500m")
    at = "spec.initContainers[0]"
    assert {(f"{at}.resources.limits", "Forbidden")} == resize("resources/limits", {})
    assert {(at, "Forbidden")} == resize(
        "resources/limits", {"cpu": "2", "ephemeral-storage": "1Gi"}
    )
    policy = [{"resourceName": "cpu", "restartPolicy": "NotRequired"}]
    assert {(at, "Forbidden")} == resize("resizePolicy", policy, "add")
    gone = [{"op": "remove", "path": "/spec/initContainers"}]
    found = client.faults("PATCH", f"{PODS}/p/resize", gone, JSON_PATCH)
    assert ("spec.initContainers", "Forbidden") in found


def test_a_resize_keeps_resources_of_the_pod_and_its_quality() -> None:
    client = Client()
    client.send("POST", PODS, pod(resources={"requests": {"cpu": "1"}}))
    path = f"{PODS}/p/resize"

    def resize(own: Object | None) -> Faults:
        return client.faults("PATCH", path, {"spec": {"resources": own}}, MERGE_PATCH)

    assert set() == resize({"requests": {"cpu": "2"}})
    found = resize(None)
    assert {("spec.resources", "Forbidden"), ("spec", "Invalid")} == found
    huge = {"hugepages-2Mi": "2Mi"}
    more = {"requests": {"cpu": "2", **huge}, "limits": huge}
    assert ("spec", "Forbidden") in resize(more)


def test_users_of_containers_in_a_status_are_numbers_of_linux() -> None:
    client = Client()
    client.send("POST", PODS, pod())
    user = {"linux": {"uid": -1, "gid": 0}}
    container = {"name": "c", "image": "i", "imageID": "", "ready": True, "restartCount": 0,
                 "user": user}  # fmt: skip
    body = {"status": {"containerStatuses": [container]}}
    assert {("status.containerStatuses[0].user.linux.uid", "Invalid")} == client.faults(
        "PATCH", f"{PODS}/p/status", body, MERGE_PATCH
    )


def test_addresses_in_a_status_are_of_both_families() -> None:
    client = Client()
    client.send("POST", PODS, pod())

    def ips(*given: str) -> Faults:
        body = {"status": {"podIPs": [{"ip": ip} for ip in given], "podIP": given[0]}}
        return client.faults("PATCH", f"{PODS}/p/status", body, MERGE_PATCH)

    assert {("status.podIPs", "Invalid")} == ips("10.0.0.1", "10.0.0.2")
    assert {("status.podIPs[0]", "Invalid")} == ips("010.0.0.1")
    assert {("status.podIPs[0]", "Invalid")} == ips("::ffff:10.0.0.1")
    broken = {("status.podIPs[1]", "Invalid"), ("status.podIPs", "InternalError"),
              ("status.podIPs", "Invalid")}  # fmt: skip
    assert broken == ips("10.0.0.1", "x")
    assert set() == ips("10.0.0.1", "::1")


def test_a_claim_has_one_status() -> None:
    client = Client()
    client.send("POST", PODS, pod(resourceClaims=[{"name": "a", "resourceClaimName": "b"}]))
    body = {"status": {"resourceClaimStatuses": [{"name": "a"}, {"name": "a"}]}}
    assert {("status.resourceClaimStatuses[1].name", "Duplicate")} == client.faults(
        "PATCH", f"{PODS}/p/status", body, MERGE_PATCH
    )


def test_a_condition_keeps_the_generation_that_an_old_writer_does_not_know() -> None:
    client = Client()
    client.send("POST", PODS, pod())
    ready = {"type": "Ready", "status": "False", "observedGeneration": 1}
    client.send("PATCH", f"{PODS}/p/status", {"status": {"conditions": [ready]}}, MERGE_PATCH)
    _, kept = client.send(
        "PATCH", f"{PODS}/p/status",
        {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, MERGE_PATCH,
    )  # fmt: skip
    assert 1 == kept["status"]["conditions"][0]["observedGeneration"]


def test_an_image_name_that_is_too_long_is_not_pulled_always() -> None:
    client = Client()
    for name, policy in (("x" * 247, "Always"), ("x" * 248, "IfNotPresent")):
        body = pod(containers=[{"name": "c", "image": name}])
        _, made = client.send("POST", f"{PODS}?dryRun=All", body)
        assert policy == made["spec"]["containers"][0]["imagePullPolicy"]


def test_a_template_leaves_to_its_pods_what_they_fill_in() -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}],
                 "volumes": [{"name": "v", "image": {}}]},
    }  # fmt: skip
    body = {"metadata": {"name": "d"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}  # fmt: skip
    path = "/apis/apps/v1/namespaces/default/deployments"
    assert set() == Client().faults("POST", path, body)
