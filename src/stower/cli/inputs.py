"""Reads and checks manifests, traces, recordings and clusters, and returns the workload of a run.

All input is read and checked before the run starts. Errors state the file, the document, the field,
the value and what is wanted.
"""

import csv
import gzip
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from stower.cli.configuration_files import InputError
from stower.cli.documents import STDIN, Document, DocumentError, read_documents
from stower.cli.parquet import read_parquet
from stower.cli.pod_checks import check_amounts, check_pod_amounts, check_tolerations
from stower.cli.recorded_workload import read_recorded_workload
from stower.cli.text_stream import MIB
from stower.engine.limits import SECOND_NS
from stower.garbage import collect_rarely
from stower.model.defaults import (
    with_claim_defaults,
    with_claim_spec_defaults,
    with_node_defaults,
    with_pod_defaults,
)
from stower.model.errors import InvalidObject
from stower.model.kinds import (
    KIND_BY_NAME,
    KINDS,
    Background,
    Node,
    PersistentVolumeClaim,
    Pod,
    PriorityClass,
    ResourceClaim,
    StorageClass,
)
from stower.model.meta import ObjectMeta
from stower.model.raw import TypeMeta, decode
from stower.model.resources import pod_requests
from stower.model.storage_class import default_class
from stower.record.lines import Engine as Built
from stower.record.reader import is_recording
from stower.sim.claim_lifecycle import (
    TEMPLATE,
    ClaimTemplate,
    ClaimTemplateSpec,
    make_claims,
)
from stower.sim.node_pods import belongs_to_node
from stower.sim.openb import TraceLine, is_node_header, is_pod_header, read_trace, whole_rows
from stower.sim.openb_devices import Machine, Task, read_list
from stower.sim.trace import is_header, read_rows
from stower.sim.workload import ARRIVES, RUN, Arrival, Workload
from stower.state.volumes import has_ephemeral_volumes

if TYPE_CHECKING:
    from stower.cli.ephemeral_claims import ClaimTemplate as VolumeTemplate
    from stower.cli.workload_objects import WorkloadObject

# The files of the OpenB folder that make a whole; the folder holds other lists beside them.
OPENB_NODES: Final = "openb_node_list_all_node.csv"
OPENB_PODS: Final = "openb_pod_list_default.csv"
# Traces have short lines; a longer one is not a trace, and must not be held.
CSV_LINES_MAX: Final = 2_000_000  # a gzip of endless lines must not fill the memory
CSV_LINE_LENGTH_MAX: Final = 65_536
_KUBECONFIG: Final = re.compile(
    rb"""(?:^|[{,])\s*"?kind"?\s*:\s*["']?Config["']?\s*(?:[,}#]|$)""", re.MULTILINE
)
TABLES: Final = (".csv", ".csv.gz", ".parquet")
WORKLOAD_VERSIONS: Final = {  # of kinds whose controllers create pods
    "Deployment": "apps/v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1", "Job": "batch/v1", "CronJob": "batch/v1",
}  # fmt: skip
HELM_HOOK: Final = "helm.sh/hook"
HELM_TEST: Final = "helm test"
SECONDS_MAX: Final = 1e9  # some thirty years
KINDS_READ: Final = {**KIND_BY_NAME, (TEMPLATE.api_version, TEMPLATE.name): TEMPLATE}


class LoadedWorkload(msgspec.Struct):
    """A workload, all documents in their order, and what was left out, counted by kind.

    With each document go its kind and key; both are "" where it is of no kind that is read.
    """

    workload: Workload
    documents: list[tuple[str, str, bytes]]
    skipped: dict[str, int]
    built: Built | None = None
    """How the engine of a recording was built."""
    classes: Mapping[str, PriorityClass] = {}
    templates: Mapping[str, ClaimTemplate] = {}
    owners: Sequence["WorkloadObject"] = ()
    created: Mapping[str, int] = {}
    """How many pods were created for workload objects, by kind of these."""
    recorded_nodes: Mapping[str, str] = {}
    """Of a recording, by uid: the node that each pod had last, "" for none."""


class _Reader:
    """Collects objects one by one, refusing what cannot be."""

    def __init__(self, beside: LoadedWorkload | None = None) -> None:
        self.nodes: list[Node] = []
        self.pods: list[tuple[Pod, float | None, float | None, str]] = []
        self.classes: dict[str, PriorityClass] = dict(beside.classes if beside else {})
        self.related: list[Background] = []
        self.templates: dict[str, ClaimTemplate] = dict(beside.templates if beside else {})
        self.documents: list[tuple[str, str, bytes]] = []
        self.skipped: dict[str, int] = {}
        self.sources: dict[tuple[str, str], str] = {}
        self.owners: list[WorkloadObject] = []
        self.makes_claims = True  # where no controller does
        self._claim_keys = set[str]()
        self._volume_templates: dict[str, Mapping[str, VolumeTemplate]] = {}  # by pod and volume
        self._beside = beside
        for owner in beside.owners if beside else ():
            self.sources[owner.key] = owner.where

    def take(
        self,
        where: str,
        data: bytes,
        created_s: float | None = None,
        deleted_s: float | None = None,
    ) -> None:
        """One object. `where` is the file and document that it came from."""
        try:
            self._take(where, data, created_s, deleted_s)
        except InvalidObject as error:
            raise InputError(f"{where}: {error}") from None

    def _take(
        self, where: str, data: bytes, created_s: float | None, deleted_s: float | None
    ) -> None:
        meta = decode(data, TypeMeta)
        kind = KINDS_READ.get((meta.api_version, meta.kind))
        is_test = _is_helm_test(data)
        if not is_test and WORKLOAD_VERSIONS.get(meta.kind) == meta.api_version:
            self._take_owner(where, data, meta)
            if kind is None:
                return
        if kind is None or is_test:
            name = f"{meta.kind} ({HELM_TEST if is_test else meta.api_version})"
            self.skipped[name] = self.skipped.get(name, 0) + 1
            self.documents.append(("", "", data))
            return
        obj: Any = decode(data, kind.view)
        name = obj.metadata.name
        if not name:
            raise InvalidObject("metadata.name", name, "a name")
        namespace = (obj.metadata.namespace or "default") if kind.namespaced else ""
        key = (kind.name, f"{namespace}/{name}" if namespace else name)
        self._take_name(where, key)
        self.documents.append((*key, data))
        if isinstance(obj, Node):
            check_amounts(obj.status.allocatable, "status.allocatable")
            check_amounts(obj.status.capacity, "status.capacity")
            self.nodes.append(with_node_defaults(obj, uid=f"node/{name}"))
        elif isinstance(obj, Pod):
            check_pod_amounts(obj)
            check_tolerations(obj)
            status = obj.status
            if status.container_statuses or status.init_container_statuses or status.resources:
                pod_requests(obj, use_status=True)
            seconds_of(obj.metadata.annotations, ARRIVES)
            seconds_of(obj.metadata.annotations, RUN)
            self.pods.append((obj, created_s, deleted_s, where))
            if has_ephemeral_volumes(obj):
                from stower.cli.ephemeral_claims import ephemeral_templates

                self._volume_templates[key[1]] = ephemeral_templates(data)
        elif isinstance(obj, PriorityClass):
            self.classes[name] = obj
        elif isinstance(obj, ClaimTemplate):
            spec = ClaimTemplateSpec(with_claim_spec_defaults(obj.spec.spec))
            self.templates[key[1]] = msgspec.structs.replace(obj, spec=spec)
            _check(where, meta, self.templates[key[1]], data)
        else:
            uid = obj.metadata.uid or f"{kind.name}/{key[1]}"
            named = msgspec.structs.replace(obj.metadata, namespace=namespace, uid=uid)
            if isinstance(obj, ResourceClaim):
                obj = with_claim_defaults(obj, uid)
            _check(where, meta, obj, data)
            self.related.append(msgspec.structs.replace(obj, metadata=named))

    def _make_claims(self, where: str, pod: Pod) -> Pod:
        """Makes the claims that the pod lacks; returns the pod, which names them."""
        pod, claims = make_claims(pod, self.templates, self._claim_keys)
        for claim in claims:
            self._take_name(where, (ResourceClaim.__name__, claim.metadata.key))
        self.related += (*claims, *self._volume_claims(pod))
        return pod

    def _volume_claims(self, pod: Pod) -> list[PersistentVolumeClaim]:
        """Makes the claims of the pod's ephemeral volumes, as far as there are none."""
        if not has_ephemeral_volumes(pod):
            return []
        from stower.cli.ephemeral_claims import ephemeral_claims

        templates = self._volume_templates[pod.key]
        return [*ephemeral_claims(pod, templates, self.sources, self._default_class)]

    @cached_property
    def _default_class(self) -> str:
        """The default StorageClass, once everything has been taken in; "" for none."""
        beside = self._beside.workload.related if self._beside is not None else ()
        metas = (o.metadata for o in (*beside, *self.related) if isinstance(o, StorageClass))
        return default_class(
            (meta.name, meta.creation_timestamp or "", meta.annotations) for meta in metas
        )

    def _take_name(self, where: str, key: tuple[str, str]) -> None:
        if key in self.sources:
            want = f"a name that is not in {self.sources[key]} already"
            raise InvalidObject("metadata.name", key[1], want)
        self.sources[key] = where
        if key[0] == ResourceClaim.__name__:
            self._claim_keys.add(key[1])

    def _take_owner(self, where: str, data: bytes, meta: TypeMeta) -> None:
        """Takes in an object whose controller creates pods."""
        from stower.cli.workload_objects import read_workload_object  # loads the API's tables

        found = read_workload_object(where, data, meta.api_version, meta.kind)
        self.owners.append(found)
        if (meta.api_version, meta.kind) not in KINDS_READ:
            self._take_name(where, found.key)
            self.documents.append((*found.key, data))

    def _create_pods(self) -> Counter[str]:
        """Takes in the pods that workload objects lack; returns their number by kind of these."""
        counts = Counter[str]()
        daemon_sets = self._beside.owners if self._beside is not None else ()
        if not self.owners and not daemon_sets:
            return counts
        from stower.cli.workload_pods import create_daemon_pods, create_missing

        pods = [pod for pod, *_ in self.pods]
        there = self._beside.workload if self._beside is not None else None
        nodes = [*(there.nodes if there is not None else ()), *self.nodes]
        made = create_missing(self.owners, nodes, pods, self._default_class, there is not None)
        given = len(self.pods)
        for owner, data in (*made, *create_daemon_pods(daemon_sets, self.nodes)):
            self.take(f"{owner.where}: {' '.join(owner.key)}", data)
            counts[owner.key[0]] += decode(data, TypeMeta).kind == "Pod"
        first = [entry for entry in self.pods[given:] if belongs_to_node(entry[0])]
        rest = [entry for entry in self.pods[given:] if not belongs_to_node(entry[0])]
        # Nodes have the pods of DaemonSets before other pods come.
        self.pods = [*first, *self.pods[:given], *rest]
        return +counts

    def build(self) -> LoadedWorkload:
        """Everything together, defaults filled in."""
        created = self._create_pods()
        placed: list[Pod] = []
        arrivals: list[Arrival] = []
        uids: dict[str, str] = {}
        is_trace = False
        for raw, created_s, deleted_s, where in self.pods:
            namespace = raw.metadata.namespace or "default"
            try:
                pod = with_pod_defaults(raw, self.classes, f"{namespace}/{raw.metadata.name}")
            except KeyError as error:
                want = "a PriorityClass among the inputs, or a system one"
                fault = InvalidObject("spec.priorityClassName", error.args[0], want)
                raise InputError(f"{where}: {fault}") from None
            uid = pod.metadata.uid
            if uid in uids:
                fault = InvalidObject("metadata.uid", uid, f"a uid other than that of {uids[uid]}")
                raise InputError(f"{where}: {fault}")
            uids[uid] = pod.key
            if pod.is_terminal:
                continue
            if self.makes_claims:
                pod = self._make_claims(where, pod)
            if pod.spec.node_name:
                placed.append(pod)
                continue
            is_trace |= created_s is not None
            ends_ns = None if deleted_s is None else round(deleted_s * SECOND_NS)
            lasts_ns = None
            if created_s is not None:
                lasts_s = seconds_of(pod.metadata.annotations, RUN)
                lasts_ns = None if lasts_s is None else round(lasts_s * SECOND_NS)
            arrivals.append(Arrival(pod, round((created_s or 0) * SECOND_NS), ends_ns, lasts_ns))
        workload = Workload(
            tuple(self.nodes), tuple(placed), tuple(arrivals), not is_trace, tuple(self.related),
            template_keys=frozenset(self.templates),
        )  # fmt: skip
        return LoadedWorkload(
            workload, self.documents, self.skipped, None, self.classes, self.templates,
            self.owners, created,
        )  # fmt: skip


def _is_helm_test(data: bytes) -> bool:
    """Returns whether `helm test` alone creates the object, and `helm install` does not."""
    if HELM_HOOK.encode() not in data:
        return False
    hooks = (decode(data, _AnnotatedObject).metadata.annotations or {}).get(HELM_HOOK, "")
    return any(hook.strip().startswith("test") for hook in hooks.split(","))


def _check(where: str, meta: TypeMeta, obj: object, data: bytes) -> None:
    from stower.cli.device_checks import device_fault  # loads the API's tables

    fault = device_fault(meta.api_version, meta.kind, obj, data)
    if fault:
        raise InputError(f"{where}: {fault}")


class ClusterError(InputError):
    """The cluster cannot be asked."""


def load(
    inputs: Sequence[str],
    at_end: bool = False,
    beside: LoadedWorkload | None = None,
    nodeless: bool = False,
) -> LoadedWorkload:
    """Read manifests, traces, a cluster through its kubeconfig, or a recording; `at_end`: that as
    it stood at its end, and not from its beginning. `beside`: the cluster to which
    the objects come. Then, and with `nodeless`, they may be of any kind. Raises InputError."""
    recordings = [name for name in inputs if _is_recording(name)]
    if recordings:
        if len(inputs) > 1:
            raise InputError(f"{recordings[0]}: a recording cannot be combined with other inputs")
        try:
            told = read_recorded_workload(Path(recordings[0]))
        except InvalidObject as error:
            raise InputError(f"{recordings[0]}: {error}") from None
        work = told.end if at_end else told.history
        return LoadedWorkload(work, [], {}, told.built, recorded_nodes=told.nodes)
    collect_rarely()
    reader = _Reader(beside)
    for found in raw_objects(inputs):
        reader.take(found.where, found.data, found.created_s, found.deleted_s)
    is_anything = (beside is not None or nodeless) and (reader.related or reader.classes)
    if not (reader.nodes or reader.pods or reader.owners or is_anything):
        what = f" ({_join_counts(reader.skipped)} ignored)" if reader.skipped else ""
        raise InputError(f"{', '.join(inputs)}: no nodes and no pods{what}")
    return reader.build()


def load_cluster(kubeconfig: Path | None, context: str) -> LoadedWorkload:
    """What a cluster's API server says. Raises InputError."""
    collect_rarely()
    reader = _Reader()
    reader.makes_claims = False
    objects, unseen = _ask_cluster(kubeconfig, context)
    for found in objects:
        reader.take(found.where, found.data)
    loaded = reader.build()
    if TEMPLATE.name in unseen:
        loaded.workload = msgspec.structs.replace(loaded.workload, template_keys=None)
    return loaded


def _ask_cluster(kubeconfig: Path | None, context: str) -> tuple[list["RawObject"], set[str]]:
    from stower.cli.kube import KubeError, cluster_objects  # the client takes a while to import

    try:
        found, unseen = cluster_objects(kubeconfig, context)
    except KubeError as error:
        raise ClusterError(str(error)) from None
    return [RawObject(where, data) for where, data in found], unseen


def _arrival_s(data: bytes) -> float | None:
    """When the pod says that it comes."""
    if ARRIVES.encode() not in data:
        return None
    try:
        meta = decode(data, _AnnotatedObject).metadata
        return seconds_of(meta.annotations, ARRIVES)
    except InvalidObject:
        return None  # whoever takes the object says what is wrong with it


class _AnnotatedObject(msgspec.Struct):
    metadata: ObjectMeta


def seconds_of(annotations: dict[str, str] | None, name: str) -> float | None:
    """A time in an annotation. Raises InvalidObject for one that is none."""
    text = (annotations or {}).get(name)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= SECONDS_MAX:
        raise InvalidObject(f"metadata.annotations[{name}]", text, "seconds, such as 12.5")
    return seconds


def _is_kubeconfig_file(name: str) -> bool:
    """Whether it is a kubeconfig whose name has no ending, as they are called."""
    path = Path(name)
    if path.suffix or not os.path.isfile(name):
        return False
    try:
        with open(path, "rb") as file:
            return _KUBECONFIG.search(file.read(MIB)) is not None
    except OSError:
        return False  # whoever reads it says why


def _is_kubeconfig(data: bytes) -> bool:
    """Whether the document says where a cluster is."""
    if b"Config" not in data:
        return False
    try:
        meta = decode(data, TypeMeta)
    except InvalidObject:
        return False
    return (meta.api_version, meta.kind) == ("v1", "Config")


def _is_recording(name: str) -> bool:
    try:
        return os.path.isfile(name) and is_recording(Path(name))
    except OSError:
        return False  # whoever reads it says why


class RawObject(msgspec.Struct, frozen=True):
    """An object as it was given, where it stood, and its times in a trace, in seconds."""

    where: str
    data: bytes
    created_s: float | None = None
    deleted_s: float | None = None


def raw_objects(inputs: Sequence[str]) -> Iterator[RawObject]:
    """Objects of any kind, from manifests and traces, in their order. Raises InputError."""
    if list(inputs).count(STDIN) > 1:
        raise InputError("stdin: can be read only once")
    for name in inputs:
        if _is_kubeconfig_file(name):
            yield from _ask_cluster(Path(name), "")[0]
            continue
        trace_files = _trace_files(name)
        for path in trace_files:
            yield from _trace_objects(path)
        if not trace_files:
            try:
                for document in read_documents([name]):
                    where, data = _describe_position(document), document.data
                    if _is_kubeconfig(data):
                        yield from _ask_cluster(Path(name), "")[0]
                    else:
                        yield RawObject(where, data, _arrival_s(data))
            except DocumentError as error:
                raise InputError(str(error)) from None


def load_generated(documents: Iterator[bytes]) -> LoadedWorkload:
    """A generated cluster takes the way of a real one."""
    reader = _Reader()
    for i, data in enumerate(documents, 1):
        reader.take(f"generated: document {i}", data, _arrival_s(data))
    return reader.build()


def _describe_position(document: Document) -> str:
    item = f", item {document.item}" if document.item is not None else ""
    return f"{document.source}: document {document.index}{item}"


def _trace_files(name: str) -> list[Path]:
    """The trace files behind an input: itself, or a folder's nodes and pods."""
    path = Path(name)
    if os.path.isdir(name):  # unlike Path.is_dir, never raises
        found = [
            next((p for p in (path / stem, path / f"{stem}.gz") if os.path.isfile(p)), None)
            for stem in (OPENB_NODES, OPENB_PODS)
        ]
        if all(found):
            return [p for p in found if p is not None]
        tables = sorted(entry for entry in os.listdir(name) if entry.endswith(TABLES))
        return [path / entry for entry in tables if os.path.isfile(path / entry)]
    return [path] if name.endswith(TABLES) else []


def _trace_objects(path: Path) -> Iterator[RawObject]:
    with _faults_of(path):
        for line in _trace_lines(path):
            where = f"{path}: line {line.number}"
            yield RawObject(where, line.data, line.created_s, line.deleted_s)


def trace_list(path: Path) -> tuple[list[Machine], list[Task]]:
    """The nodes or pods of one of OpenB's lists, for GPUs as devices. Raises InputError."""
    with _faults_of(path):
        return read_list(_csv_lines(path))


@contextmanager
def _faults_of(path: Path) -> Iterator[None]:
    """What is wrong with a file becomes an InputError."""
    try:
        yield
    except InvalidObject as error:
        raise InputError(f"{path}: {error}") from None
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, csv.Error) as error:
        raise InputError(f"{path}: {_reason(error)}") from None


def _trace_lines(path: Path) -> Iterator[TraceLine]:
    """The nodes or pods of a table, in whatever format."""
    if path.suffix == ".parquet":
        columns, rows = read_parquet(path)
        if not is_header(columns):
            raise InvalidObject("columns", ", ".join(columns), "a column `node` or `pod`")
        yield from read_rows(columns, rows)
        return
    lines = _csv_lines(path)
    header = next(lines, "")
    if is_node_header(header) or is_pod_header(header):
        yield from read_trace(chain((header,), lines))
        return
    reader = csv.DictReader(chain((header,), lines))
    columns = tuple(reader.fieldnames or ())
    if not is_header(columns):
        want = "the header of an OpenB list, or a column `node` or `pod`"
        raise InvalidObject("line 1", header.strip(), want)
    yield from read_rows(columns, whole_rows(reader, len(columns)))


def _csv_lines(path: Path) -> Iterator[str]:
    """Lines of a trace, none of them long."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as lines:
        number = 0
        while line := lines.readline(CSV_LINE_LENGTH_MAX):
            number += 1
            if number > CSV_LINES_MAX:
                want = f"at most {CSV_LINES_MAX:,} lines"
                raise InvalidObject(f"line {number}", line.strip(), want)
            if len(line) >= CSV_LINE_LENGTH_MAX and not line.endswith("\n"):
                want = f"lines of less than {CSV_LINE_LENGTH_MAX} characters"
                raise InvalidObject(f"line {number}", line[:60], want)
            yield line


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return str(error)


def _join_counts(skipped: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(skipped.items()))


def describe_inputs(loaded: LoadedWorkload) -> list[str]:
    """Returns what to tell of pods that were created and of objects that were not read."""
    found = describe_ignored(loaded.skipped)
    if loaded.created:
        counts = ", ".join(f"{n} of {kind}s" for kind, n in sorted(loaded.created.items()))
        found.insert(0, f"pods created as their controllers would: {counts}")
    return found


def describe_ignored(skipped: dict[str, int]) -> list[str]:
    """What to tell of objects that were not read, by kind and version."""
    read = {(kind.name, kind.api_version.partition("/")[0]): kind.api_version for kind in KINDS}
    other: dict[str, int] = {}
    found = []
    for name, count in skipped.items():
        kind, _, version = name.partition(" ")
        wanted = read.get(
            (kind, version.strip("()").partition("/")[0]), WORKLOAD_VERSIONS.get(kind)
        )
        if wanted is None:
            other[name] = count
        else:
            found.append(f"ignored, want {wanted}: {count} {name}")
    tests = {name: other.pop(name) for name in [*other] if name.endswith(f"({HELM_TEST})")}
    if tests:
        found.append(f"ignored, as helm install does not create them: {_join_counts(tests)}")
    if other:
        found.append(f"ignored, as no decision depends on them: {_join_counts(other)}")
    return found
