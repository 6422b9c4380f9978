"""Reads kubeconfig files as kubectl reads them: several files become one document, and a context of
the document names a cluster and a user.

Checks the types of the fields that Stower uses. The module neither reads certificates and tokens
nor runs plugins: credentials.py does.
Source: client-go tools/clientcmd loader.go and client_config.go, Kubernetes 1.36.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

Object = dict[str, Any]
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

HOME_FILE: Final = Path("~/.kube/config")
# Of one file. A context with its certificates takes some 6 KB: room for 2,500 clusters.
KUBECONFIG_BYTES_MAX: Final = 16 << 20
SECTIONS: Final = ("clusters", "users", "contexts")
FILE_FIELDS: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
UNSUPPORTED_FIELDS: Final = {
    "proxy-url": "a proxy is not supported; give the server's own address",
    "as": "acting as another user is not supported",
    "as-uid": "acting as another user is not supported",
    "as-groups": "acting as another user is not supported",
    "as-user-extra": "acting as another user is not supported",
    "auth-provider": "authentication providers are not supported; use an exec plugin, such as "
    "kubectl oidc-login for OIDC",
}
TYPE_NAMES: Final = {
    "str": "a string",
    "int": "a number",
    "float": "a number",
    "bool": "true or false",
    "list": "a list",
    "dict": "an object",
}
# Type and name in messages. A value of another type is refused and never shown: it may be secret.
TEXT: Final = (str, "a string (in quotes)")
FIELD_TYPES: Final[dict[str, tuple[type, str]]] = {
    **dict.fromkeys(FILE_FIELDS, TEXT),
    "certificate-authority-data": TEXT,
    "tls-server-name": TEXT,
    "insecure-skip-tls-verify": (bool, "true or false"),
    "client-certificate-data": TEXT,
    "client-key-data": TEXT,
    "token": TEXT,
    "username": TEXT,
    "password": TEXT,
    "exec": (dict, "an object"),
}


class AccessError(Exception):
    """The address or the credentials of a server are missing or wrong. The text is one line with
    the file, the field and what to do, and holds no secrets."""


class NoKubeconfig(AccessError):
    """Neither a kubeconfig nor a pod's environment names a server."""


@dataclass(frozen=True)
class KubeContext:
    """A context of a kubeconfig, resolved to the fields of its cluster and its user."""

    source: str  # the files, for messages
    cluster: Object
    user: Object
    cluster_name: str = ""
    user_name: str = ""

    @property
    def server(self) -> str:
        """The address of the API server, without a slash at its end."""
        return str(self.cluster["server"]).rstrip("/")

    @property
    def server_name(self) -> str:
        """The name that the server's certificate must hold; "": the host of the address."""
        return str(self.cluster.get("tls-server-name") or "")

    @property
    def about_cluster(self) -> str:
        """The start of a message about a field of the cluster."""
        return f"{self.source}: cluster {self.cluster_name!r}"

    @property
    def about_user(self) -> str:
        """The start of a message about a field of the user."""
        return f"{self.source}: user {self.user_name!r}"


def load_kubeconfig(explicit_path: Path | None) -> Object | None:
    """Returns all files as one document; the first file that has an entry of a name wins.

    None: there is no file. Raises AccessError.
    """
    merged: Object = {"current-context": "", **{name: {} for name in SECTIONS}}
    found = []
    for path in _kubeconfig_paths(explicit_path):
        document = _read(path)
        if not document:
            continue
        found.append(str(path))
        merged["current-context"] = merged["current-context"] or document.get("current-context")
        for kind in SECTIONS:
            for entry in document.get(kind) or ():
                if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                    raise AccessError(f"kubeconfig {path}: {kind}: an entry has no name")
                inner = entry.get(kind[:-1]) or {}
                if not isinstance(inner, dict):
                    what = f"{kind} {entry['name']!r}: {kind[:-1]}"
                    raise AccessError(f"kubeconfig {path}: {what}: want an object")
                merged[kind].setdefault(entry["name"], _resolve_local_paths(inner, path.parent))
    if not found:
        if explicit_path is not None:
            raise AccessError(f"--kubeconfig {explicit_path}: the file is empty")
        return None
    merged["where"] = ", ".join(found)
    return merged


def _kubeconfig_paths(explicit_path: Path | None) -> list[Path]:
    """Returns the files to read: that of --kubeconfig, those of KUBECONFIG, or ~/.kube/config."""
    if explicit_path is not None:
        if not explicit_path.exists():
            raise AccessError(f"--kubeconfig {explicit_path}: no such file")
        return [explicit_path]
    named = [Path(p) for p in os.environ.get("KUBECONFIG", "").split(os.pathsep) if p]
    there = [path for path in named if path.exists()]
    if named and not there:
        raise AccessError(f"KUBECONFIG={os.environ['KUBECONFIG']}: no such file")
    home = HOME_FILE.expanduser()
    return there or ([home] if home.is_file() else [])


def read_file(path: Path, bytes_max: int, what: str) -> bytes:
    """Returns the content of a file, which may be a pipe.

    Raises AccessError, which begins with `what` and the path, where the file cannot be read or has
    more than `bytes_max` bytes.
    """
    try:
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise AccessError(f"{what} {path}: {error.strerror or error}") from None
    except ValueError as error:  # a NUL in the path
        raise AccessError(f"{what} {str(path)!r}: {error}") from None
    if len(data) > bytes_max:
        raise AccessError(f"{what} {path}: the file has more than {bytes_max >> 20} MiB")
    return data


def _read(path: Path) -> Object:
    data = read_file(path, KUBECONFIG_BYTES_MAX, "kubeconfig")
    try:
        document = yaml.load(data.decode(), Loader=_Loader)
    except UnicodeDecodeError:
        raise AccessError(f"kubeconfig {path}: the file is not UTF-8 text") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise AccessError(f"kubeconfig {path}: {_yaml_fault(error)}") from None
    if document is None:
        return {}
    lists = isinstance(document, dict) and all(
        isinstance(document.get(kind) or [], list) for kind in SECTIONS
    )
    if not lists:
        raise AccessError(f"kubeconfig {path}: the file is not a kubeconfig")
    return dict(document)


def _yaml_fault(error: Exception) -> str:
    """Returns the place and the fault. PyYAML's own text quotes the line, which may be secret."""
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
    fault = getattr(error, "problem", None) or getattr(error, "reason", None)
    return f"not valid YAML: {place}{fault or type(error).__name__}"


def _resolve_local_paths(entry: Object, folder: Path) -> Object:
    """Returns the entry with its relative paths resolved against the folder of the kubeconfig."""
    made = dict(entry)
    for name in FILE_FIELDS:
        if made.get(name) and isinstance(made[name], str):
            made[name] = str(folder.resolve() / made[name])
    plugin = made.get("exec")
    command = plugin.get("command") if isinstance(plugin, dict) else None
    if isinstance(plugin, dict) and isinstance(command, str) and os.sep in command:
        made["exec"] = {**plugin, "command": str(folder.resolve() / command)}
    return made


def resolve_context(document: Object, context: str) -> KubeContext:
    """Returns the cluster and the user of a context; "" is the current context.

    Raises AccessError.
    """
    where = f"kubeconfig {document['where']}"
    name = context or document["current-context"]
    contexts = document["contexts"]
    if not isinstance(name or "", str):
        raise AccessError(f"{where}: current-context: got {name!r}, want a name")
    if not name and len(contexts) == 1:
        (name,) = contexts
    if not name:
        raise AccessError(
            f"{where}: current-context is not set; choose a context: {_join_names(contexts)}"
        )
    if name not in contexts:
        raise AccessError(
            f"{where}: no context {name!r}; the contexts are: {_join_names(contexts)}"
        )
    chosen = contexts[name]
    parts, names = [], []
    for kind in ("cluster", "user"):
        wanted = chosen.get(kind) or ""
        if not isinstance(wanted, str):
            raise AccessError(f"{where}: context {name!r}: {kind}: got {wanted!r}, want a name")
        known = document[f"{kind}s"]
        if wanted not in known and (wanted or kind == "cluster"):
            text = f"context {name!r} names {kind} {wanted!r}, which the kubeconfig lacks"
            raise AccessError(f"{where}: {text}")
        entry = known.get(wanted, {})
        _check_fields(entry, f"{where}: {kind} {wanted!r}")
        parts.append(entry)
        names.append(wanted)
    if not isinstance(parts[0].get("server"), str) or not parts[0]["server"]:
        raise AccessError(f"{where}: cluster {chosen['cluster']!r} has no server")
    return KubeContext(where, *parts, *names)


def _check_fields(entry: Object, where: str) -> None:
    for field, why in UNSUPPORTED_FIELDS.items():
        if entry.get(field):
            raise AccessError(f"{where}: {field}: {why}")
    for field, (type_, wanted) in FIELD_TYPES.items():
        value = entry.get(field)
        if value is not None and type(value) is not type_:
            found = TYPE_NAMES.get(type(value).__name__, type(value).__name__)
            raise AccessError(f"{where}: {field}: got {found}, want {wanted}")


def _join_names(contexts: Object) -> str:
    return ", ".join(contexts) or "none"
