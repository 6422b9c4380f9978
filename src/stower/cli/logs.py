"""Configures the log of servers: how much is logged (--v, as in Kubernetes' programs), and in which
format (text or JSON).

0: warnings and errors; 1: events of the program; 2: also a line for each decision; 4: also a line
for each write; 6: everything. Lines go to standard error; the objects of a line stand in fields
behind the message. Source: component-base logs, klog's JSON format.
"""

import logging
import sys
import time
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
import typer

from stower.model.errors import printable


class Format(StrEnum):
    """Forms of a line."""

    TEXT = "text"
    JSON = "json"


V_MAX: Final = 10
Verbosity = Annotated[
    int,
    typer.Option(
        "--v", "-v", min=0, max=V_MAX, metavar="N",
        help="Log level: 0 warnings, 1 program events, 2 each decision, 4 each write, 6 all.",
    ),
]  # fmt: skip
LoggingFormat = Annotated[Format, typer.Option(help="Format of log lines.")]
# The verbosity from which on a logger logs more than warnings and errors.
LEVELS: Final = {"stower.decisions": 2, "stower.writes": 4}


def set_up(v: int, form: Format) -> None:
    """Log so from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json(v) if form is Format.JSON else _Text())
    logging.basicConfig(handlers=[handler], level=_level(v, 1, 6), force=True)
    for name, from_v in LEVELS.items():
        logging.getLogger(name).setLevel(_level(v, from_v, V_MAX + 1))


def _level(v: int, info: int, debug: int) -> int:
    if v >= debug:
        return logging.DEBUG
    return logging.INFO if v >= info else logging.WARNING


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = getattr(record, "fields", None) or {}
    return found


class _Text(logging.Formatter):
    """2026-11-24T07:05:30.123Z INFO Successfully bound pod to node pod="team/web-1" node="n-3"."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback where there is one."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = f"{moment}.{int(record.msecs):03d}Z {record.levelname} {record.getMessage()}"
        for key, value in _fields(record).items():
            line += f" {key}={_value(value)}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
            return line  # the lines of a traceback stay lines
        return printable(line)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        value = f"{value['namespace']}/{value['name']}" if value["namespace"] else value["name"]
    return str(value) if isinstance(value, int | float) else f'"{value}"'


class _Json(logging.Formatter):
    """{"ts": milliseconds, "v": 2, "msg": "...", "pod": {"name": ..., "namespace": ...}, ...}."""

    def __init__(self, v: int) -> None:
        super().__init__()
        self._v = v

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line: dict[str, Any] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{record.module}.py:{record.lineno}",
            "msg": record.getMessage(),
        }
        if record.levelno >= logging.WARNING:
            line["level"] = record.levelname.lower()
        else:
            line["v"] = LEVELS.get(record.name, 1 if record.levelno >= logging.INFO else 6)
        line |= _fields(record)
        if record.exc_info:
            line["stacktrace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()
