"""Write the RBAC roles of the scheduler: `make_roles.py [FOLDER]`.

One table of rules for the manifests and for the chart; tests compare the table with the requests
that the scheduler makes. The chart also gets copies of definitions and policies, as a chart cannot
read files outside of its folder.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

if not __package__:  # run as a file, from any folder: `tools` is found above it
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.make_crds import FOLDER
from tools.make_crds import files as definitions

Object = dict[str, Any]
CHART: Final = "chart/stower"
READ: Final = "list watch"


class Rule(NamedTuple):
    """Verbs on resources of a group. `why`: a comment; `implied`: asked for by the API server
    itself, and by no request."""

    group: str
    resources: str
    verbs: str
    why: str = ""
    implied: bool = False
    names: tuple[str, ...] = ()


class Part(NamedTuple):
    """The rules of one feature: the file that has them, and the value of the chart that switches
    them on, "" for always. `bound_in`: the value that lists the namespaces in which alone they
    hold; whoever uses the manifest binds them there. `of_maker`: what makes groups asks for it, not
    the scheduler itself."""

    path: str
    name: str
    about: str
    value: str
    rules: tuple[Rule, ...]
    namespaced: bool = False
    bound_in: str = ""
    of_maker: bool = False


PARTS: Final = (
    Part(
        "scheduler/role.yaml", "stower-scheduler",
        "What the scheduler needs in any cluster.", "",
        (
            Rule("", "nodes namespaces services replicationcontrollers", READ),
            Rule("", "pods", f"{READ} delete", "deletes: preemption"),
            Rule("", "pods", "get", "for extenders, which get pods whole"),
            Rule("", "pods/binding", "create"),
            Rule("", "pods/status", "patch", "conditions and nominations"),
            Rule("", "persistentvolumeclaims persistentvolumes", f"{READ} patch",
                 "patches: the volume that a claim gets"),
            Rule("apps", "replicasets statefulsets", READ),
            Rule("policy", "poddisruptionbudgets", READ),
            Rule("storage.k8s.io", "csinodes csidrivers csistoragecapacities storageclasses "
                 "volumeattachments", READ),
            Rule("resource.k8s.io", "resourceclaims", f"{READ} create patch delete",
                 "made and deleted for extended resources; finalizers"),
            Rule("resource.k8s.io", "resourceclaims/status", "patch"),
            Rule("resource.k8s.io", "resourceclaims/binding", "patch update",
                 "from Kubernetes 1.36 on: status.allocation and reservedFor", True),
            Rule("resource.k8s.io", "resourceslices deviceclasses devicetaintrules", READ),
            Rule("apiextensions.k8s.io", "customresourcedefinitions", READ,
                 "to see when optional kinds are installed"),
            Rule("events.k8s.io", "events", "create"),
            Rule("authentication.k8s.io", "tokenreviews", "create", "who asks for its metrics"),
            Rule("authorization.k8s.io", "subjectaccessreviews", "create", "and whether they may"),
        ),
    ),
    Part(
        "scheduler/lease-role.yaml", "stower-scheduler-lease",
        "The Lease of leader election, in the scheduler's own namespace.", "",
        (
            Rule("coordination.k8s.io", "leases", "create"),
            Rule("coordination.k8s.io", "leases", "get update", names=("stower",)),
        ),
        namespaced=True,
    ),
    Part(
        "groups/scheduler-rbac.yaml", "stower-scheduler-groups",
        "What the scheduler needs to place groups of pods together.", "features.groups",
        (
            Rule("scheduling.k8s.io stower.dev", "podgroups compositepodgroups", READ),
            Rule("scheduling.k8s.io stower.dev", "podgroups/status compositepodgroups/status",
                 "patch"),
        ),
    ),
    Part(
        "groups/making/scheduler-rbac.yaml", "stower-scheduler-gangs",
        "What the scheduler needs to make groups for the pods of JobSets and others\n"
        "(--make-groups).", "makeGroups",
        (
            Rule("", "pods", f"{READ} patch", "the label that links a pod to its group"),
            Rule("batch", "jobs", READ),
            Rule("scheduling.k8s.io stower.dev", "podgroups compositepodgroups",
                 f"{READ} create patch delete"),
            Rule("", "events", "create", "what a pod lacks"),
        ),
        of_maker=True,
    ),
    Part(
        "negotiation/scheduler-rbac.yaml", "stower-scheduler-negotiation",
        "What the scheduler needs for pods whose devices are negotiated with drivers.",
        "features.negotiation",
        (
            Rule("stower.dev", "resourceclasses", READ),
            Rule("stower.dev", "podschedulings", f"{READ} create patch delete"),
            Rule("", "pods/finalizers", "update",
                 "a PodScheduling blocks the deletion of its owner in the foreground: asked for "
                 "where OwnerReferencesPermissionEnforcement is on", True),
        ),
    ),
    Part(
        "vms/scheduler-rbac.yaml", "stower-scheduler-vms",
        "What the scheduler needs for virtual machines.", "features.vms",
        (
            Rule("vm.neon.tech", "virtualmachines", f"{READ} patch",
                 "approvals, and what agents ask for: annotations"),
            Rule("vm.neon.tech", "virtualmachinemigrations", f"{READ} create delete"),
        ),
    ),
    Part(
        "warm/scheduler-rbac.yaml", "stower-scheduler-warm",
        "What the scheduler needs for warm pools. Nodes can be left out where no pool has a label\n"
        "for them, nor placement Spread.", "features.warm",
        (
            Rule("stower.dev", "warmpools", READ),
            Rule("stower.dev", "warmpools/status", "patch"),
            Rule("", "nodes", "patch", "labels: images.label, placement Spread"),
        ),
    ),
    Part(
        "warm/placeholders-rbac.yaml", "stower-scheduler-placeholders",
        "To keep the placeholders of pools with a template. Bind it with a RoleBinding in each\n"
        "namespace that has such a pool, to ServiceAccount stower of stower-system.",
        "features.warm",
        (Rule("", "pods", "create"),),
        bound_in="placeholders.namespaces",
    ),
)  # fmt: skip
HEAD: Final = "# Written by tools/make_roles.py.\n"
# Uninstalling a release must not delete all objects of a kind.
KEPT: Final = "metadata:\n  annotations: {helm.sh/resource-policy: keep}\n"


def rule_of(rule: Rule) -> Object:
    """As RBAC has it."""
    found: Object = {
        "apiGroups": rule.group.split(" "),
        "resources": rule.resources.split(),
        "verbs": rule.verbs.split(),
    }
    if rule.names:
        found["resourceNames"] = [*rule.names]
    return found


def _lines(rules: tuple[Rule, ...]) -> Iterator[str]:
    for rule in rules:
        if rule.why:
            yield f"# {rule.why}"
        text = yaml.safe_dump([rule_of(rule)], sort_keys=False, default_flow_style=None, width=200)
        yield from text.rstrip().splitlines()


def _manifest(part: Part) -> str:
    kind = "Role" if part.namespaced else "ClusterRole"
    about = "".join(f"# {line}\n" for line in part.about.splitlines())
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": f"{kind}Binding",
        "metadata": {"name": part.name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": part.name},
        "subjects": [{"kind": "ServiceAccount", "name": "stower", "namespace": "stower-system"}],
    }
    if part.namespaced:
        binding["metadata"]["namespace"] = "stower-system"  # type: ignore[index]
    where = "  namespace: stower-system\n" if part.namespaced else ""
    return (
        f"{HEAD}{about}apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\n"
        f"metadata:\n  name: {part.name}\n{where}rules:\n"
        + "".join(f"{line}\n" for line in _lines(part.rules))
        + ("" if part.bound_in else "---\n" + yaml.safe_dump(binding, sort_keys=False))
    )


def _template() -> str:
    """All of them for the chart: whatever is switched on."""
    texts = [f"{{{{- /* {HEAD.strip('# ').strip()} */}}}}\n"]
    for part in PARTS:
        kind = "Role" if part.namespaced else "ClusterRole"
        name = '{{ include "stower.fullname" $ }}' + part.name.removeprefix("stower-scheduler")
        where = "  namespace: {{ $.Release.Namespace }}\n" if part.namespaced else ""
        rules = "".join(f"{line}\n" for line in _lines(part.rules))
        rules = rules.replace("[stower]", '[{{ include "stower.leaseName" $ | quote }}]')
        labels = '  labels: {{- include "stower.labels" $ | nindent 4 }}\n'
        head = f"---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\n"
        subjects = (
            f"roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: {kind}, name: {name}}}\n"
            'subjects:\n- kind: ServiceAccount\n  name: {{ include "stower.account" $ }}\n'
            "  namespace: {{ $.Release.Namespace }}\n"
        )
        text = f"{head}metadata:\n  name: {name}\n{where}{labels}rules:\n{rules}"
        if part.bound_in:
            head = head.replace(f"kind: {kind}", "kind: RoleBinding")
            text += (
                f"{{{{- range .Values.{part.bound_in} }}}}\n{head}metadata:\n  name: {name}\n"
                f"  namespace: {{{{ . }}}}\n{labels}{subjects}{{{{- end }}}}\n"
            )
        else:
            head = head.replace(f"kind: {kind}", f"kind: {kind}Binding")
            text += f"{head}metadata:\n  name: {name}\n{where}{labels}{subjects}"
        condition = f".Values.{part.value}" if part.value else ""
        texts.append(f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text)
    return "".join(texts)


def files() -> dict[str, str]:
    """The text of each file by its path in the folder."""
    found = {part.path: _manifest(part) for part in PARTS}
    found[f"{CHART}/templates/roles.yaml"] = _template()
    for path, text in definitions().items():
        folder = path.removesuffix(path.rpartition("/")[2]).replace("crds/", "").strip("/")
        name = path.rpartition("/")[2]
        kept = text.replace("metadata:\n", KEPT, 1)
        found[f"{CHART}/files/crds/{folder or 'negotiation'}/{name}"] = kept
    for path in ("negotiation/policy.yaml", "negotiation/driver-rbac.yaml"):
        found[f"{CHART}/files/{path}"] = (FOLDER / path).read_text(encoding="utf-8")
    return found


def main() -> None:
    """Write all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folder", nargs="?", type=Path, default=FOLDER, help="folder to write to (default: deploy)"
    )
    folder: Path = parser.parse_args().folder
    for name, text in files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
