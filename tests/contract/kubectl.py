"""kubectl as tests drive it: the one that the project installs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.contract.servers import Client

PROGRAM: Final = str(Path(sys.executable).with_name("kubectl"))


class Kubectl:
    """kubectl with the server's kubeconfig and a home of its own."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.environment = {
            **os.environ, "KUBECONFIG": str(client.kubeconfig), "HOME": str(folder),
        }  # fmt: skip

    def run(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """One invocation."""
        return subprocess.run(
            [PROGRAM, "--request-timeout=20s", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=self.environment,
            timeout=60,
        )

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Its output, if it succeeds."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def file(self, item: Any, name: str = "object.json") -> str:
        """A manifest."""
        path = self.folder / name
        path.write_text(json.dumps(item))
        return str(path)
