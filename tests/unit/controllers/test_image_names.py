"""Names of images mean the same however they are written."""

import pytest

from stower.controllers.image_names import full_name
from tests.unit.controllers.cluster import Cluster, pools

DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ("web", "docker.io/library/web:latest"),
        ("web:1", "docker.io/library/web:1"),
        ("docker.io/web:1", "docker.io/library/web:1"),
        ("index.docker.io/library/web:1", "docker.io/library/web:1"),
        ("own/web", "docker.io/own/web:latest"),
        ("localhost/web", "localhost/web:latest"),
        ("localhost:5000/web", "localhost:5000/web:latest"),
        ("registry.k8s.io/pause:3.9", "registry.k8s.io/pause:3.9"),
        ("quay.io/a/b/c", "quay.io/a/b/c:latest"),
        (f"web:1@{DIGEST}", f"docker.io/library/web@{DIGEST}"),
        ("", "docker.io/library/:latest"),
    ],
)
def test_full_names(image: str, want: str) -> None:
    assert want == full_name(image)
    assert want == full_name(want)


@pytest.mark.parametrize("declared", ["broken", "docker.io/library/broken:latest"])
def test_a_cluster_file_means_all_names_of_an_image(declared: str) -> None:
    images = [{"name": declared, "pullable": False}, {"name": "docker.io/big", "size": "1Gi"}]
    cluster = Cluster({**pools(1, images=["docker.io/library/there:1"]), "images": images})
    names = ("broken", "broken:latest", "index.docker.io/broken", "broken:1", "there:1", "big")
    for image in names:
        container = {"name": "c", "image": image}
        container["imagePullPolicy"] = "Never" if image == "there:1" else "IfNotPresent"
        meta = {"name": image.replace(":", "-").replace("/", "-")}
        cluster.create("pods", {"metadata": meta, "spec": {"containers": [container]}})
    cluster.advance(5)
    want = {"broken-1", "there-1"}
    assert want == {name for name, phase in cluster.phases().items() if phase == "Running"}
    cluster.advance(6)
    assert "Running" == cluster.phases()["big"]
    listed = cluster.one("nodes", "node-1")["status"]["images"]
    assert {"docker.io/library/there:1": 20 << 20, "broken:1": 20 << 20, "big": 1 << 30} == {
        image["names"][0]: image["sizeBytes"] for image in listed
    }
