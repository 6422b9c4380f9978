"""Runs aiohttp applications whose log never contains a part of a request's headers.

aiohttp logs a malformed request with the line that is malformed, which may be a bearer token.
"""

import logging
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

log: Final = logging.getLogger(__name__)


class _WithoutRequests(logging.Filter):
    """Replaces what is said about malformed requests by their number in HTTP and a class."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.msg = f"{record.msg}: status %s, %s"
            record.args = (*_arguments(record), error.code, type(error).__name__)
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.INFO, "INFO"
        return True


def _arguments(record: logging.LogRecord) -> tuple[Any, ...]:
    return record.args if isinstance(record.args, tuple) else ()


log.addFilter(_WithoutRequests())


def make_runner(app: web.Application, **options: Any) -> web.AppRunner:
    """Returns the runner of an application. `options` are those of aiohttp's runner."""
    return web.AppRunner(app, access_log=None, logger=log, **options)
