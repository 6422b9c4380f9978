"""Kubeconfig files as kubectl reads them: several become one, a context names a cluster and a user.

What they hold is turned into credentials elsewhere (access.py).
Source: client-go tools/clientcmd loader.go, Kubernetes 1.36.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

Object = dict[str, Any]
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

HOME_FILE: Final = Path("~/.kube/config")
SECTIONS: Final = ("clusters", "users", "contexts")
FILE_FIELDS: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
UNSUPPORTED_FIELDS: Final = {
    "proxy-url": "a proxy is not supported; give the server's own address",
    "as": "acting as another user is not supported",
    "as-uid": "acting as another user is not supported",
    "as-groups": "acting as another user is not supported",
    "as-user-extra": "acting as another user is not supported",
}


class AccessError(Exception):
    """There is no way to the server; the text says what is wrong and with what."""


class NoKubeconfig(AccessError):
    """Nothing says where a server is."""


@dataclass(frozen=True)
class KubeContext:
    """What one context says."""

    source: str  # for messages
    cluster: Object
    user: Object

    @property
    def server(self) -> str:
        """Its address."""
        return str(self.cluster["server"]).rstrip("/")

    @property
    def server_name(self) -> str:
        """The name in its certificate, where that is not its host."""
        return str(self.cluster.get("tls-server-name") or "")

    def to_kubeconfig(self) -> Object:
        """A kubeconfig with this context alone; a token's file is read now. Raises AccessError."""
        user = dict(self.user)
        if file := user.pop("tokenFile", None):
            try:
                user["token"] = Path(file).read_text(encoding="utf-8").strip()
            except (OSError, ValueError) as error:
                raise AccessError(f"{self.source}: tokenFile {file}: {error}") from None
        if not user.get("token"):
            user.pop("token", None)
        cluster = {k: v for k, v in self.cluster.items() if k != "tls-server-name"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": user}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "current-context": "it",
        }


def load_kubeconfig(explicit_path: Path | None) -> Object | None:
    """All that the files say, the first having the say. None where there is no file.

    Raises AccessError.
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
                    raise AccessError(f"{path}: {kind}: an entry without a name")
                inner = entry.get(kind[:-1]) or {}
                if not isinstance(inner, dict):
                    raise AccessError(f"{path}: {kind} {entry['name']}: no object")
                merged[kind].setdefault(entry["name"], _resolve_local_paths(inner, path.parent))
    if not found:
        if explicit_path is not None:
            raise AccessError(f"--kubeconfig {explicit_path}: it is empty")
        return None
    merged["where"] = ", ".join(found)
    return merged


def _kubeconfig_paths(explicit_path: Path | None) -> list[Path]:
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


def _read(path: Path) -> Object:
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise AccessError(f"kubeconfig {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AccessError(f"kubeconfig {path}: this is no text") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise AccessError(f"kubeconfig {path}: {' '.join(str(error).split())}") from None
    if document is None:
        return {}
    lists = isinstance(document, dict) and all(
        isinstance(document.get(kind) or [], list) for kind in SECTIONS
    )
    if not lists:
        raise AccessError(f"kubeconfig {path}: this is no kubeconfig")
    return dict(document)


def _resolve_local_paths(entry: Object, folder: Path) -> Object:
    """The entry with its files where they are, seen from anywhere."""
    made = dict(entry)
    for name in FILE_FIELDS:
        if made.get(name):
            made[name] = str(folder.resolve() / str(made[name]))
    plugin = made.get("exec")
    if isinstance(plugin, dict) and os.sep in str(plugin.get("command") or ""):
        made["exec"] = {**plugin, "command": str(folder.resolve() / plugin["command"])}
    return made


def resolve_context(document: Object, context: str) -> KubeContext:
    """What the context says, or the current one. Raises AccessError."""
    where = f"kubeconfig {document['where']}"
    name = context or document["current-context"]
    contexts = document["contexts"]
    if not isinstance(name or "", str):
        raise AccessError(f"{where}: current-context: got {name!r}, want a name")
    if not name and len(contexts) == 1:
        (name,) = contexts
    if not name:
        raise AccessError(
            f"{where}: it has no current-context; name one of: {_join_names(contexts)}"
        )
    if name not in contexts:
        raise AccessError(f"{where}: no context {name!r}; there are: {_join_names(contexts)}")
    chosen = contexts[name]
    parts = []
    for kind in ("cluster", "user"):
        wanted = chosen.get(kind) or ""
        if not isinstance(wanted, str):
            raise AccessError(f"{where}: context {name!r}: {kind}: got {wanted!r}, want a name")
        known = document[f"{kind}s"]
        if wanted not in known and (wanted or kind == "cluster"):
            text = f"context {name!r} names {kind} {wanted!r}, which it does not have"
            raise AccessError(f"{where}: {text}")
        parts.append(known.get(wanted, {}))
        for field, why in UNSUPPORTED_FIELDS.items():
            if parts[-1].get(field):
                raise AccessError(f"{where}: {kind} {wanted!r}: {field}: {why}")
    if not isinstance(parts[0].get("server"), str) or not parts[0]["server"]:
        raise AccessError(f"{where}: cluster {chosen['cluster']!r} has no server")
    return KubeContext(where, parts[0], parts[1])


def _join_names(contexts: Object) -> str:
    return ", ".join(contexts) or "none"
