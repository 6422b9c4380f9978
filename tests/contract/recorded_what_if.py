"""Records clusters of `stower up` under drawn loads, and runs each recording without a change: pods
are where they were, but for a few whose place hangs on the time of an answer, which are named.
`python -m tests.contract.recorded_what_if [COUNT]`.

The loads have plain pods, deployments that grow and shrink, pod groups, claims for devices from
templates, nodes that are cordoned, and pods that are deleted.
"""

import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.contract.servers import Client
from tests.contract.test_up import DEPLOYMENTS, OPEN, deployment, stower, up

DEVICES: Final = Path(__file__).parents[2] / "examples" / "devices" / "partition.yaml"
GROUP: Final = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
PODS: Final = "/api/v1/namespaces/default/pods"
SHARE_MAX: Final = 0.02
QUIET_S: Final = 3.0  # for the scheduler to have its say


def gang(client: Client, draw: random.Random, name: str) -> None:
    """A pod group, and as many pods as it wants or one less."""
    wanted = draw.randrange(2, 5)
    policy = {"schedulingPolicy": {"gang": {"minCount": wanted}}}
    client.call("POST", GROUP, {"metadata": {"name": name}, "spec": policy})
    for i in range(wanted - draw.randrange(2)):
        requests = {"cpu": draw.choice(("500m", "1", "2"))}
        container = {"name": "c", "image": "c:1", "resources": {"requests": requests}}
        spec = {"containers": [container], "schedulingGroup": {"podGroupName": name}}
        client.call("POST", PODS, {"metadata": {"name": f"{name}-{i}"}, "spec": spec})


def load(state: Path, client: Client, draw: random.Random, folder: Path) -> None:
    """A drawn load."""
    made = folder / "made.ndjson"
    count = str(draw.randrange(10, 60))
    made.write_text(stower("generate", "--nodes", "0", "--pods", count, "--seed", count)[1])
    stower("load", str(made), "--state", str(state))
    if draw.random() < 0.5:
        stower("load", str(DEVICES), "--state", str(state))
    for i in range(draw.randrange(3)):
        gang(client, draw, f"gang-{i}")
    replicas = draw.randrange(1, 8)
    client.call("POST", DEPLOYMENTS, deployment("web", replicas))
    time.sleep(1)
    scaled = {"spec": {"replicas": draw.randrange(8)}}
    merge = "application/merge-patch+json"
    client.call("PATCH", f"{DEPLOYMENTS}/web", scaled, merge)
    pods = client.call("GET", PODS)[1]["items"]
    for pod in draw.sample(pods, min(len(pods), draw.randrange(4))):
        client.call("DELETE", f"{PODS}/{pod['metadata']['name']}")
    if draw.random() < 0.5:
        nodes = client.call("GET", "/api/v1/nodes")[1]["items"]
        name = draw.choice(nodes)["metadata"]["name"]
        client.call("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}}, merge)
    time.sleep(QUIET_S)


def differences(seed: int) -> tuple[int, list[dict[str, Any]]]:
    """How many pods a recording has, and those that its run has elsewhere than they were."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        state, recording = folder / "state", folder / "run.ndjson.zst"
        client = up(state, "--nodes", str(draw.randrange(2, 8)), "--record", str(recording))
        try:
            load(state, client, draw, folder)
        finally:
            while OPEN:
                OPEN.pop().close()
            stower("down", "--state", str(state))
        code, said, error = stower("what-if", str(recording), "--output", "json")
        assert 0 == code, error
        found = json.loads(said)
        figures = {name: found["before"][name] for name in ("pods", "running", "pending", "lost")}
        print(f"seed {seed}: {figures}, elsewhere {len(found['unlike'])}", flush=True)
        return figures["pods"], found["unlike"]


def main() -> None:
    """Exit code 1: more than SHARE_MAX of the pods were elsewhere, or of one nothing said why."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    pods = unlike = unsaid = 0
    for seed in range(count):
        number, found = differences(seed)
        pods, unlike = pods + number, unlike + len(found)
        unsaid += sum(not one["why"] for one in found)
        for one in found:
            print(
                f"  {one['pod']}: {one['before'] or '-'}, run: {one['after'] or '-'} {one['why']}"
            )
    print(f"{unlike} of {pods} pods of {count} recordings are elsewhere than they were")
    sys.exit(unsaid > 0 or unlike > SHARE_MAX * pods)


if __name__ == "__main__":
    main()
