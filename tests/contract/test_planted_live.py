"""What explanations say works on a cluster; `make long ROWS=planted` tries two hundred."""

import subprocess
import sys

import pytest


@pytest.mark.more
def test_the_changes_of_explanations_help_on_a_cluster() -> None:
    words = [sys.executable, "-m", "tests.contract.planted_live", "8"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert 0 == ran.returncode, ran.stdout + ran.stderr
