"""Writes the audit log: one line of JSON per request, audit.k8s.io/v1 at the level Metadata.

Source: apiserver pkg/audit, Kubernetes 1.36.
"""

import uuid
from pathlib import Path
from typing import Any, Final

import msgspec

from stower.api.attributes import attributes_of
from stower.api.requests import Request
from stower.model.times import micro_time_text

FORBIDDEN: Final = 403


class Audit:
    """Lines at the end of a file."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._file = path.open("ab", buffering=0)

    def record(self, request: Request, code: int, now_ns: int) -> None:
        """A request was answered."""
        asked = attributes_of(request)
        line: dict[str, Any] = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": str(uuid.uuid4()),
            "stage": "ResponseComplete",
            "requestURI": request.path,
            "verb": asked.verb,
            "user": {"username": request.user, "groups": list(request.groups)},
            "userAgent": request.user_agent,
            "responseStatus": {"code": code},
            "requestReceivedTimestamp": micro_time_text(request.now_ns),
            "stageTimestamp": micro_time_text(now_ns),
            "annotations": {
                "authorization.k8s.io/decision": "forbid" if code == FORBIDDEN else "allow"
            },
        }
        if not asked.path:
            reference = {
                "resource": asked.resource, "namespace": asked.namespace, "name": asked.name,
                "apiGroup": asked.group, "apiVersion": asked.version,
                "subresource": asked.subresource,
            }  # fmt: skip
            line["objectRef"] = {name: value for name, value in reference.items() if value}
        self._file.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        """No more lines."""
        self._file.close()
