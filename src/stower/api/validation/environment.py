"""Validates the environment variables of containers.

Source: ValidateEnv and ValidateEnvFrom in pkg/apis/core/validation, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any, Final

from stower.api.errors import FieldError
from stower.api.validation import paths
from stower.api.validation.downward_api import (
    VARIABLE_FIELDS,
    field_reference,
    resource_reference,
)
from stower.api.validation.rules import Object, invalid, missing, named, required
from stower.model import names

SOURCES: Final = (
    "fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef",
)  # fmt: skip
NO_SOURCE: Final = (
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or "
    "`fileKeyRef`"
)
TWO_SOURCES: Final = "may not have more than one field specified at a time"


def variables(path: str, given: Any) -> Iterator[FieldError]:
    """The variables of a container."""
    for i, variable in enumerate(given):
        at = f"{path}[{i}]"
        if not variable.get("name"):
            yield required(f"{at}.name")
        else:
            yield from named(f"{at}.name", variable["name"], names.env_name_faults)
        if "valueFrom" in variable:
            yield from _source(f"{at}.valueFrom", variable)


def _source(path: str, variable: Object) -> Iterator[FieldError]:
    source = variable["valueFrom"]
    if "fieldRef" in source:
        yield from field_reference(f"{path}.fieldRef", source["fieldRef"], VARIABLE_FIELDS)
    if "resourceFieldRef" in source:
        at = f"{path}.resourceFieldRef"
        yield from resource_reference(at, source["resourceFieldRef"], needs_container=False)
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in source:
            yield from _key(f"{path}.{kind}", source[kind])
    if "fileKeyRef" in source:
        yield from _file_key(f"{path}.fileKeyRef", source["fileKeyRef"])
    count = sum(kind in source for kind in SOURCES)
    if not count:
        yield invalid(path, "", NO_SOURCE)
    elif variable.get("value"):
        yield invalid(path, "", "may not be specified when `value` is not empty")
    elif count > 1:
        yield invalid(path, "", TWO_SOURCES)


def _key(path: str, given: Object) -> Iterator[FieldError]:
    yield from named(f"{path}.name", given.get("name", ""), names.subdomain_faults)
    if not given.get("key"):
        yield required(f"{path}.key")
    else:
        yield from named(f"{path}.key", given["key"], names.config_key_faults)


def _file_key(path: str, given: Object) -> Iterator[FieldError]:
    if not given.get("key"):
        yield required(f"{path}.key")
    else:
        yield from named(f"{path}.key", given["key"], names.env_name_faults)
    if not given.get("volumeName"):
        yield required(f"{path}.volumeName")
    else:
        yield from named(f"{path}.volumeName", given["volumeName"], names.label_faults)
    if not given.get("path"):
        yield required(f"{path}.path")
    else:
        yield from paths.no_backsteps(f"{path}.path", given["path"])


def sources(path: str, given: Any) -> Iterator[FieldError]:
    """Config maps and secrets that become variables."""
    for i, source in enumerate(given):
        at = f"{path}[{i}]"
        if source.get("prefix"):
            yield from named(f"{at}.prefix", source["prefix"], names.env_name_faults)
        kinds = [k for k in ("configMapRef", "secretRef") if k in source]
        for kind in kinds:
            name = source[kind].get("name", "")
            if not name:
                yield required(f"{at}.{kind}.name")
            else:
                # As a prefix: a trailing dash is what it is for.
                text = f"{name[:-1]}a" if name.endswith("-") and len(name) > 1 else name
                for fault in names.subdomain_faults(text):
                    yield invalid(f"{at}.{kind}.name", name, fault)
        if not kinds:
            yield invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(kinds) > 1:
            yield invalid(path, "", TWO_SOURCES)


def file_volumes(path: str, spec: Object) -> Iterator[FieldError]:
    """Files of variables lie in volumes of the pod of type emptyDir."""
    volumes = {volume.get("name", ""): volume for volume in spec.get("volumes") or ()}
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for i, container in enumerate(spec.get(field) or ()):
            for j, variable in enumerate(container.get("env") or ()):
                reference = (variable.get("valueFrom") or {}).get("fileKeyRef")
                if reference is None:
                    continue
                at = f"{path}.{field}[{i}].env[{j}].valueFrom.fileKeyRef.volumeName"
                name = reference.get("volumeName", "")
                if name not in volumes:
                    yield missing(at, name)
                elif "emptyDir" not in volumes[name]:
                    yield invalid(at, name, "referenced volume must be of type emptyDir")
