"""Serves the dashboard for a recording on loopback, until stopped."""

import asyncio
import contextlib
import secrets
from pathlib import Path

from stower.cli.output import bad_input, console, failure, progress
from stower.cli.recordings import engine_builder
from stower.cli.serving_options import token_of
from stower.cli.shutdown import stop_event
from stower.dashboard.app import Dashboard
from stower.dashboard.player import Player, bounds
from stower.live.authorization import StaticTokenAuthorizer
from stower.live.endpoint import LOOPBACK, serve_routes
from stower.live.shell import os_error_text
from stower.model.errors import InvalidObject


def serve(recording: Path, port: int, token_file: Path | None, ignores_unknown: bool) -> None:
    """Serve it on loopback; `ignores_unknown`: without unknown plugins. Ends the program where
    that cannot be."""
    token = token_of(token_file) if token_file is not None else secrets.token_urlsafe(32)
    try:
        with progress("reading"):
            ends = bounds(recording)
        asyncio.run(_serve(recording, ends, port, token, ignores_unknown))
    except InvalidObject as error:
        raise bad_input(f"{recording}: {error}") from None
    except OSError as error:
        raise bad_input(f"{recording}: {error.strerror}") from None


async def _serve(
    recording: Path, ends: tuple[int, int], port: int, token: str, ignores_unknown: bool
) -> None:
    stop = asyncio.create_task(stop_event().wait())
    rebuild = engine_builder(ignores_unknown)
    dashboard = Dashboard(rebuild)
    player = Player(recording, rebuild, dashboard.watching, ends)
    routes = dashboard.routes(player, StaticTokenAuthorizer(token))
    async with contextlib.AsyncExitStack() as stack:
        health = {"recording": lambda: player.is_ready}
        try:
            taken = await stack.enter_async_context(serve_routes(routes, health, port))
        except OSError as error:
            text = (
                f"cannot listen on {LOOPBACK}:{port}: {os_error_text(error)}; give another --port"
            )
            raise failure(text) from None
        player.go_to((ends[1] - ends[0]) / 1e9)
        playing = asyncio.create_task(player.run())
        console().print(
            f"Dashboard: http://{LOOPBACK}:{taken}/dashboard/#token={token}\nStop it with Ctrl-C.",
            soft_wrap=True,
        )
        await asyncio.wait((stop, playing), return_when=asyncio.FIRST_COMPLETED)
        if playing.done():
            playing.result()
        playing.cancel()
