"""A cluster of one node for tests of verbs, in the process of the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.cli.served import served
from tests.unit.live.fake_api import FakeApi


@pytest.fixture
def fake() -> FakeApi:
    made = FakeApi()
    made.add_node()
    return made


@pytest.fixture
def kubeconfig(fake: FakeApi, tmp_path: Path) -> Iterator[Path]:
    with served(fake, tmp_path / "kubeconfig") as path:
        yield path
