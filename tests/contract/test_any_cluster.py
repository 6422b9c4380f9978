"""The suite `api` against a server that only its kubeconfig is known of."""

from pathlib import Path

import pytest

from stower.apiserver.server_process import Options
from tests.contract.servers import in_thread
from tests.golden.api_suite import against
from tests.golden.cluster import ClusterClient, NotEmpty
from tests.golden.run import cases

CASES = Path(__file__).parents[1] / "golden" / "cases" / "api.ndjson.gz"
SOME = ("binding.", "crud.namespaces.basic", "crud.deployments.", "finalizers", "scale")


def test_scripts_agree_and_leave_nothing(tmp_path: Path) -> None:
    with in_thread(Options(tmp_path, memory=True)) as (_, client):
        cluster = ClusterClient(client.kubeconfig)
        chosen = [c for c in cases(CASES) if c["id"].startswith(SOME)]
        assert len(chosen) > 4
        for case in chosen:
            assert [] == list(against(cluster, case)), case["id"]
        cluster.clear()
        ClusterClient(client.kubeconfig)  # finds nothing to refuse


def test_cluster_that_is_in_use_is_refused(tmp_path: Path) -> None:
    """The scripts would delete what is there."""
    with in_thread(Options(tmp_path, memory=True)) as (_, client):
        item = {"metadata": {"name": "precious"}}
        client.call("POST", "/api/v1/namespaces/default/configmaps", item)
        with pytest.raises(NotEmpty, match="configmaps/precious"):
            ClusterClient(client.kubeconfig)
