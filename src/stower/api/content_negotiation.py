"""Chooses the representation of a response (media type, Table, metadata only) by the Accept header.

The routes reject media types that they never produce; the handlers check the parameters. Source:
apiserver pkg/endpoints/handlers/negotiation and response.go, go-restful jsr311.go.
"""

from dataclasses import dataclass
from typing import Final

from stower.api.errors import ApiError, bad_request
from stower.api.registry import Resource, internal_type
from stower.api.requests import JSON, META, Request

YAML: Final = "application/yaml"
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
PRODUCED: Final = (JSON, YAML, PROTOBUF)
STREAMED: Final = (f"{JSON};stream=watch", f"{PROTOBUF};stream=watch")
# What an answer is about.
OBJECT: Final = "object"
LIST: Final = "list"
WATCH: Final = "watch"
FORMS: Final = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
INCLUDED: Final = ("Metadata", "Object", "None")


@dataclass(frozen=True, slots=True)
class Format:
    """In which form objects go out."""

    name: str = ""  # "", Table, PartialObjectMetadata, PartialObjectMetadataList
    include: str = "Metadata"  # what of the object is in the rows of a Table
    version: str = "v1"

    @property
    def api_version(self) -> str:
        """Of a Table or PartialObjectMetadata."""
        return f"{META}/{self.version}"


PLAIN: Final = Format()


def choose_format(
    request: Request, target: str, resource: Resource, has_table: bool = True
) -> Format:
    """The first form of the Accept header that can be served. Raises ApiError 406 or 400.

    `has_table`: whether the answer can be a Table.
    """
    accept = request.accept
    if not accept or accept == JSON:
        return PLAIN
    clauses = []
    for clause in accept.split(","):
        kind, *parameters = (part.strip() for part in clause.split(";"))
        named = {name: value for name, _, value in (p.partition("=") for p in parameters)}
        clauses.append((kind, named))
    produced = PRODUCED if target == OBJECT else (*PRODUCED, *STREAMED)
    if not any(kind == "*/*" or kind in PRODUCED for kind, _ in clauses):
        listed = ", ".join(produced)
        text = f"406: Not Acceptable\n\nAvailable representations: {listed}"
        raise ApiError(406, "NotAcceptable", text, {})
    served = (JSON,) if target == WATCH else (JSON, YAML)
    for kind, named in clauses:
        if kind not in (*served, "application/*", "*/*"):
            continue
        if named.get("stream", "watch") not in ("", "watch"):
            continue
        if not {"as", "v", "g"} & named.keys():
            return PLAIN
        name, version = named.get("as", ""), named.get("v", "")
        if name == "Table" and not has_table:
            continue
        if name in FORMS and named.get("g") == META and version in ("v1", "v1beta1"):
            return _choose_transformed(request, target, resource, name, version)
    raise not_acceptable(request, STREAMED if target == WATCH else PRODUCED)


def not_acceptable(request: Request, accepted: tuple[str, ...] = PRODUCED) -> ApiError:
    """None of the forms that the client takes can be served. Protobuf, which is not written here,
    is left out of those that can be where it is asked for."""
    if PROTOBUF in request.accept:
        accepted = tuple(form for form in accepted if not form.startswith(PROTOBUF))
    text = f"only the following media types are accepted: {', '.join(accepted)}"
    return ApiError(406, "NotAcceptable", text)


def _choose_transformed(
    request: Request, target: str, resource: Resource, name: str, version: str
) -> Format:
    kind = internal_type(resource)
    if name == "PartialObjectMetadata" and target == LIST:
        text = f"you requested {name}, but the requested object is a list (*{kind}List)"
        raise ApiError(406, "NotAcceptable", text)
    if name == "PartialObjectMetadataList" and target != LIST:
        text = f"you requested {name}, but the requested object is not a list (*{kind})"
        raise ApiError(406, "NotAcceptable", text)
    include = request.value("includeObject") or "Metadata"
    if name == "Table" and include not in INCLUDED:
        raise bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    return Format(name, include, version)
