"""Computes parts of printed columns that several kinds share: age, labels, containers."""

from typing import Any, Final

from stower.model.times import age

Object = dict[str, Any]
NONE: Final = "<none>"
UNSET: Final = "<unset>"
UNKNOWN: Final = "<unknown>"


def format_age(item: Object, now_ns: int) -> str:
    """The age of an object."""
    return age(now_ns, item["metadata"].get("creationTimestamp"))


def labels_text(labels: Object | None) -> str:
    """Labels as one cell."""
    return ",".join(f"{k}={v}" for k, v in sorted((labels or {}).items())) or NONE


def selector_text(selector: Object | None, empty: str = NONE) -> str:
    """Source: metav1.FormatLabelSelector."""
    if selector is None:
        return empty
    terms = []
    for key, value in sorted((selector.get("matchLabels") or {}).items()):
        terms.append((key, f"{key}={value}"))
    for term in selector.get("matchExpressions") or ():
        key, operator = term["key"], term["operator"]
        values = ",".join(sorted(term.get("values") or ()))
        shown = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }
        terms.append((key, shown.get(operator, "<error>")))
    return ",".join(text for _, text in sorted(terms)) or empty


def container_cells(spec: Object | None) -> list[str]:
    """Names and images of containers."""
    containers = (spec or {}).get("containers") or ()
    return [
        ",".join(c.get("name", "") for c in containers),
        ",".join(c.get("image", "") for c in containers),
    ]


def conditions_of(item: Object) -> dict[str, Object]:
    """The conditions of an object by type."""
    return {c.get("type", ""): c for c in (item.get("status") or {}).get("conditions") or ()}


def is_true(conditions: dict[str, Object], kind: str) -> bool:
    """Whether a condition holds."""
    return conditions.get(kind, {}).get("status") == "True"


def join_first(found: list[str]) -> str:
    """The first three, and how many there are besides."""
    text = ",".join(found[:3]) or NONE
    return f"{text} + {len(found) - 3} more..." if len(found) > 3 else text
