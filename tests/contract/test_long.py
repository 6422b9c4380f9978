"""The API server killed again and again while many write."""

import random
import threading
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tests.contract.servers import Client, Process

pytestmark = pytest.mark.more
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ROUNDS = 6
WRITERS = 4


class Writer:
    """Creates, changes and deletes objects of its own; knows what was answered."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.random = random.Random(number)
        self.known: dict[str, str | None] = {}  # name -> value; None: gone
        self.unsure: set[str] = set()  # asked, but not answered
        self.answers = 0

    def run(self, kubeconfig: Path, enough: threading.Event) -> None:
        """Until the server is gone."""
        client = Client(kubeconfig)
        try:
            while True:
                self._write(client)
                self.answers += 1
                if self.answers > 60:
                    enough.set()
        except (OSError, HTTPException):
            pass
        finally:
            client.close()

    def _write(self, client: Client) -> None:
        name = f"w{self.number}-{self.random.randrange(40)}"
        value = str(self.random.random())
        body: dict[str, Any] = {"metadata": {"name": name}, "data": {"value": value}}
        self.unsure.add(name)
        if self.known.get(name) is None:
            status, _ = client.call("POST", CONFIG_MAPS, body)
        elif self.random.random() < 0.3:
            value = ""
            status, _ = client.call("DELETE", f"{CONFIG_MAPS}/{name}")
        else:
            status, _ = client.call("PUT", f"{CONFIG_MAPS}/{name}", body)
        assert status in (200, 201), status
        self.unsure.discard(name)
        self.known[name] = value or None


def test_nothing_acknowledged_is_lost_over_many_kills(tmp_path: Path) -> None:
    writers = [Writer(n) for n in range(WRITERS)]
    for _ in range(ROUNDS):
        server = Process(tmp_path)
        enough = threading.Event()
        threads = []
        for writer in writers:
            writer.answers = 0
            arguments = (server.state / "kubeconfig", enough)
            threads.append(threading.Thread(target=writer.run, args=arguments))
        for thread in threads:
            thread.start()
        assert enough.wait(60)
        server.kill()
        for thread in threads:
            thread.join()
        server = Process(tmp_path)
        _, listed = server.client.call("GET", CONFIG_MAPS)
        found = {i["metadata"]["name"]: i["data"]["value"] for i in listed["items"]}
        for writer in writers:
            for name in writer.unsure:  # carried out or not, both are right
                writer.known[name] = found.get(name)
            writer.unsure.clear()
            for name, value in writer.known.items():
                assert value == found.get(name), name
        assert 0 == server.stop()
