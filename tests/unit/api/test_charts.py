"""The API takes what charts and installers of widely used projects hold, created and applied."""

from pathlib import Path
from typing import Any

import pytest

from tests.charts import FILES, Applier, documents, namespace
from tests.unit.api.one_client import Client


def applier() -> Applier:
    client = Client()

    def send(method: str, path: str, body: Any, form: str) -> tuple[int, Any]:
        return client.send(method, path, body, form)

    return Applier(send)


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_each_document_is_created(file: Path) -> None:
    server = applier()
    server.make(namespace(file.stem), "", "POST")
    for document in documents(file):
        made = server.make(document, file.stem, "POST")
        assert document["metadata"]["name"] == made["metadata"]["name"]


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_each_document_is_applied_and_once_more_changes_nothing(file: Path) -> None:
    server = applier()
    server.make(namespace(file.stem), "", "PATCH")
    for document in documents(file):
        made = server.make(document, file.stem, "PATCH")
        # A Job gets its labels by the first change, and what nobody manages gets a manager.
        if document["kind"] == "Job" or "managedFields" not in made["metadata"]:
            made = server.make(document, file.stem, "PATCH")
        assert made == server.make(document, file.stem, "PATCH")


def test_there_are_files_of_all_shapes() -> None:
    assert 25 <= len(FILES)
    kinds = {document["kind"] for file in FILES for document in documents(file)}
    assert {
        "CustomResourceDefinition", "CronJob", "DaemonSet", "HorizontalPodAutoscaler", "Ingress",
        "MutatingWebhookConfiguration", "NetworkPolicy", "PodDisruptionBudget", "PriorityClass",
        "StatefulSet", "StorageClass", "ValidatingWebhookConfiguration",
    } <= kinds  # fmt: skip
