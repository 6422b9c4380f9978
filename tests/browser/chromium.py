"""A browser for tests: the system's Chromium, installed where that can be."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Headless, and without a word to anybody outside.
SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
            "--disable-background-networking", "--disable-component-update",
            "--disable-sync"]  # fmt: skip
INSTALL_SECONDS_MAX = 240


def path_of_chromium() -> str:
    """Where it is. Skips the test where there is none and none can be installed."""
    for name in NAMES:
        if found := shutil.which(name):
            return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        with contextlib.suppress(subprocess.SubprocessError):
            for command in (["update", "-qq"], ["install", "-y", "-qq", "chromium"]):
                subprocess.run(
                    ["apt-get", *command], check=True, capture_output=True,
                    timeout=INSTALL_SECONDS_MAX,
                )  # fmt: skip
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("no Chromium, and none could be installed: apt-get install chromium")
    return found


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Headless, for as long as the block lasts."""
    path = path_of_chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=path, args=SWITCHES)
        try:
            yield opened
        finally:
            opened.close()
