"""Carries out what CustomResourceDefinitions say: accepts their names and serves their versions.

Versions with the strategy None differ in name and schema alone. No conversion webhook is called: of
a definition with the strategy Webhook, the storage version and versions of the same schema are
served. Source: apiextensions-apiserver pkg/registry/customresourcedefinition, controller/status,
controller/establish and controller/apiapproval, Kubernetes 1.36.
"""

from collections.abc import Iterator
from typing import Any, Final

from stower.api.calls import Call
from stower.api.context import Context
from stower.api.custom_openapi import OBJECT_META
from stower.api.custom_resources import resources_of, unconverted
from stower.api.errors import FORBIDDEN, FieldError
from stower.api.schema import Type
from stower.api.validation import custom_definitions as rules

Object = dict[str, Any]
KEY: Final = ("apiextensions.k8s.io", "customresourcedefinitions")
WEBHOOK_PORT: Final = 443
REASONS: Final = (  # of names that another definition has, in the order of upstream's checks
    ("plural", "PluralConflict"),
    ("singular", "SingularConflict"),
    ("shortNames", "ShortNamesConflict"),
    ("kind", "KindConflict"),
    ("listKind", "ListKindConflict"),
)
OF_RESOURCES: Final = ("plural", "singular", "shortNames")
ESTABLISHED: Final = ("True", "InitialNamesAccepted", "the initial names have been accepted")
NOT_ACCEPTED: Final = ("False", "NotAccepted", "not all names are accepted")


def prepare(call: Call, item: Object) -> None:
    """Fills in names that follow from others, and the status of a new definition."""
    item.pop("status", None)
    _prepare(call, item)


def prepare_update(call: Call, new: Object, old: Object) -> None:
    """The same for a changed one, which keeps its status."""
    _prepare(call, new)


def _prepare(call: Call, item: Object) -> None:
    spec = item["spec"]
    names = spec["names"]
    kind = names.get("kind") or ""
    if not names.get("singular"):
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"
    conversion = spec.setdefault("conversion", {"strategy": rules.NONE})
    service = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service")
    if service is not None:
        service.setdefault("port", WEBHOOK_PORT)
    status = item["status"] = dict(item.get("status") or {})
    storage = [v["name"] for v in spec.get("versions") or () if v.get("storage")]
    kept = status.get("storedVersions") or []
    status["storedVersions"] = [*kept, *(name for name in storage[:1] if name not in kept)]
    _accept(call.context, item, call.now)


def _accept(context: Context, item: Object, now: str) -> None:
    """Sets the names that no other definition of the group has, and the conditions."""
    status = item["status"]
    accepted, reason, message = _accepted_names(context, item)
    names_accepted = ("False", reason, message) if reason else (
        "True", "NoConflicts", "no conflicts found"
    )  # fmt: skip
    status["acceptedNames"] = accepted
    found = {"NamesAccepted": names_accepted}
    if not rules.is_established(item):
        found["Established"] = ESTABLISHED if not reason else NOT_ACCEPTED
    if rules.is_protected(item):
        found["KubernetesAPIApprovalPolicyConformant"] = rules.approval(item)
    conditions = {c["type"]: c for c in status.get("conditions") or ()}
    for kind, (state, why, text) in found.items():
        old = conditions.get(kind, {})
        changed = old.get("lastTransitionTime") if old.get("status") == state else now
        conditions[kind] = {
            "type": kind,
            "status": state,
            "lastTransitionTime": changed,
            "reason": why,
            "message": text,
        }
    status["conditions"] = [*conditions.values()]


def _accepted_names(context: Context, item: Object) -> tuple[Object, str, str]:
    """The names that the definition has from now on; reason and message of the last conflict."""
    wanted, spec = item["spec"]["names"], item["spec"]
    accepted = dict(item["status"].get("acceptedNames") or {})
    resources: set[str] = set()
    kinds: set[str] = set()
    for record in context.store.collection(KEY).records.values():
        other = record.decode()
        if record.key != item["metadata"]["name"] and other["spec"]["group"] == spec["group"]:
            names = (other.get("status") or {}).get("acceptedNames") or {}
            kinds.update((names.get("kind", ""), names.get("listKind", "")))
            resources.update((names.get("plural", ""), names.get("singular", "")))
            resources.update(names.get("shortNames") or ())
    reason = message = ""
    for field, why in REASONS:
        used = resources if field in OF_RESOURCES else kinds
        own = _listed(accepted.get(field))
        taken = [n for n in _listed(wanted.get(field)) if n not in own and n in used]
        if taken:
            texts = list(dict.fromkeys(f'"{name}" is already in use' for name in taken))
            reason, message = why, texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        elif field in wanted:
            accepted[field] = wanted[field]
        else:
            accepted.pop(field, None)
    accepted.pop("categories", None)
    if wanted.get("categories"):
        accepted["categories"] = wanted["categories"]
    return accepted, reason, message


def _listed(value: Any) -> list[str]:
    return value if isinstance(value, list) else [value] if value else []


def new_faults(call: Call, item: Object) -> list[FieldError]:
    """What is wrong with a definition that is created."""
    spec = item["spec"]
    group, plural = spec.get("group", ""), (spec.get("names") or {}).get("plural", "")
    registry = call.context.registry
    found = list(rules.new_faults(item, _metadata_type(call)))
    if registry.is_built_in(group, plural) and (group, plural) not in registry.native:
        text = f"{plural}.{group} is a resource of this server itself"
        found.append(FieldError(FORBIDDEN, "spec.names.plural", None, text))
    return found


def changed_faults(call: Call, new: Object, old: Object) -> list[FieldError]:
    """What is wrong with a definition that is changed."""
    return list(rules.update_faults(new, old, _metadata_type(call)))


def _metadata_type(call: Call) -> Type:
    return call.context.registry.schema.type_of(OBJECT_META)


def warnings(call: Call, item: Object) -> list[str]:
    """The versions that a webhook would have to convert."""
    spec = item["spec"]
    storage = next((v["name"] for v in spec["versions"] if v.get("storage")), "")
    return [
        f'spec.conversion.strategy: version "{name}" of {item["metadata"]["name"]} is not served: '
        "this server calls no conversion webhooks, and the schema differs from that of the "
        f'storage version "{storage}"'
        for name in unconverted(spec)
    ]


def on_definition_change(call: Call, item: Object | None) -> None:
    """Serves what a stored definition says, or nothing of one that is gone. Names that are free
    now may be those that other definitions wait for."""
    if item is None:
        plural, _, group = call.name.partition(".")
        if call.context.registry.is_built_in(group, plural):
            return
        call.context.registry.remove(group, plural)
        store = call.context.store
        collection = store.collection((group, plural))
        for key in list(collection.records):
            store.remove(collection, key, collection.records[key].decode())
        call.context.on_resource_change()
    else:
        group = item["spec"]["group"]
        serve(call.context, item)
    for waiting in _waiting(call.context, group):
        before = dict(waiting["status"])
        _accept(call.context, waiting, call.now)
        if waiting["status"] != before:
            store = call.context.store
            store.put(store.collection(KEY), waiting["metadata"]["name"], waiting)
            serve(call.context, waiting)


def _waiting(context: Context, group: str) -> Iterator[Object]:
    for record in list(context.store.collection(KEY).records.values()):
        item = record.decode()
        conditions = (item.get("status") or {}).get("conditions") or ()
        lacks = any(c["type"] == "NamesAccepted" and c["status"] == "False" for c in conditions)
        if lacks and item["spec"]["group"] == group:
            yield item


def serve(context: Context, definition: Object) -> None:
    """Serves the resources of an established definition, unless the server has them by itself."""
    group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
    if context.registry.is_built_in(group, plural):
        return
    context.registry.remove(group, plural)
    if rules.is_established(definition):
        for resource in resources_of(definition, context.registry):
            context.registry.add(resource)
    context.on_resource_change()
