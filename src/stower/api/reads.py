"""Handles GET requests: get, list and watch.

Source: apiserver pkg/endpoints/handlers, pkg/storage/cacher, Kubernetes 1.36.
"""

from typing import Final

import msgspec

from stower.api import conversion
from stower.api.calls import Call
from stower.api.content_negotiation import LIST, OBJECT, WATCH, Format, choose_format
from stower.api.errors import ApiError, Object, gone, too_large_resource_version
from stower.api.registry import Resource
from stower.api.representations import encode_item, encode_object, partial_metadata, table
from stower.api.requests import (
    ListOptions,
    Response,
    encode,
    list_options,
    make_token,
    parse_revision,
    read_token,
)
from stower.api.selection import Selection
from stower.api.store import Record
from stower.api.watches import Feed, Watch

SLICE: Final = 64  # items of a list in one part of the response
TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)

_decode = msgspec.json.decode


def object_response(
    call: Call, raw: bytes, status: int = 200, warnings: tuple[str, ...] = ()
) -> Response:
    """Returns the response with a stored object, in the form that the client accepts."""
    form = choose_format(call.request, OBJECT, call.resource)
    if not form.name:
        return Response(status, [encode_object(call.resource, raw)], warnings=warnings)
    if form.name == "Table":
        item = _decode(raw)
        version = item["metadata"].get("resourceVersion", "")
        meta = {"resourceVersion": version} if version else {}
        body = encode(_table(call, [item], meta, form))
    else:
        body = encode(partial_metadata(_decode(raw), form))
    return Response(status, [body], warnings=warnings)


def _table(call: Call, items: list[Object], meta: Object, form: Format) -> Object:
    return table(call.resource, items, meta, form, call.request.now_ns, headed=True)


def get(call: Call) -> Response:
    """Returns the object that the request names. Raises ApiError 404 or 504."""
    form = choose_format(call.request, OBJECT, call.resource)
    wanted = parse_revision(call.request.value("resourceVersion"))
    if wanted is not None and wanted > call.context.store.revision:
        raise too_large_resource_version(wanted, call.context.store.revision)
    record = call.record()
    if not form.name:
        return Response(200, [encode_object(call.resource, record.raw)])
    return object_response(call, record.raw)


def _snapshot(call: Call, options: ListOptions) -> tuple[dict[str, Record], int, str | None]:
    """Returns the records to list, their revision and the key after which the page starts.

    Raises ApiError 410 for a revision that is no longer in the history, 504 for a future one.
    """
    store, collection = call.context.store, call.collection
    after: str | None = None
    revision = store.revision
    if options.token:
        wanted, after = read_token(options.token)
        if wanted >= 0:
            revision = wanted
    elif options.revision is not None and options.revision > store.revision:
        raise too_large_resource_version(options.revision, store.revision)
    elif options.revision and (
        options.match == "Exact" or (options.limit and options.match != "NotOlderThan")
    ):
        revision = options.revision
    records = None if revision < store.compacted else collection.records_at(revision)
    if records is None:
        if options.token:
            assert after is not None
            error = gone(TOO_OLD)
            body = error.status()
            body["metadata"] = {"continue": make_token(-1, after)}
            raise _BodyError(error, body)
        raise gone("The resourceVersion for the provided list is too old.")
    return records, revision, after


class _BodyError(ApiError):
    """An error whose Status has fields that other errors lack."""

    def __init__(self, error: ApiError, body: Object) -> None:
        super().__init__(error.code, error.reason, error.message)
        self._body = body

    def status(self) -> Object:
        return self._body


def selection_of(call: Call, options: ListOptions) -> Selection:
    """Returns the objects that a list, watch or deletecollection is about."""
    return Selection(call.resource, call.namespace, call.name, options)


def list_objects(call: Call) -> Response:
    """Returns a list of objects, or one page of the list."""
    options = list_options(call.request)
    form = choose_format(call.request, LIST, call.resource)
    selection = selection_of(call, options)
    if options.revision == 0 and not options.token:
        options.limit = 0  # version 0 allows any version: upstream's cache returns all of it
    records, revision, after = _snapshot(call, options)
    chosen, left = _choose(call, selection, records, after, options.limit)
    meta: Object = {"resourceVersion": str(revision)}
    if left is not None:
        meta["continue"] = make_token(revision, chosen[-1].key)
        if not selection.labels and not selection.fields:
            meta["remainingItemCount"] = left
    if form.name == "Table":
        items = [_decode(record.raw) for record in chosen]
        return Response(200, [encode(_table(call, items, meta, form))])
    if form.name:
        items = [partial_metadata(_decode(record.raw), form) for record in chosen]
        return Response(200, [encode(_list(form.name, form.api_version, meta, items))])
    resource = call.resource
    start = b'{"kind":%b,"apiVersion":%b,"metadata":%b,"items":[' % (
        encode(f"{resource.kind}List"),
        encode(resource.api_version),
        encode(meta),
    )
    return Response(200, _parts(resource, start, chosen))


def _parts(resource: Resource, start: bytes, chosen: list[Record]) -> list[bytes]:
    plain = resource.custom is None and conversion.out_of_store(resource) is None
    parts = [start]
    for i in range(0, len(chosen), SLICE):
        some = chosen[i : i + SLICE]
        raws = [r.raw for r in some] if plain else [encode_item(resource, r.raw) for r in some]
        parts.append((b"," if i else b"") + b",".join(raws))
    parts.append(b"]}")
    return parts


def _list(kind: str, version: str, meta: Object, items: list[Object]) -> Object:
    return {"kind": kind, "apiVersion": version, "metadata": meta, "items": items}


def _choose(
    call: Call, selection: Selection, records: dict[str, Record], after: str | None, limit: int
) -> tuple[list[Record], int | None]:
    """Returns the records of the page in order of their keys, and the number of records after it.

    None instead of a number means that the page is the last one.
    """
    collection = call.collection
    if records is collection.records:
        keys = collection.keys_in(selection.namespace, after)
    else:
        prefix = f"{selection.namespace}/" if selection.namespace else ""
        keys = sorted(k for k in records if k.startswith(prefix) and (after is None or k > after))
    content = bool(selection.labels or selection.fields or selection.name)
    if not content and (not limit or len(keys) <= limit):
        return [records[key] for key in keys], None
    if not content:
        return [records[key] for key in keys[:limit]], len(keys) - limit
    chosen: list[Record] = []
    for i, key in enumerate(keys):
        record = records[key]
        if selection.selects(record):
            chosen.append(record)
            if limit and len(chosen) == limit:
                # The next page may be empty: the keys after this one are not searched.
                more = not selection.name and i + 1 < len(keys)
                return chosen, 0 if more else None
    return chosen, None


def watch(call: Call) -> Watch:
    """Returns a watch of the call's resource. Watches of one selection and form share a feed."""
    options = list_options(call.request)
    form = choose_format(call.request, WATCH, call.resource)
    selection = selection_of(call, options)
    signature = (
        call.resource.group, call.resource.version, call.resource.plural, selection.namespace,
        selection.labels, selection.fields, selection.name, form,
    )  # fmt: skip
    feeds = call.context.feeds
    feed = feeds.get(signature)
    # A Table shows ages as of the request, so its frames cannot be shared.
    if feed is None or form.name == "Table":
        feed = Feed(call.resource, selection, form, call.request.now_ns)
        if not form.name:
            feeds[signature] = feed
    return Watch(call.context.store, call.collection, call.resource, options, feed)
