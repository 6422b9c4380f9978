"""Reads scripts of simulations with faults from files, and checks them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from stower.assembly import build_engine
from stower.cli.configuration_files import InputError, read_yaml_document
from stower.cli.output import bad_input
from stower.cli.pod_checks import check_amounts, check_pod_amounts, check_tolerations
from stower.framework.profile import Profile
from stower.model.errors import InvalidObject
from stower.model.kinds import Pod, ResourceClaim
from stower.model.raw import to_invalid_object, without_nulls
from stower.sim.configurations import configuration_for, lacking_plugins
from stower.sim.faults import FAULT_BY_NAME
from stower.sim.script import (
    HAPPENINGS_MAX,
    AddBudget,
    AddClaim,
    AddDeviceClass,
    AddDevices,
    AddNode,
    AddPod,
    AddPool,
    AddVm,
    AnyHappening,
    Crash,
    Freeze,
    Script,
)

ACTIVE_MS_MAX: Final = 366 * 86_400_000
SCHEDULERS_MAX: Final = 3  # the first, and those that a fault adds


def read_script(path: Path, configuration: dict[str, Any] | None) -> Script:
    """Returns the script of a file, for schedulers of this configuration, or of the one that the
    script's load needs. Ends the program if the file holds no valid script."""
    try:
        document = without_nulls(read_yaml_document(str(path)))
    except InputError as error:
        raise bad_input(str(error)) from None
    try:
        try:
            script = msgspec.convert(document, Script)
        except msgspec.ValidationError as error:
            raise to_invalid_object(error, document) from None
        _check(script, build_engine(configuration_for(script, configuration)).profiles)
    except InvalidObject as error:
        raise bad_input(f"{path}: {error}") from None
    return script


def _check(script: Script, profiles: Mapping[str, Profile]) -> None:
    """What the types do not say. Raises InvalidObject."""
    if not -(2**63) <= script.seed < 2**63:
        raise InvalidObject("seed", script.seed, "a 64-bit number")
    if not 0 < script.active_ms <= ACTIVE_MS_MAX:
        raise InvalidObject("activeMs", script.active_ms, f"1 to {ACTIVE_MS_MAX}")
    if len(script.happenings) > HAPPENINGS_MAX:
        raise InvalidObject("happenings", len(script.happenings), f"at most {HAPPENINGS_MAX}")
    for i, name in enumerate(script.faults):
        if name not in FAULT_BY_NAME or script.faults.index(name) != i:
            raise InvalidObject(f"faults[{i}]", name, f"one of {', '.join(FAULT_BY_NAME)}, once")
    names = [template.name for template in script.templates]
    for i, template in enumerate(script.templates):
        if not template.name or names.index(template.name) != i:
            raise InvalidObject(f"templates[{i}].name", template.name, "a unique name")
        pod = {"metadata": {}, "spec": template.spec}
        try:
            try:
                read = msgspec.convert(pod, Pod)
            except msgspec.ValidationError as error:
                raise to_invalid_object(error, pod) from None
            check_pod_amounts(read)
            check_tolerations(read)
            if read.spec.scheduler_name not in profiles:
                want = f"one of the profiles: {', '.join(sorted(profiles))}"
                raise InvalidObject("spec.schedulerName", read.spec.scheduler_name, want)
            claim = {"metadata": {}, "spec": template.claim or {}}
            try:
                msgspec.convert(claim, ResourceClaim)
            except msgspec.ValidationError as error:
                fault = to_invalid_object(error, claim)
                path = f"claim.{fault.path.removeprefix('spec.')}"
                raise InvalidObject(path, fault.got, fault.want) from None
        except InvalidObject as error:
            raise InvalidObject(f"templates[{i}].{error.path}", error.got, error.want) from None
    lacking = lacking_plugins(profiles)
    for i, happening in enumerate(script.happenings):
        for part, kind in (("vms", AddVm), ("warm", AddPool)):
            if part in lacking and isinstance(happening, kind):
                want = f"a configuration with {lacking[part]}"
                raise InvalidObject(f"happenings[{i}].do", kind.__struct_config__.tag, want)
        try:
            _check_happening(happening, script.active_ms, names)
        except InvalidObject as error:
            raise InvalidObject(f"happenings[{i}].{error.path}", error.got, error.want) from None


def _check_happening(happening: AnyHappening, active_ms: int, templates: list[str]) -> None:
    if not 0 <= happening.at_ms <= active_ms:
        raise InvalidObject("atMs", happening.at_ms, f"0 to activeMs, {active_ms}")
    for field, name in (("for_ms", "forMs"), ("lasts_ms", "lastsMs")):
        value = getattr(happening, field, 0)
        if not 0 <= value <= ACTIVE_MS_MAX:
            raise InvalidObject(name, value, f"0 to {ACTIVE_MS_MAX}")
    if isinstance(happening, Crash | Freeze):
        if not 0 <= happening.scheduler < SCHEDULERS_MAX:
            want = f"0 to {SCHEDULERS_MAX - 1}"
            raise InvalidObject("scheduler", happening.scheduler, want)
        if happening.for_ms > active_ms - happening.at_ms:
            want = f"at most {active_ms - happening.at_ms}, to end by activeMs"
            raise InvalidObject("forMs", happening.for_ms, want)
    elif isinstance(happening, AddPod) and happening.template not in templates:
        raise InvalidObject("template", happening.template, "the name of one of the templates")
    elif isinstance(happening, AddNode):
        _check_name(happening.node.metadata.name, "node")
        check_amounts(happening.node.status.allocatable, "node.status.allocatable")
        check_amounts(happening.node.status.capacity, "node.status.capacity")
    elif isinstance(happening, AddBudget):
        _check_name(happening.budget.metadata.name, "budget")
    elif isinstance(happening, AddDevices):
        _check_name(happening.slice.metadata.name, "slice")
    elif isinstance(happening, AddDeviceClass):
        _check_name(happening.device_class.metadata.name, "deviceClass")
    elif isinstance(happening, AddClaim):
        _check_name(happening.claim.metadata.name, "claim")


def _check_name(name: str, path: str) -> None:
    if not name:
        raise InvalidObject(f"{path}.metadata.name", name, "a name")
