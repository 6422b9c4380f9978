"""Writes the audit log: one line of JSON per request, audit.k8s.io/v1 at the level Metadata.

Source: apiserver pkg/audit, Kubernetes 1.36.
"""

import os
import uuid
from pathlib import Path
from typing import Any, Final

import msgspec

from stower.api.request_info import RequestInfo
from stower.model.times import micro_time_text

URI_MAX: Final = 16 * 1024  # characters; more is no target that the server reads


class Audit:
    """Lines at the end of a file."""

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.fdopen(os.open(path, flags, 0o600), "ab", buffering=0)

    def record(
        self,
        asked: RequestInfo,
        uri: str,
        user: dict[str, Any],
        impersonated: dict[str, Any] | None,
        agent: str,
        code: int,
        received_ns: int,
        now_ns: int,
        decision: str,
    ) -> None:
        """Writes the line of an answered request.

        `uri` has the path and the query as they came. `user` is empty where the request was not
        authenticated. `impersonated` is the user that it was carried out as, if another.
        `decision` is the authorizer's, empty where it was not asked. Raises OSError.
        """
        line: dict[str, Any] = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "auditID": str(uuid.uuid4()),
            "stage": "ResponseComplete",
            "requestURI": uri[:URI_MAX],
            "verb": asked.verb,
            "user": user,
            "userAgent": agent,
            "responseStatus": {"code": code},
            "requestReceivedTimestamp": micro_time_text(received_ns),
            "stageTimestamp": micro_time_text(now_ns),
        }
        if impersonated is not None:
            line["impersonatedUser"] = impersonated
        if decision:
            line["annotations"] = {"authorization.k8s.io/decision": decision}
        if asked.is_resource:
            reference = {
                "resource": asked.resource, "namespace": asked.namespace, "name": asked.name,
                "apiGroup": asked.group, "apiVersion": asked.version,
                "subresource": asked.subresource,
            }  # fmt: skip
            line["objectRef"] = {name: value for name, value in reference.items() if value}
        self._file.write(msgspec.json.encode(line) + b"\n")

    def close(self) -> None:
        """Ends the log."""
        self._file.close()
