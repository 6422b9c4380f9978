"""Validates the volumes of a pod, and the specs of PersistentVolumeClaims.

Source: pkg/apis/core/validation (ValidateVolumes, ValidatePersistentVolumeClaimSpec), Kubernetes
1.36. Paths and words are upstream's where they differ from the fields' names.
"""

import re
from collections.abc import Callable, Iterator
from typing import Final

from stower.api.errors import FieldError, unsupported
from stower.api.metadata import annotation_errors
from stower.api.validation import paths
from stower.api.validation.amounts import quantity
from stower.api.validation.downward_api import volume_files
from stower.api.validation.projections import key_to_path, projected
from stower.api.validation.rules import (
    NONE_ALLOWED,
    POSITIVE,
    Allowed,
    Faults,
    Object,
    duplicate,
    forbidden,
    invalid,
    label_selector,
    labels,
    named,
    one_of,
    required,
    too_long,
)
from stower.model import names

HOST_PATH_TYPES: Final = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate",
                          "File", "FileOrCreate", "Socket")  # fmt: skip
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
# Kinds of volumes in the order in which upstream looks at them, by the word of its message about
# more than one.
KINDS: Final = {
    "emptyDir": "emptyDir", "hostPath": "hostPath", "gitRepo": "gitRepo",
    "gcePersistentDisk": "gcePersistentDisk", "awsElasticBlockStore": "awsElasticBlockStore",
    "secret": "secret", "nfs": "nfs", "iscsi": "iscsi", "glusterfs": "glusterfs",
    "flocker": "flocker", "persistentVolumeClaim": "persistentVolumeClaim", "rbd": "rbd",
    "cinder": "cinder", "cephfs": "cephFS", "quobyte": "quobyte", "downwardAPI": "downwarAPI",
    "fc": "fc", "flexVolume": "flexVolume", "configMap": "configMap", "azureFile": "azureFile",
    "vsphereVolume": "vsphereVolume", "photonPersistentDisk": "photonPersistentDisk",
    "portworxVolume": "portworxVolume", "azureDisk": "azureDisk", "storageos": "storageos",
    "projected": "projected", "scaleIO": "scaleIO", "csi": "csi", "ephemeral": "ephemeral",
    "image": "image",
}  # fmt: skip
# The fields that a kind of volume cannot do without.
NEEDED: Final = {
    "awsElasticBlockStore": ("volumeID",),
    "azureDisk": ("diskName", "diskURI"),
    "azureFile": ("secretName", "shareName"),
    "cephfs": ("monitors",),
    "cinder": ("volumeID",),
    "flexVolume": ("driver",),
    "gcePersistentDisk": ("pdName",),
    "gitRepo": ("repository",),
    "glusterfs": ("endpoints", "path"),
    "hostPath": ("path",),
    "nfs": ("server", "path"),
    "persistentVolumeClaim": ("claimName",),
    "photonPersistentDisk": ("pdID",),
    "portworxVolume": ("volumeID",),
    "rbd": ("monitors", "image"),
    "scaleIO": ("gateway", "system", "volumeName"),
    "secret": ("secretName",),
    "configMap": ("name",),
    "vsphereVolume": ("volumePath",),
}
DRIVER_BYTES_MAX: Final = 63
TENANT_BYTES_MAX: Final = 64
PORTAL_BYTES_MAX: Final = 64
BYTE_RANGE: Final = "must be between {} and 255, inclusive"


def volumes(
    path: str, pod: Object, allowed: Allowed = NONE_ALLOWED
) -> tuple[dict[str, Object], Faults]:
    """The well-formed volumes by name, and what is wrong with the others."""
    found: dict[str, Object] = {}
    faults: Faults = []
    given = pod["spec"].get("volumes") or ()
    owner = "" if allowed.of_template else (pod.get("metadata") or {}).get("name") or ""
    created = {f"{owner}-{v.get('name', '')}" for v in given if owner and "ephemeral" in v}
    for i, volume in enumerate(given):
        at = f"{path}[{i}]"
        mine = list(_source(at, volume, owner, allowed))
        name = volume.get("name", "")
        if not name:
            mine.append(required(f"{at}.name"))
        else:
            mine += named(f"{at}.name", name, names.label_faults)
        if name in found:
            mine.append(duplicate(f"{at}.name", name))
        if mine:
            faults += mine
        else:
            found[name] = volume
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName", "")
        if claim in created:
            text = "must not reference a PVC that gets created for an ephemeral volume"
            faults.append(invalid(f"{at}.persistentVolumeClaim.claimName", claim, text))
    return found, faults


def _source(path: str, volume: Object, owner: str, allowed: Allowed) -> Iterator[FieldError]:
    first = ""
    name = volume.get("name", "")
    for kind, word in KINDS.items():
        if kind not in volume:
            continue
        source = volume[kind]
        if first:
            yield forbidden(f"{path}.{word}", "may not specify more than 1 volume type")
        else:
            first = kind
            at = f"{path}.{'persistentDisk' if kind == 'gcePersistentDisk' else kind}"
            for field in NEEDED.get(kind, ()):
                if not source.get(field):
                    yield required(f"{at}.{field}")
            if kind == "image" and not allowed.of_template and not source.get("reference"):
                yield required(f"{at}.reference")
            if kind == "projected":
                yield from projected(at, source, allowed.token_paths)
            elif (rule := RULES.get(kind)) is not None:
                yield from rule(at, source)
            if kind == "ephemeral" and owner and name:
                claim = f"{owner}-{name}"
                for fault in names.subdomain_faults(claim):
                    yield invalid(f"{path}.name", name, f'PVC name "{claim}": {fault}')
        if kind == "iscsi" and "initiatorName" in source:
            if len(f"{name}:{source.get('targetPortal', '')}") > PORTAL_BYTES_MAX:
                text = (
                    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 "
                    "characters if iscsi.initiatorName is specified."
                )
                yield invalid(f"{path}.name", name, text)
    if not first:
        yield required(path, "must specify a volume type")


def _empty_dir(path: str, source: Object) -> Iterator[FieldError]:
    if "sizeLimit" in source and quantity(source["sizeLimit"]).sign < 0:
        yield forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")


def _host_path(path: str, source: Object) -> Iterator[FieldError]:
    if not source.get("path"):
        return
    yield from paths.no_backsteps(f"{path}.path", source["path"])
    if source.get("type", "") not in HOST_PATH_TYPES:
        yield unsupported(f"{path}.type", source["type"], HOST_PATH_TYPES)


def _git(path: str, source: Object) -> Faults:
    return paths.local(f"{path}.directory", source.get("directory", ""))


def _disk(path: str, source: Object) -> Iterator[FieldError]:
    partition = source.get("partition", 0)
    if not 0 <= partition <= 255:
        yield invalid(f"{path}.partition", partition, BYTE_RANGE.format(1))


def _keys(path: str, source: Object) -> Iterator[FieldError]:
    """A secret or a config map."""
    yield from paths.mode(f"{path}.defaultMode", source.get("defaultMode"))
    for i, item in enumerate(source.get("items") or ()):
        yield from key_to_path(f"{path}.items[{i}]", item)


def _nfs(path: str, source: Object) -> Iterator[FieldError]:
    if not source.get("path", "").startswith("/"):
        yield invalid(f"{path}.path", source.get("path", ""), "must be an absolute path")


_NAMES_OF_DISKS: Final = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([A-Za-z0-9-.]+)(:[^,;*&$|\s]+)\Z", re.ASCII),
    "eui": re.compile(r"eui.[A-Za-z0-9]{16}\Z"),
    "naa": re.compile(r"naa.[A-Za-z0-9]{32}\Z"),
}


def _iscsi_name(path: str, name: str) -> Faults:
    pattern = _NAMES_OF_DISKS.get(name[:3])
    if pattern is None:
        return [invalid(path, name, "must be valid format starting with iqn, eui, or naa")]
    match = pattern.search(name) if name.startswith("iqn") else pattern.match(name)
    return [] if match else [invalid(path, name, "must be valid format")]


def _iscsi(path: str, source: Object) -> Iterator[FieldError]:
    if not source.get("targetPortal"):
        yield required(f"{path}.targetPortal")
    if not source.get("iqn"):
        yield required(f"{path}.iqn")
    else:
        yield from _iscsi_name(f"{path}.iqn", source["iqn"])
    lun = source.get("lun", 0)
    if not 0 <= lun <= 255:
        yield invalid(f"{path}.lun", lun, BYTE_RANGE.format(0))
    secret = source.get("chapAuthDiscovery") or source.get("chapAuthSession")
    if secret and "secretRef" not in source:
        yield required(f"{path}.secretRef")
    if "initiatorName" in source:
        yield from _iscsi_name(f"{path}.initiatorname", source["initiatorName"])


def _fibre_channel(path: str, source: Object) -> Iterator[FieldError]:
    targets, ids = source.get("targetWWNs"), source.get("wwids")
    if not targets and not ids:
        text = "must specify either targetWWNs or wwids, but not both"
        yield required(f"{path}.targetWWNs", text)
    if targets and ids:
        text = "targetWWNs and wwids can not be specified simultaneously"
        yield invalid(f"{path}.targetWWNs", targets, text)
    if targets:
        if "lun" not in source:
            yield required(f"{path}.lun", "lun is required if targetWWNs is specified")
        elif not 0 <= source["lun"] <= 255:
            yield invalid(f"{path}.lun", source["lun"], BYTE_RANGE.format(0))


_HOST_PORT: Final = re.compile(r"([^:\[\]]*|\[[^\[\]]*\]):[^:\[\]]*\Z")


def _quobyte(path: str, source: Object) -> Iterator[FieldError]:
    pairs = "must be a host:port pair or multiple pairs separated by commas"
    registry = source.get("registry", "")
    if not registry:
        yield required(f"{path}.registry", pairs)
    elif len(source.get("tenant", "")) > TENANT_BYTES_MAX:
        text = "must be a UUID and may not exceed a length of 64 characters"
        yield required(f"{path}.tenant", text)
    else:
        for pair in registry.split(","):
            if not _HOST_PORT.match(pair):
                yield invalid(f"{path}.registry", registry, pairs)
    if not source.get("volume"):
        yield required(f"{path}.volume")


def _flocker(path: str, source: Object) -> Iterator[FieldError]:
    name, uid = source.get("datasetName", ""), source.get("datasetUUID")
    if not name and not uid:
        yield required(path, "one of datasetName and datasetUUID is required")
    if name and uid:
        text = "datasetName and datasetUUID can not be specified simultaneously"
        yield invalid(path, "resource", text)
    if "/" in name:
        yield invalid(f"{path}.datasetName", name, "must not contain '/'")


def _secret_reference(path: str, source: Object) -> Iterator[FieldError]:
    if "secretRef" in source and not source["secretRef"].get("name"):
        yield required(f"{path}.secretRef.name")


def _flex(path: str, source: Object) -> Iterator[FieldError]:
    for key in source.get("options") or ():
        if f".{key.partition('/')[0].lower()}".endswith((".kubernetes.io", ".k8s.io")):
            text = "kubernetes.io and k8s.io namespaces are reserved"
            yield invalid(f"{path}.options[{key}]", key, text)


def _azure_disk(path: str, source: Object) -> Iterator[FieldError]:
    caching, kind = source.get("cachingMode"), source.get("kind")
    modes, kinds = ("None", "ReadOnly", "ReadWrite"), ("Dedicated", "Managed", "Shared")
    if caching is not None and caching not in modes:
        yield unsupported(f"{path}.cachingMode", caching, modes)
    if kind is None:
        return
    if kind not in kinds:
        yield unsupported(f"{path}.kind", kind, kinds)
    uri = source.get("diskURI", "")
    start, form = (
        "https://",
        ("https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"),
    )
    if kind == "Managed":
        start, form = (
            "/subscriptions/",
            (
                "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/"
                "disks/{disk-id}"
            ),
        )
    if not uri.startswith(start):
        yield unsupported(f"{path}.diskURI", uri, (form,))


def _storage_os(path: str, source: Object) -> Iterator[FieldError]:
    if not source.get("volumeName"):
        yield required(f"{path}.volumeName")
    for field in ("volumeName", "volumeNamespace"):
        if source.get(field):
            yield from named(f"{path}.{field}", source[field], names.label_faults)
    yield from _secret_reference(path, source)


def _csi(path: str, source: Object) -> Iterator[FieldError]:
    driver = source.get("driver", "")
    if not driver:
        yield required(f"{path}.driver")
    else:
        if len(driver) > DRIVER_BYTES_MAX:
            yield too_long(f"{path}.driver", DRIVER_BYTES_MAX)
        for fault in names.subdomain_faults(driver.lower()):
            yield invalid(f"{path}.driver", driver, fault)
    secret = source.get("nodePublishSecretRef")
    if secret is not None and not secret.get("name"):
        yield required(f"{path}.nodePublishSecretRef.name")
    elif secret is not None:
        yield from named(f"{path}.name", secret["name"], names.subdomain_faults)


def _ephemeral(path: str, source: Object) -> Iterator[FieldError]:
    template = source.get("volumeClaimTemplate")
    at = f"{path}.volumeClaimTemplate"
    if template is None:
        yield required(at)
        return
    meta = template.get("metadata") or {}
    yield from annotation_errors(meta.get("annotations"), f"{at}.metadata.annotations")
    yield from labels(f"{at}.metadata.labels", meta.get("labels"))
    for field, value in meta.items():
        if field not in ("annotations", "labels") and value:
            yield forbidden(f"{at}.metadata.{field}", "cannot be set")
    yield from claim_spec(f"{at}.spec", template.get("spec") or {})


def _image(path: str, source: Object) -> Iterator[FieldError]:
    yield from one_of(f"{path}.pullPolicy", source.get("pullPolicy"), PULL_POLICIES)


Rule = Callable[[str, Object], Iterator[FieldError] | Faults]
RULES: Final[dict[str, Rule]] = {
    "awsElasticBlockStore": _disk,
    "azureDisk": _azure_disk,
    "cinder": _secret_reference,
    "configMap": _keys,
    "csi": _csi,
    "downwardAPI": volume_files,
    "emptyDir": _empty_dir,
    "ephemeral": _ephemeral,
    "fc": _fibre_channel,
    "flexVolume": _flex,
    "flocker": _flocker,
    "gcePersistentDisk": _disk,
    "gitRepo": _git,
    "hostPath": _host_path,
    "image": _image,
    "iscsi": _iscsi,
    "nfs": _nfs,
    "quobyte": _quobyte,
    "secret": _keys,
    "storageos": _storage_os,
}


ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def claim_spec(path: str, spec: Object) -> Iterator[FieldError]:
    """The spec of a PersistentVolumeClaim."""
    modes = spec.get("accessModes") or ()
    if not modes:
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    yield from label_selector(f"{path}.selector", spec.get("selector"))
    for mode in modes:
        if mode not in ACCESS_MODES:
            yield unsupported(f"{path}.accessModes", mode, ACCESS_MODES)
    known = {mode for mode in modes if mode in ACCESS_MODES}
    if "ReadWriteOncePod" in known and len(known) > 1:
        text = "may not use ReadWriteOncePod with other access modes"
        yield forbidden(f"{path}.accessModes", text)
    requests = (spec.get("resources") or {}).get("requests") or {}
    if "storage" not in requests:
        yield required(f"{path}.resources[storage]")
    elif quantity(requests["storage"]).sign <= 0:
        yield invalid(f"{path}.resources[storage]", requests["storage"], POSITIVE)
    for field in ("storageClassName", "volumeAttributesClassName"):
        if field == "volumeAttributesClassName":
            yield from _data_sources(path, spec)
        if spec.get(field):
            yield from named(f"{path}.{field}", spec[field], names.subdomain_faults)


def _data_sources(path: str, spec: Object) -> Iterator[FieldError]:
    """What a claim's volume is made from, and its mode."""
    if spec.get("volumeMode", "Filesystem") not in ("Block", "Filesystem"):
        yield unsupported(f"{path}.volumeMode", spec["volumeMode"], ("Block", "Filesystem"))
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for field, given in (("dataSource", source), ("dataSourceRef", reference)):
        if given is None:
            continue
        at = f"{path}.{field}"
        for name in ("name", "kind"):
            if not given.get(name):
                yield required(f"{at}.{name}")
        group, kind = given.get("apiGroup") or "", given.get("kind", "")
        if not group and kind != "PersistentVolumeClaim":
            text = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
            yield invalid(at, kind, text)
        if group:
            yield from named(f"{at}.apiGroup", group, names.subdomain_faults)
    if source is None or reference is None:
        return
    if reference.get("namespace"):
        text = "may not be specified when dataSourceRef.namespace is specified"
        yield invalid(path, f"{path}.dataSource", text)
    elif any(
        (source.get(field) or "") != (reference.get(field) or "")
        for field in ("apiGroup", "kind", "name")
    ):
        yield invalid(path, f"{path}.dataSource", "must match dataSourceRef")
