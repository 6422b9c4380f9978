"""Claims ask for more only where their class lets them grow."""

import pytest

from tests.unit.api.one_client import Client, Object

MERGE = "application/merge-patch+json"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
UNSUPPORTED = (
    'persistentvolumeclaims "c" is forbidden: only dynamically provisioned pvc can be resized and '
    "the storageclass that provisions the pvc must support resize"
)


def claim(**spec: str) -> Object:
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": "c"}, "spec": {**wanted, **spec}}


@pytest.mark.parametrize(
    ("storage_class", "allows", "want"),
    [("std", True, ""), ("std", False, UNSUPPORTED), ("gone", True, UNSUPPORTED),
     ("", True, UNSUPPORTED)],
)  # fmt: skip
def test_who_may_grow(storage_class: str, allows: bool, want: str) -> None:
    client = Client()
    made = {"metadata": {"name": "std"}, "provisioner": "p", "allowVolumeExpansion": allows}
    assert 201 == client.send("POST", "/apis/storage.k8s.io/v1/storageclasses", made)[0]
    sent = claim(storageClassName=storage_class, volumeName="pv")
    assert 201 == client.send("POST", CLAIMS, sent)[0]
    grow = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    path = f"{CLAIMS}/c"
    status, answer = client.send("PATCH", path, {"status": {"phase": "Bound"}}, MERGE)
    assert (200, "Pending") == (status, answer["status"]["phase"]), "that is the status's"
    refused, answer = client.send("PATCH", path, grow, MERGE)
    assert 422 == refused, "the spec of a claim that is not bound does not change"
    client.send("PATCH", f"{path}/status", {"status": {"phase": "Bound"}}, MERGE)
    status, answer = client.send("PATCH", path, grow, MERGE)
    assert (403 if want else 200, want) == (status, answer.get("message", ""))
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert 200 == client.send("PATCH", path, labels, MERGE)[0]
