"""Defaults of batch/v1 within policies."""

from typing import Any

import pytest

from tests.unit.controllers.cluster import Cluster

RULE = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}


@pytest.mark.parametrize("kind", ["jobs", "cronjobs"])
def test_a_condition_of_a_failure_policy_is_about_true(kind: str) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    spec: dict[str, Any] = {"template": template, "podFailurePolicy": {"rules": [RULE]}}
    if kind == "cronjobs":
        spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": spec}}
    cluster = Cluster(scheduler=False)
    made = cluster.create(kind, {"metadata": {"name": "x"}, "spec": spec})["spec"]
    policy = (made["jobTemplate"]["spec"] if kind == "cronjobs" else made)["podFailurePolicy"]
    assert "True" == policy["rules"][0]["onPodConditions"][0]["status"]
