"""The way to the API server from inside of a pod: its environment, token and authority."""

import asyncio
from pathlib import Path

import pytest
from kubernetes_asyncio.config import incluster_config

from stower.apiserver.serve import Options
from stower.live.access import AccessError, read_access
from stower.live.client import Client
from tests.contract.servers import in_thread


@pytest.fixture(autouse=True)
def _no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_a_pod_finds_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_thread(Options(tmp_path, memory=True)) as (_, served):
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", served.host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", served.port)
        token, authority = tmp_path / "pki/token", tmp_path / "pki/ca.crt"
        monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
        monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))

        async def status() -> int:
            async with Client(await read_access(), "test") as client:
                return (await client.ask("GET", "/api/v1/nodes")).status

        assert 200 == asyncio.run(status())


def test_outside_of_a_cluster_one_line_says_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(AccessError, match="give --kubeconfig or set KUBECONFIG"):
        asyncio.run(read_access())
