"""What a running shell tells of itself, over HTTP on loopback.

/healthz and /readyz say one word to anybody; /metrics and /debug/ want the token.
"""

import hmac
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from aiohttp import web

from stower.framework.companion import Metric
from stower.framework.reasons import Diagnosis
from stower.live.scheduler import Scheduler

LOOPBACK: Final = "127.0.0.1"
METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@asynccontextmanager
async def endpoint(
    scheduler: Scheduler,
    metrics: Callable[[Mapping[str, float], Sequence[Metric]], bytes],
    port: int,
    token: str,
) -> AsyncIterator[int]:
    """Serve for as long as the block lasts; yields the port. Raises OSError."""
    wanted = f"Bearer {token}".encode()

    def check(request: web.Request) -> None:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(given, wanted):
            raise web.HTTPUnauthorized(headers={"WWW-Authenticate": "Bearer"})

    async def measured(request: web.Request) -> web.Response:
        check(request)
        return web.Response(
            body=metrics(scheduler.stats(), scheduler.companion_metrics()),
            headers={"Content-Type": METRICS_TYPE},
        )

    async def decisions(request: web.Request) -> web.Response:
        check(request)
        found = _decisions(scheduler, request.query.get("pod", ""))
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    async def pod(request: web.Request) -> web.Response:
        check(request)
        found = _of_pod(scheduler, request.query.get("pod", ""))
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    routes = [
        web.get("/metrics", measured),
        web.get("/debug/decisions", decisions),
        web.get("/debug/pod", pod),
    ]
    async with listening(routes, lambda: scheduler.is_ready, port) as taken:
        yield taken


@asynccontextmanager
async def listening(
    routes: Sequence[web.RouteDef], is_ready: Callable[[], bool], port: int
) -> AsyncIterator[int]:
    """Serve these, and whether we are well, on loopback. Yields the port. Raises OSError."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def readyz(_: web.Request) -> web.Response:
        if not is_ready():
            return web.Response(status=503, text="still listing")
        return web.Response(text="ok")

    app = web.Application(client_max_size=1024)
    app.add_routes(
        [
            web.get("/healthz", healthz),
            web.get("/livez", healthz),
            web.get("/readyz", readyz),
            *routes,
        ]
    )
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, LOOPBACK, port)
        await site.start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _decisions(scheduler: Scheduler, pod: str) -> list[dict[str, Any]]:
    """Those that are still known, of one pod or of all, with who refused how many nodes."""
    return [
        {
            "pod": f"{d.namespace}/{d.name}",
            "uid": d.uid,
            "outcome": d.outcome.value,
            "atNs": d.at_ns,
            "attempts": d.attempts,
            "node": d.node_name,
            "message": d.message,
            "refused": _refused(d.diagnosis) if d.diagnosis is not None else [],
            "scores": dict(d.scores),
            "victims": d.victims,
            "nominated": d.nominated,
        }
        for d in scheduler.decisions
        if pod in ("", f"{d.namespace}/{d.name}")
    ]


def _refused(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """By plugin and reason: how many nodes, and some of them."""
    if diagnosis.pre_filter is not None:
        first = diagnosis.pre_filter
        return [{"plugin": first.plugin, "reasons": first.rejection.reasons,
                 "nodes": first.node_count, "examples": ()}]  # fmt: skip
    return [
        {"plugin": r.plugin, "reasons": r.rejection.reasons, "nodes": r.node_count,
         "examples": examples}
        for r, examples in zip(diagnosis.refused, diagnosis.examples, strict=True)
    ]  # fmt: skip


def _of_pod(scheduler: Scheduler, pod: str) -> dict[str, Any]:
    """Where it is in the queue, what it waits for, and what its attempts came to."""
    engine = scheduler.engine
    waiting = engine.queue.pods() if engine is not None else []
    queued = next((q for q in waiting if q.entry.pod.key == pod), None)
    found: dict[str, Any] = {"pod": pod, "decisions": _decisions(scheduler, pod) if pod else []}
    if queued is None:
        return {**found, "place": "not in the queue"}
    return {
        **found,
        "place": queued.place.name.lower().replace("_", " "),
        "attempts": queued.attempts,
        "refusedBy": sorted(queued.refused_by),
        "awaitsVictims": len(queued.victims),
    }
