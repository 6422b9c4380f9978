"""Which optional kinds a server serves and this account may list, and at which paths.

What discovery does not have is not listed: a list of a kind that is not installed answers 403 to an
account with few rights, and each such answer is a line in the server's audit log. Discovery is read
at the start, when the CustomResourceDefinition of one of the kinds comes or changes, and every
REFRESH_SECONDS, as not every account may list definitions. Rights are asked for, not tried out.
"""

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from stower.live.access import AccessError
from stower.live.client import Client, Response, collection_path
from stower.live.discovery import Served, get_served_resources
from stower.live.outages import Outages
from stower.live.reflector import FORBIDDEN, NOT_FOUND, Changes, Reflector, TypedDecoder
from stower.live.rights import Right, group_of, is_permitted
from stower.model.kinds import Kind

log = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 180.0
RETRY_SECONDS: Final = 10.0  # where the server did not answer
# A server publishes what a definition serves a moment after the definition itself.
SETTLE_SECONDS: Final = 1.0
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VERBS: Final = ("list", "watch")
# Reviews of rights may say otherwise than a server does, as while it starts: a path that was
# refused so often, though reviews permit it, counts as empty until discovery is read again.
CONTRADICTIONS_MAX: Final = 5


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    uid: str
    resource_version: str = ""


class _Definition(msgspec.Struct, frozen=True):
    """What is read of a CustomResourceDefinition."""

    metadata: _Metadata


class Availability:
    """Of all optional kinds. `run` keeps it up to date."""

    def __init__(
        self,
        client: Client,
        kinds: Iterable[Kind],
        rng: random.Random,
        required_views: Iterable[type] = (),
        outages: Outages | None = None,
    ) -> None:
        """`required_views`: of these the configuration makes use, so it warns where this account
        may not list them. `outages`: shared with others of the client."""
        self._outages = outages
        self._client = client
        self._rng = rng
        self._kinds = tuple(kinds)
        self._required = frozenset(required_views)
        self._definitions = {f"{k.plural}.{group_of(k.api_version)}" for k in self._kinds}
        self._definitions |= {f"{k.plural}.{group_of(v)}" for k in self._kinds for v in k.also}
        self._paths: dict[type, tuple[str, ...]] | None = None  # None: not looked at yet
        self._denied: set[str] = set()
        self._contradictions: Counter[str] = Counter()
        self._is_unsure = True  # whether the next look comes soon
        self._changed = asyncio.Event()
        self._is_stale = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None
        self.served: Served | None = None  # None: the server does not answer discovery

    def of(self, kind: Kind) -> "KindAvailability":
        """Returns the availability of one of the kinds."""
        return KindAvailability(self, kind)

    async def run(self) -> None:
        """Runs until cancelled."""
        try:
            if self._paths is None:
                await self.look()
            while True:
                period_s = RETRY_SECONDS if self._is_unsure else REFRESH_SECONDS
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(period_s):
                        await self._is_stale.wait()
                if self._is_stale.is_set():
                    await asyncio.sleep(SETTLE_SECONDS)
                    self._is_stale.clear()
                await self.look()
        finally:
            if self._follower is not None:
                self._follower.cancel()
                await asyncio.gather(self._follower, return_exceptions=True)

    async def look(self) -> None:
        """Reads discovery, and asks for the rights that are not known. Where the server does not
        answer, what was known holds."""
        is_first = self._paths is None
        self._is_unsure = True
        try:
            served = await get_served_resources(self._client)
            if served is None and not is_first:
                return
            self.served = served
            paths = {kind.view: self._served_paths(kind) for kind in self._kinds}
            denied = await self._find_denied({path for some in paths.values() for path in some})
            await self._follow_definitions()
        except AccessError as error:
            log.warning("%s", error)
            return
        for view, some in paths.items():
            for path in sorted({*some} & denied - self._denied):
                level = logging.WARNING if view in self._required else logging.INFO
                log.log(level, "this account may not list %s: running without these objects", path)
        self._denied = denied
        # A server that has just started may refuse for a moment what it permits.
        self._is_unsure = served is None or (is_first and bool(denied))
        self._replace({
            view: tuple(path for path in some if path not in denied)
            for view, some in paths.items()
        })  # fmt: skip

    def _replace(self, paths: dict[type, tuple[str, ...]]) -> None:
        if paths != self._paths:
            self._paths = paths
            self._changed.set()
            self._changed = asyncio.Event()

    def _served_paths(self, kind: Kind) -> tuple[str, ...]:
        """The paths of a kind that are served, the preferred first; all if nobody knows."""
        return tuple(
            collection_path(kind, version=version)
            for version in (kind.api_version, *kind.also)
            if self.served is None or (version, kind.plural) in self.served
        )

    async def _find_denied(self, paths: set[str]) -> set[str]:
        """Returns those of the paths that this account may not list and watch. What was permitted
        once is listed: the answer says so where it is no longer."""
        if self.served is None:
            return set()
        known = {path for some in (self._paths or {}).values() for path in some}
        asked = sorted(paths - known)
        answers = await asyncio.gather(*(self._is_denied(path) for path in asked))
        return {path for path, is_denied in zip(asked, answers, strict=True) if is_denied}

    async def _is_denied(self, path: str) -> bool:
        """Whether reviews say that this account may not list and watch what a path has."""
        _, _, group, _, plural = path.split("/")
        for verb in VERBS:
            if await is_permitted(self._client, Right(verb, group, plural)) is False:
                return True
        return False

    async def _follow_definitions(self) -> None:
        """Begins to watch definitions as soon as this account may."""
        if self._follower is not None and not self._follower.done():
            return
        if self.served is None or await self._is_denied(DEFINITIONS):
            return
        reflector = Reflector(
            self._client, DEFINITIONS, TypedDecoder(_Definition), self._rng,
            on_list=self._is_stale.set, on_changes=self._on_definitions, is_metadata=True,
            outages=self._outages,
        )  # fmt: skip
        self._follower = asyncio.create_task(self._follow(reflector))

    async def _follow(self, reflector: Reflector) -> None:
        try:
            await reflector.run()
        except Exception as error:  # discovery is read all the same, if less often
            log.info("cannot watch CustomResourceDefinitions: %s", error)

    def _on_definitions(self, changes: Changes) -> None:
        if any(obj.metadata.name in self._definitions for _, obj in changes):
            self._is_stale.set()

    async def paths(self, kind: Kind) -> tuple[str, ...]:
        """Waits until discovery has been read; returns the paths of a kind, the preferred first."""
        while self._paths is None:
            await self._changed.wait()
        return self._paths[kind.view]

    async def wait(self) -> None:
        """Waits until anything changes."""
        await self._changed.wait()

    async def refuse(self, path: str, answer: Response) -> bool:
        """Takes a path for unavailable until discovery is read again, which is soon; returns False
        where the answer is not to be believed."""
        assert self._paths is not None
        if answer.status == FORBIDDEN:
            self._contradictions[path] += 1
            if self._contradictions[path] < CONTRADICTIONS_MAX and not await self._is_denied(path):
                return False
            log.info("cannot list %s: %s: running without these objects", path, answer.message)
            del self._contradictions[path]
            self._denied.add(path)
        else:
            self._is_unsure = True
            self._is_stale.set()
        # Who refused it waits for the next change: this one is its own.
        self._paths = {
            view: tuple(one for one in some if one != path) for view, some in self._paths.items()
        }
        return True


class KindAvailability:
    """Of one kind, for its reflector (see reflector.Available)."""

    def __init__(self, of_all: Availability, kind: Kind) -> None:
        self._of_all = of_all
        self._kind = kind

    async def paths(self) -> Sequence[str]:
        """See Available."""
        return await self._of_all.paths(self._kind)

    async def wait(self) -> None:
        """See Available."""
        before = await self.paths()
        while before == await self.paths():
            await self._of_all.wait()

    async def refuse(self, path: str, answer: Response) -> bool | None:
        """See Available."""
        if answer.status not in (FORBIDDEN, NOT_FOUND):
            return None
        return await self._of_all.refuse(path, answer)
