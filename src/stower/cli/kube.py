"""Reads objects from an API server for the verbs, and finds the kubeconfig. All failures are
KubeError, with a text of one line.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import msgspec

from stower.cli.state_folder import STATE, UpError, check_trusted, is_held
from stower.cli.supervisor import (
    CLUSTER,
)
from stower.live.access import AccessError, NoKubeconfig, read_access
from stower.live.client import Client, Response, collection_path
from stower.model.kinds import KINDS, Kind, Node, Pod
from stower.model.raw import TypeMeta

AGENT = "stower"
UNSEEN = (403, 404)


class KubeError(Exception):
    """The server does not answer as it should; the text says how, in one line."""


def kubeconfig_of(given: Path | None, state: Path) -> Path | None:
    """The kubeconfig that was given; that of the directory that was given; KUBECONFIG's; or that
    of the cluster that `stower up` makes where nothing is said.

    None: wherever kubectl would look. Raises KubeError.
    """
    own = state / "kubeconfig"
    if given is not None:
        return given
    if state != STATE and not own.exists():
        raise KubeError(f"--state {state}: there is no cluster; start one with `stower up`")
    if state == STATE and ("KUBECONFIG" in os.environ or not own.exists()):
        return None
    try:
        check_trusted(state)
    except UpError as error:
        raise KubeError(str(error)) from None
    return own


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _NodeStatus(msgspec.Struct, frozen=True):
    conditions: list[_Condition] | None = None


class NodeHealth(msgspec.Struct, frozen=True):
    """What a node says of how it is."""

    status: _NodeStatus | None = None

    @property
    def is_ready(self) -> bool:
        """Whether it takes pods."""
        conditions = (self.status.conditions if self.status is not None else None) or ()
        return any((one.type, one.status) == ("Ready", "True") for one in conditions)


class Kube:
    """An API server."""

    def __init__(self, client: Client, kubeconfig: Path | None = None) -> None:
        self._client = client
        self._kubeconfig = kubeconfig
        self.server = client.access.server

    @staticmethod
    @contextlib.asynccontextmanager
    async def open(kubeconfig: Path | None, context: str = "") -> AsyncIterator["Kube"]:
        """For as long as the block lasts. Raises KubeError."""
        try:
            access = await read_access(kubeconfig, context)
        except NoKubeconfig:
            looked = "no KUBECONFIG, no .stower in this folder, no ~/.kube/config"
            text = f"{looked}: start a cluster with `stower up`, or give --kubeconfig"
            raise KubeError(text) from None
        except AccessError as error:
            raise KubeError(str(error)) from None
        async with Client(access, AGENT) as client:
            yield Kube(client, kubeconfig)

    async def ask(
        self, method: str, path: str, body: bytes | None = None, kind: str = "application/json"
    ) -> Response:
        """One request, whatever the answer. Raises KubeError where there is none."""
        try:
            answer = await self._client.request(method, path, body, kind)
        except AccessError as error:
            raise KubeError(str(error)) from None
        if not answer.status:
            raise KubeError(f"cannot reach {self.server}: {answer.message}{self._hint()}")
        return answer

    def _hint(self) -> str:
        """The way out, where it is a cluster of `stower up` that does not run."""
        state = self._kubeconfig.parent if self._kubeconfig is not None else None
        if state is None or not (state / CLUSTER).exists() or is_held(state):
            return ""
        where = "" if state.name == STATE.name else f" --state {state}"
        return f" (the cluster of {state} does not run; start it with `stower up{where}`)"

    async def get(self, path: str) -> Any:
        """What is there, decoded. Raises KubeError."""
        answer = await self.ask("GET", path)
        if answer.status != 200:
            raise KubeError(f"{self.server}: {answer.status} {answer.message}")
        try:
            return msgspec.json.decode(answer.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            head = " ".join(answer.body[:60].decode("utf-8", "replace").split())
            raise KubeError(
                f"{self.server}{path}: want the response of an API server: {head}"
            ) from None

    async def items(self, path: str) -> list[Any]:
        """All objects of a collection."""
        found: list[Any] = []
        token = ""
        joint = "&" if "?" in path else "?"
        while True:
            page = await self.get(
                f"{path}{joint}limit=1000" + (f"&continue={token}" if token else "")
            )
            found += page["items"]
            token = page["metadata"].get("continue") or ""
            if not token:
                return found

    async def count(self, path: str) -> int:
        """How many objects a collection has."""
        meta = await self.get(f"{path}?limit=1")
        return len(meta["items"]) + int(meta["metadata"].get("remainingItemCount") or 0)

    async def exists(self, path: str) -> bool:
        """Whether there is such an object."""
        return (await self.ask("GET", path)).status == 200


# No scheduler reads it; its controller creates pods on nodes that are added in a what-if.
DAEMON_SET: Final = Kind("apps/v1", "DaemonSet", "daemonsets", True, TypeMeta)


def cluster_objects(
    kubeconfig: Path | None, context: str = ""
) -> tuple[list[tuple[str, bytes]], set[str]]:
    """All objects of a cluster that scheduling reads, each with where it was found; and the kinds
    that are left out, as the server does not serve or show them. Raises KubeError."""
    return asyncio.run(_cluster_objects(kubeconfig, context))


async def _cluster_objects(
    kubeconfig: Path | None, context: str
) -> tuple[list[tuple[str, bytes]], set[str]]:
    from stower.sim.claim_lifecycle import TEMPLATE  # takes time to import

    found, unseen = [], set[str]()
    async with Kube.open(kubeconfig, context) as kube:
        for kind in (*KINDS, DAEMON_SET, TEMPLATE):
            for version in (kind.api_version, *kind.also):
                path = collection_path(kind, version=version)
                answer = await kube.ask("GET", f"{path}?limit=1")
                if answer.status not in UNSEEN:
                    break
            if answer.status in UNSEEN and kind.view not in (Node, Pod):
                unseen.add(kind.name)
                continue
            type_meta = {"apiVersion": version, "kind": kind.name}
            for item in await kube.items(path):
                where = f"{kube.server}{path}: {item['metadata']['name']}"
                found.append((where, msgspec.json.encode({**type_meta, **item})))
    return found, unseen
