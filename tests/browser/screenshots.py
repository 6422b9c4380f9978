"""Pictures of the dashboard for the documents, of a fixed cluster: `make screenshots`."""

import random
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from stower.apiserver.serve import Options
from tests.browser.chromium import browser
from tests.browser.test_dashboard import scheduling
from tests.contract.servers import Client, in_thread, until
from tests.contract.test_live import PODS, bound, condition

NODES: Final = 48
SEED: Final = 7
SIZE: Final = {"width": 1200, "height": 720}
SIZES: Final = (("500m", "1Gi"), ("1", "4Gi"), ("2", "4Gi"), ("250m", "8Gi"))


def fill(client: Client) -> int:
    """Nodes in three zones, users, placeholders, and some that wait; how many pods."""
    chance = random.Random(SEED)
    for number in range(NODES):
        zone = "abc"[number % 3]
        labels = {"topology.kubernetes.io/zone": f"zone-{zone}", "rack": f"rack-{number // 3 % 4}"}
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        node = {"metadata": {"name": f"node-{number + 1}", "labels": labels},
                "status": {"allocatable": amounts}}  # fmt: skip
        assert 201 == client.call("POST", "/api/v1/nodes", node)[0]
    low = {"metadata": {"name": "placeholder"}, "value": -10}
    assert 201 == client.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", low)[0]
    count = 0
    for kind, number, priority in (("web", 180, ""), ("notebook", 160, ""),
                                   ("room", 60, "placeholder"), ("train", 3, "")):  # fmt: skip
        for i in range(number):
            cpu, memory = chance.choice(SIZES)
            cpu = "40" if kind == "train" else cpu
            asks = {"requests": {"cpu": cpu, "memory": memory}}
            spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i", "resources": asks}]}
            spec |= {"priorityClassName": priority} if priority else {}
            pod = {"metadata": {"name": f"{kind}-{i}", "labels": {"app": kind}}, "spec": spec}
            assert 201 == client.call("POST", PODS, pod)[0]
            count += 1
    return count


def main(folder: Path) -> None:
    """Write them."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="stower-pictures-") as made,
        in_thread(Options(Path(made) / "state", memory=True)) as (_, client),
        scheduling(client, Path(made)) as url,
        browser() as chrome,
    ):
        count = fill(client)
        until(client, PODS, lambda o: len(bound(o)) + sum(map(bool, map(condition, o.values())))
              >= count and len(bound(o)) == count - 3)  # fmt: skip
        for name, scheme, where in (
            ("cluster", "light", "#/cluster"), ("cluster-dark", "dark", "#/cluster"),
            ("pod", "light", "#/pod/default/train-0"),
        ):  # fmt: skip
            page = chrome.new_context(viewport=SIZE, color_scheme=scheme).new_page()
            page.goto(url)
            page.wait_for_selector(f"canvas.map[aria-label^='{NODES} nodes']")
            page.evaluate(f"location.hash = '{where}'")
            if name == "pod":
                page.wait_for_selector("td:has-text('Insufficient cpu')")
            page.wait_for_timeout(1_500)
            page.screenshot(path=str(folder / f"{name}.png"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
