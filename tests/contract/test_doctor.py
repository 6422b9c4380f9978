"""`stower doctor`: what it finds on clusters that have all, and on those that lack something."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stower.apiserver.server_process import Options
from tests.contract.faulty import Faults, faulty
from tests.contract.in_process import stower_in_process
from tests.contract.servers import Client, in_thread
from tests.contract.test_live import add_nodes
from tests.contract.test_status_reports import account
from tests.contract.test_up import stower


def findings(*arguments: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Exit code, and by what it is about: state and text."""
    code, said, _ = stower("doctor", "-o", "json", *arguments)
    found: list[dict[str, Any]] = json.loads(said)
    return code, {one["about"]: (one["state"], one["text"]) for one in found}


def as_account(client: Client, token: str, folder: Path) -> Path:
    config = yaml.safe_load(client.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path


def test_on_a_cluster_it_says_what_is_served_and_what_may_be_done(tmp_path: Path) -> None:
    with in_thread(Options(tmp_path / "state", memory=True, by_roles=True)) as (_, client):
        code, found = findings("--kubeconfig", str(client.kubeconfig))
        assert 0 == code
        assert ("note", "the cluster has no nodes") == found["nodes"]
        assert "1.36" in found["cluster"][1]
        assert "ok" == found["devices (ResourceClaims)"][0]
        assert "note" == found["composite groups"][0], "1.36 has none"
        assert ("ok", "granted") == found["right to create pods/binding"]
        add_nodes(client, 2)
        rules = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}]
        path = as_account(client, account(client, "reader", rules), tmp_path)
        code, found = findings("--kubeconfig", str(path))
        assert 1 == code
        assert "ok" == found["right to list nodes"][0]
        state, text = found["right to create pods/binding"]
        assert ("missing", True) == (state, "deploy/scheduler" in text)


def test_a_cluster_that_is_not_there_is_missing_only_where_one_was_named(tmp_path: Path) -> None:
    code, found = findings("--kubeconfig", str(tmp_path / "none"))
    assert (1, "missing") == (code, found["cluster"][0])
    assert "ok" == found["Python"][0]
    code, text, _ = stower_in_process("doctor", "--kubeconfig", str(tmp_path / "none"))
    assert (1, True) == (code, "no such file" in text)


@pytest.mark.parametrize("body", [b"[]", b"null", b"{}", b'{"status": null}', b'{"items": [null]}'])
def test_a_server_that_talks_nonsense_is_told_of_and_no_traceback(
    tmp_path: Path, body: bytes
) -> None:
    with in_thread(Options(tmp_path / "state", memory=True)) as (_, client):
        proxied = tmp_path / "config"

        def answers(method: str, path: str) -> tuple[int, bytes] | None:
            return None if path == "/version" else (201 if method == "POST" else 200, body)

        with faulty(client.kubeconfig, proxied, Faults(answers=answers)):
            code, found = findings("--kubeconfig", str(proxied))
    assert code in (0, 1)
    assert "ok" == found["cluster"][0]
    assert "ok" != found["right to create pods/binding"][0]
    assert "ok" != found["nodes"][0]
