"""The configuration of VM scheduling: neon's JSON file, parsed and checked as neon does.

The limits on concurrent migrations per node and in the cluster, and the rule that says which VM
leaves a node first, are Stower's own.
Source: neondatabase/autoscaling pkg/plugin/config.go.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from stower.model.numbers import Int64
from stower.vms.migration_rules import RULES

DEFAULT_PATH: Final = "/etc/scheduler-plugin-config/autoscale-enforcer-config.json"


class BadConfig(ValueError):
    """The configuration cannot be used; the text says why, as neon says it."""


class Scoring(msgspec.Struct, frozen=True, rename="camel"):
    """How full a node should be: the score at no use, at full use, and where it is highest."""

    min_usage_score: float = 0.0
    max_usage_score: float = 0.0
    score_peak: float = 0.0
    randomize: bool = msgspec.field(default=False, name="Randomize")


class Config(msgspec.Struct, frozen=True, rename="camel"):
    """All of it. `watermark`: share of a node above which VMs leave it; `node_metric_labels`:
    metric label by node label; `migrations_per_node_max`, `migrations_max`: how many migrations may
    be under way from a node, and in all; 0 is no bound; `migration_rule`: which VM leaves first."""

    scoring: Scoring = Scoring()
    watermark: float = 0.0
    scheduler_name: str = ""
    reconcile_workers: Int64 = 0
    log_successive_failures_threshold: Int64 = 0
    startup_event_handling_timeout_seconds: Int64 = 0
    k8s_crud_timeout_seconds: Int64 = msgspec.field(default=0, name="k8sCRUDTimeoutSeconds")
    patch_retry_wait_seconds: Int64 = 0
    node_metric_labels: dict[str, str] | None = None
    ignored_namespaces: list[str] | None = None
    migrations_per_node_max: Int64 = 5
    migrations_max: Int64 = 100
    migration_rule: str = "OldestFirst"

    def ignores(self, namespace: str) -> bool:
        """Whether its pods are nobody's concern, but for filters."""
        return namespace in (self.ignored_namespaces or ())


SHIPPED: Final = Config(
    scoring=Scoring(0.5, 0.0, 0.8, True),
    watermark=0.9,
    scheduler_name="autoscale-scheduler",
    reconcile_workers=16,
    log_successive_failures_threshold=10,
    startup_event_handling_timeout_seconds=15,
    k8s_crud_timeout_seconds=1,
    patch_retry_wait_seconds=1,
    node_metric_labels={},
    ignored_namespaces=[],
)


def read_config(text: str | bytes, path: str = DEFAULT_PATH) -> Config:
    """Neon's JSON. Names are taken whatever their case; those that nobody knows are refused.
    Raises BadConfig."""
    text = text if isinstance(text, str) else text.decode("utf-8", "replace")
    try:
        # Go's decoder reads the first value, and nothing behind it.
        data, _ = json.JSONDecoder(parse_constant=_reject_constant).raw_decode(text.lstrip())
        config = msgspec.convert(_match_names(data, Config), Config)
    except (ValueError, RecursionError) as error:
        raise BadConfig(f'error decoding JSON config in "{path}": {error}') from error
    return check(config)


def config_of(fields: Mapping[str, Any]) -> Config:
    """The same from arguments of a plugin: what is not given is as neon ships it. Raises
    BadConfig."""
    try:
        given = _match_names(dict(fields), Config)
        base = msgspec.to_builtins(SHIPPED)
        scoring = given.get("scoring", {})
        if isinstance(scoring, dict):
            scoring = {**base["scoring"], **scoring}
        config = msgspec.convert({**base, **given, "scoring": scoring}, Config)
    except ValueError as error:
        raise BadConfig(str(error)) from error
    return check(config)


def _reject_constant(text: str) -> float:
    """JSON has no NaN, and nothing infinite."""
    raise _FieldError(f"invalid character '{text[0]}' looking for beginning of value")


class _FieldError(ValueError):
    """A field that there is none of, or that cannot have the value."""


def _match_names(data: Any, kind: type[msgspec.Struct]) -> Any:
    """The fields by their own names: Go's decoder takes them in any case; null is as if it were not
    there, and of two the last counts."""
    if data is None:
        return {}
    if not isinstance(data, dict):
        return data
    known = {field.encode_name.lower(): field for field in msgspec.structs.fields(kind)}
    found = {}
    for name, value in data.items():
        field = known.get(str(name).lower())
        if field is None:
            raise _FieldError(f'json: unknown field "{name}"')
        if isinstance(value, float) and field.type is Int64:
            raise _FieldError(f"json: cannot unmarshal number {value} into {name} of type int")
        if value is not None:
            found[field.encode_name] = (
                _match_names(value, Scoring) if field.type is Scoring else value
            )
    return found


def check(config: Config) -> Config:
    """The same, where it can be used. Raises BadConfig that names the field."""
    for path, want in _faults(config):
        raise BadConfig(f"invalid config at {path}: {want}")
    return config


def _faults(config: Config) -> Iterable[tuple[str, str]]:
    scoring = config.scoring
    shares = {
        "minUsageScore": scoring.min_usage_score,
        "maxUsageScore": scoring.max_usage_score,
        "scorePeak": scoring.score_peak,
    }
    for name, share in shares.items():
        if not 0 <= share <= 1:
            yield f"nodeConfig.{name}", "value must be between 0 and 1, inclusive"
    if not config.scheduler_name:
        yield "schedulerName", "string cannot be empty"
    counts = {
        "reconcileWorkers": config.reconcile_workers,
        "logSuccessiveFailuresThreshold": config.log_successive_failures_threshold,
        "startupEventHandlingTimeoutSeconds": config.startup_event_handling_timeout_seconds,
        "k8sCRUDTimeoutSeconds": config.k8s_crud_timeout_seconds,
        "patchRetryWaitSeconds": config.patch_retry_wait_seconds,
    }
    for name, count in counts.items():
        if count <= 0:
            yield name, "value must be > 0"
    if not config.watermark > 0:
        yield "watermark", "value must be > 0"
    if config.watermark > 1:
        yield "watermark", "value must be <= 1"
    bounds = {
        "migrationsPerNodeMax": config.migrations_per_node_max,
        "migrationsMax": config.migrations_max,
    }
    for name, bound in bounds.items():
        if bound < 0:
            yield name, "value must be >= 0"
    if config.migration_rule not in RULES:
        yield "migrationRule", f"value must be one of {', '.join(RULES)}"
