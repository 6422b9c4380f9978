"""The way to the API server from inside of a pod: its environment, token and authority."""

import asyncio
from pathlib import Path

import pytest

from stower.apiserver.server_process import Options
from stower.live import access as access_module
from stower.live.access import FILE_CHECK_SECONDS, AccessError, read_access
from stower.live.client import Client
from stower.pki.certificates import make_certificates
from tests.contract.servers import in_thread


@pytest.fixture(autouse=True)
def _no_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_a_pod_finds_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with in_thread(Options(tmp_path, memory=True)) as (_, served):
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", served.host)
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", served.port)
        authority = tmp_path / "pki/ca.crt"
        assert (tmp_path / "pki/token").exists()
        monkeypatch.setattr(access_module, "SERVICE_ACCOUNT", tmp_path / "pki")

        now_s = [0.0]

        async def story() -> None:
            access = await read_access(clock=lambda: now_s[0])
            async with Client(access, "test") as client:
                assert 200 == (await client.request("GET", "/api/v1/nodes")).status
                make_certificates(tmp_path / "other", ("127.0.0.1",))
                authority.write_bytes((tmp_path / "other/ca.crt").read_bytes())
                now_s[0] = FILE_CHECK_SECONDS
                refused = await client.request("GET", "/api/v1/nodes")
                assert (0, True) == (refused.status, "certificate is not valid" in refused.message)

        asyncio.run(story())


def test_outside_of_a_cluster_one_line_says_what_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(AccessError, match="give --kubeconfig or set KUBECONFIG"):
        asyncio.run(read_access())
