"""Configurations of the shapes that people publish: what Stower does with each.

The files have names and values of their own; their first lines say of what they have the shape.
"""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from stower.cli.main import app

FOLDER = Path(__file__).parent / "public_configurations"
ACCEPTED = (
    "config-map-json", "docs-added-affinity", "docs-default-spread", "docs-most-allocated",
    "docs-no-scoring", "docs-requested-to-capacity-ratio", "every-point", "gpu-share-extender",
    "managed-bin-packing", "tls-extender", "tuning", "two-profiles-load-test",
    "z2jh-user-scheduler",
)  # fmt: skip
# What is told of each profile with foreign plugins, after its name.
FOREIGN = {
    "capacity-scheduling": {"quota": "CapacityScheduling"},
    "coscheduling": {
        "default-scheduler": "Coscheduling; queueSort: PrioritySort replaces Coscheduling"
    },
    "crane-dynamic": {"default-scheduler": "Dynamic"},
    "docs-multi-point": {"default-scheduler": "QuietNodes, RackOrder"},
    "gpu-simulator": {
        "gpu-simulation": "Shared-Gpu, Shared-Gpu-Fragments, Shared-Gpu-Prescore, Simulated; "
        "bind: DefaultBinder replaces Simulated"
    },
    "koordinator": {
        "colocation": "Coscheduling, DefaultPreBind, DeviceShare, ElasticQuota, "
        "LoadAwareScheduling, Reservation; queueSort: PrioritySort replaces Coscheduling"
    },
    "network-aware": {
        "latency": "NetworkOverhead, TopologicalSort; queueSort: PrioritySort replaces "
        "TopologicalSort"
    },
    "numa-topology": {"numa": "NodeResourceTopologyMatch"},
    "openshift-no-scoring": {"default-scheduler": "AzureDiskLimits, EBSLimits"},
    "openshift-secondary-scheduler": {"loaded": "TargetLoadPacking"},
    "qos-aware": {"qos": "QoSAwareNodeResourcesBalancedAllocation, QoSAwareNodeResourcesFit"},
    "scheduler-plugins-chart": {
        "second": "CapacityScheduling, Coscheduling, NodeResourceTopologyMatch, "
        "NodeResourcesAllocatable; queueSort: PrioritySort replaces Coscheduling, "
        "CapacityScheduling, NodeResourceTopologyMatch, NodeResourcesAllocatable"
    },
    "trimaran-risk": {"risk": "LoadVariationRiskBalancing; score: no plugin is left"},
    "virtual-cluster": {"default-scheduler": "TenantTaintToleration, TenantVolumeBinding"},
}
# Those of older versions, each with what its conversion tells.
OLD = {
    "capacity-scheduling": "unknown plugins are kept as they are: CapacityScheduling",
    "crane-dynamic": "unknown plugins are kept as they are: Dynamic",
    "defaults-dump-old": "EBSLimits removed, v1 has no such plugin",
    "docs-most-allocated-old": "replaced by the scoring strategy MostAllocated",
    "gardener-bin-packing": "",
    "gpu-simulator": "v1beta1: the default weights of v1 apply",
    "hard-way": "v1beta1: the default weights of v1 apply",
    "numa-topology": "unknown plugins are kept as they are: NodeResourceTopologyMatch",
    "openshift-secondary-scheduler": "NodeResourcesLeastAllocated replaced by NodeResourcesFit",
    "platform-default-spread": "",
    "storage-extender": "metricsBindAddress: removed, v1 has no such field",
    "z2jh-user-scheduler-old": "leaderElection.resourceLock: endpointsleases replaced by leases",
}
# Those that kube-scheduler refuses as well.
REFUSED = {
    "alpha": 'apiVersion: got "kubescheduler.config.k8s.io/v1alpha1", want ',
    "misplaced-leader-election": 'profiles[0]: got "leaderElection", want a known field',
}
IGNORE = "--ignore-unknown-plugins"


def config(*arguments: str | Path) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    found = CliRunner().invoke(app, ["config", *map(str, arguments)])
    return found.exit_code, found.stdout, found.stderr


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.yaml"


def test_each_file_has_an_expectation_and_says_its_shape() -> None:
    files = {path.stem for path in FOLDER.iterdir()}
    assert files == {*ACCEPTED, *FOREIGN, *OLD, *REFUSED}
    assert len(files) >= 25
    for name in files:
        assert path_of(name).read_text().startswith("# The shape of "), name


@pytest.mark.parametrize("name", ACCEPTED)
def test_configurations_of_default_plugins_are_accepted_as_they_are(name: str) -> None:
    code, out, err = config("check", path_of(name))
    assert (0, True) == (code, out.startswith(f"{path_of(name)}: ok, profiles: ")), err
    assert "unknown plugins" not in err


@pytest.mark.parametrize("name", sorted({*FOREIGN} - {*OLD}))
def test_foreign_plugins_are_refused_without_the_option(name: str) -> None:
    code, out, err = config("check", path_of(name))
    assert (2, "") == (code, out)
    assert err.rstrip().endswith(f"{IGNORE} leaves out plugins that Stower does not know")


@pytest.mark.parametrize("name", sorted({*FOREIGN} - {*OLD}))
def test_foreign_plugins_are_ignored_and_told_with_the_option(name: str) -> None:
    assert FOREIGN[name] == ignored(path_of(name))


def ignored(path: Path) -> dict[str, str]:
    """Returns what a check with the option tells of each profile; the file is accepted."""
    code, _, err = config("check", IGNORE, path)
    assert 0 == code, err
    told = {}
    for line in err.splitlines():
        profile, _, text = line.partition(": unknown plugins are ignored: ")
        rest = text.replace(" (their weights and arguments too)", "")
        told[profile.removeprefix(f"stower: {path}: profile ")] = rest
    return told


@pytest.mark.parametrize("name", sorted(OLD))
def test_older_versions_name_convert_which_makes_them_acceptable(name: str, tmp_path: Path) -> None:
    path, new = path_of(name), tmp_path / "new.yaml"
    code, _, err = config("check", IGNORE, path)
    assert (2, 1) == (code, err.count("`stower config convert` makes it so")), err
    options = [IGNORE] if name in FOREIGN else []
    code, out, err = config("convert", *options, path)
    assert (0, True) == (code, OLD[name] in err), err
    assert "kubescheduler.config.k8s.io/v1" == yaml.safe_load(out)["apiVersion"]
    new.write_text(out)
    if name in FOREIGN:
        assert FOREIGN[name] == ignored(new)
        assert 2 == config("check", new)[0]
    else:
        assert 0 == config("check", new)[0]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_kube_scheduler_refuses_is_refused(name: str) -> None:
    code, _, err = config("check", IGNORE, path_of(name))
    assert (2, True) == (code, REFUSED[name] in err), err
