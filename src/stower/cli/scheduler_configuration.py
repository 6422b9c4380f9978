"""Reads the KubeSchedulerConfiguration of every verb: from a file, a ConfigMap or a recording.

Leaves out unknown plugins where --ignore-unknown-plugins is given.

`stower run` reads its configuration here: this module imports no kinds.
"""

import io
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import msgspec
import typer

from stower.assembly import OF_THE_ENGINE
from stower.cli.configuration_files import InputError
from stower.cli.documents import STDIN, Document, DocumentError, read_documents
from stower.cli.output import note
from stower.cli.plugins import installed_names, plugins_of
from stower.framework.configuration import API_VERSION, KIND
from stower.framework.plugin import ExtensionPoint, implements
from stower.framework.unknown_plugins import UnknownPlugins, without_unknown_plugins
from stower.model.errors import InvalidObject, closest
from stower.model.raw import without_nulls
from stower.plugins import PLUGINS

Object = dict[str, Any]

IgnoreUnknownPlugins = Annotated[
    bool,
    typer.Option(
        "--ignore-unknown-plugins",
        help="Leave out plugins of the configuration that Stower does not know; they are named on "
        "standard error.",
    ),
]

GROUP: Final = API_VERSION.partition("/")[0]
CONFIG_MAP: Final = ("v1", "ConfigMap")
SHOWN_MAX: Final = 10  # names in an error: a Helm chart has some dozens of objects
BUILT_IN: Final = frozenset((*(plugin.name for plugin in PLUGINS), *OF_THE_ENGINE))


def read_scheduler_configuration(
    path: str, ignores_unknown: bool, tells_unknown: bool = True
) -> Object:
    """Returns the configuration of a file, without nulls.

    `ignores_unknown`: leaves out unknown plugins; `tells_unknown`: prints notes about them. Raises
    InputError, also for a document that is not a configuration of this version.
    """
    document = read_configuration_document(path)
    try:
        known, unknown = with_known_plugins(document, ignores_unknown)
    except InvalidObject as error:
        raise InputError(f"{path}: {error}") from None
    for line in unknown_plugin_lines(unknown, ignores_unknown) if tells_unknown else ():
        note(f"{path}: {line}")
    return known


def recorded_configuration(
    document: Mapping[str, Any] | None, ignores_unknown: bool, tells_unknown: bool = True
) -> Object | None:
    """Returns the configuration of a recording; `ignores_unknown`: leaves out unknown plugins;
    `tells_unknown`: prints notes about them. Raises InvalidObject."""
    if document is None or not ignores_unknown:
        return None if document is None else dict(document)
    known, unknown = with_known_plugins(document, ignores_unknown)
    for line in unknown_plugin_lines(unknown, ignores_unknown) if tells_unknown else ():
        note(f"recording: {line}")
    return known


def with_known_plugins(
    document: Mapping[str, Any], ignores_unknown: bool
) -> tuple[Object, list[UnknownPlugins]]:
    """Returns the document without nulls, and the unknown plugins of each profile that has some.

    `ignores_unknown`: the document is without these plugins too. Raises InvalidObject.
    """
    plugins = (*plugins_of(document), *PLUGINS)
    points = {
        point.value: frozenset(plugin.name for plugin in plugins if implements(plugin, point))
        for point in ExtensionPoint
    }
    known, unknown = without_unknown_plugins(document, BUILT_IN, points)
    if unknown:
        names = BUILT_IN | installed_names()
        known, unknown = without_unknown_plugins(document, names, points)
    return (known if ignores_unknown else without_nulls(document)), unknown


def unknown_plugin_lines(unknown: list[UnknownPlugins], ignores_unknown: bool) -> list[str]:
    """Returns one line per profile about its unknown plugins.

    If they are not left out, enabled ones are an error of whoever builds the engine: the lines name
    those that are only disabled or configured, which kube-scheduler accepts.
    """
    if ignores_unknown:
        return [_ignored_line(one) for one in unknown]
    return [_unused_line(one) for one in unknown if one.others]


def _ignored_line(unknown: UnknownPlugins) -> str:
    line = (
        f"profile {unknown.profile}: unknown plugins are ignored: {', '.join(unknown.names)} "
        "(their weights and arguments too)"
    )
    for point, names, default in unknown.replaced:
        line += f"; {point}: {default} replaces {', '.join(names)}"
    for point in unknown.empty:
        line += f"; {point}: no plugin is left"
    return line


def _unused_line(unknown: UnknownPlugins) -> str:
    names = []
    for name in unknown.others:
        close = closest(name, BUILT_IN)
        names.append(f"{name} (did you mean {close}?)" if close else name)
    return (
        f"profile {unknown.profile}: unknown plugins that are only disabled or configured have no "
        f"effect: {', '.join(names)}"
    )


def read_configuration_document(path: str) -> Object:
    """Returns the one KubeSchedulerConfiguration that a file is or holds, decoded, without nulls.

    A ConfigMap holds a configuration as one of its values, in YAML or JSON, under any key. The file
    may have other documents beside. A document of any version is returned. Raises InputError where
    there is no configuration, or more than one.
    """
    try:
        documents = list(read_documents([path]))
    except DocumentError as error:
        raise InputError(str(error)) from None
    found: list[tuple[str, Object]] = []
    others: list[str] = []
    faults: list[InputError] = []
    for document in documents:
        decoded: Object = msgspec.json.decode(document.data)
        is_alone = len(documents) == 1
        if decoded["kind"] == KIND or (is_alone and decoded["apiVersion"].startswith(GROUP + "/")):
            found.append((_place(document, decoded), decoded))
            continue
        others.append(_place(document, decoded))
        if (decoded["apiVersion"], decoded["kind"]) == CONFIG_MAP:
            held, bad = _held_configurations(path, _place(document, decoded), decoded.get("data"))
            found += held
            faults += bad
    if len(found) == 1:
        result: Object = without_nulls(found[0][1])
        return result
    if len(found) > 1:
        places = _shown([place for place, _ in found])
        raise InputError(f"{path}: {len(found)} {KIND}s, want one: {places}")
    if faults:
        raise faults[0]
    if not others:
        raise InputError(f"{path}: no documents, want a {KIND}")
    raise InputError(f"{path}: no {KIND}, want one, alone or in a ConfigMap; got {_shown(others)}")


def _held_configurations(
    path: str, place: str, data: object
) -> tuple[list[tuple[str, Object]], list[InputError]]:
    """Returns the configurations among the values of a ConfigMap, and errors for values that name
    the kind and cannot be read."""
    found: list[tuple[str, Object]] = []
    faults = []
    for key, text in data.items() if isinstance(data, dict) else ():
        if not isinstance(text, str) or KIND not in text:
            continue
        try:
            decoded = [msgspec.json.decode(d.data) for d in _documents_of(text)]
        except DocumentError as error:
            field = f"{error.field}: " if error.field else ""
            faults.append(InputError(f"{path}: {place}, key {key}: {field}{error.message}"))
            continue
        found += [(f"{place} (key {key})", one) for one in decoded if one["kind"] == KIND]
    return found, faults


def _documents_of(text: str) -> Iterator[Document]:
    # A value without apiVersion and kind is an error of read_documents.
    return read_documents([STDIN], stdin=io.BytesIO(text.encode()))


def _place(document: Document, decoded: Object) -> str:
    """Returns kind, namespace and name of an object, or kind and number of one without a name."""
    meta = decoded.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    names = [str(part) for part in (meta.get("namespace"), meta.get("name")) if part]
    if names:
        return f"{decoded['kind']} {'/'.join(names)}"
    return f"{decoded['kind']} (document {document.index})"


def _shown(places: list[str]) -> str:
    more = f" and {len(places) - SHOWN_MAX} more" if len(places) > SHOWN_MAX else ""
    return ", ".join(places[:SHOWN_MAX]) + more
