"""Writes as requests: those that other tests of the dispatch do not make."""

import json

from stower.framework.writes import CreateObject, DeleteObject, PatchPodStatus
from stower.live.requests import build_request
from stower.model.kinds import ResourceClaim
from stower.model.kinds.pod import (
    ClaimedResources,
    ExtendedResourceClaimStatus,
    ExtendedResourceRequest,
)

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def test_an_object_is_created_with_its_type() -> None:
    body = {"metadata": {"name": "c1"}, "spec": {}}
    write = CreateObject(1, ResourceClaim, "default", "c1", "u", body)
    method, path, sent, kind = build_request(write, None, 0, "me")
    assert ("POST", CLAIMS, "application/json") == (method, path, kind)
    assert {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **body} == json.loads(sent)


def test_an_object_is_deleted_by_its_uid() -> None:
    write = DeleteObject(1, ResourceClaim, "default", "c1", "u")
    method, path, sent, _ = build_request(write, None, 0, "me")
    assert ("DELETE", f"{CLAIMS}/c1") == (method, path)
    assert {"uid": "u"} == json.loads(sent)["preconditions"]


def test_a_pod_is_told_what_its_claims_take_of_its_node() -> None:
    part = ClaimedResources("c1", ("main",), {"cpu": "1500m"})
    field = "nodeAllocatableResourceClaimStatuses"
    for claimed, wanted in (
        (
            (part,),
            [{"resourceClaimName": "c1", "containers": ["main"], "resources": part.resources}],
        ),
        ((), None),
    ):
        write = PatchPodStatus(1, "default", "p1", "u", claimed=claimed)
        method, path, sent, _ = build_request(write, None, 0, "me")
        assert ("PATCH", "/api/v1/namespaces/default/pods/p1/status") == (method, path)
        assert {"metadata": {"uid": "u"}, "status": {field: wanted}} == json.loads(sent)


def test_a_pod_is_told_its_claim_for_extended_resources() -> None:
    mapping = ExtendedResourceRequest("main", "example.com/gpu", "container-0-request-0")
    told = ExtendedResourceClaimStatus((mapping,), "p1-x")
    write = PatchPodStatus(1, "default", "p1", "u", extended_resource_claim=told)
    method, path, sent, _ = build_request(write, None, 0, "me")
    assert ("PATCH", "/api/v1/namespaces/default/pods/p1/status") == (method, path)
    wanted = {
        "requestMappings": [
            {
                "containerName": "main",
                "resourceName": "example.com/gpu",
                "requestName": "container-0-request-0",
            }
        ],
        "resourceClaimName": "p1-x",
    }
    assert {
        "metadata": {"uid": "u"},
        "status": {"extendedResourceClaimStatus": wanted},
    } == json.loads(sent)
