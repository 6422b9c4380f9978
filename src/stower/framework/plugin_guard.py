"""Guards the engine against third-party plugins: an error in a plugin affects only the pod that is
being scheduled.

An exception, or an answer of the wrong form, becomes a PluginError, which the engine reports in the
pod's condition. Where no pod is being scheduled (sorting, queueing hints, PostBind), the guard
gives the answer that does no harm.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from stower.framework.dry_run import DryRun
from stower.framework.plugin import MAX_NODE_SCORE, Normalize, Plugin
from stower.framework.post_filter import PostFilterResult
from stower.framework.reasons import Rejection
from stower.framework.reservation import Reservation
from stower.framework.writes import DeleteObject, Write
from stower.state.cluster import ClusterState
from stower.state.pod_entry import PodEntry

# Bound of codes and of raw scores: 100 times as much, as normalisation needs, still fits in int64.
RAW_MAX: Final = 1 << 40


class PluginError(Exception):
    """A plugin failed. The text names the plugin, the extension point and the cause."""


# The extension point that an error of each method names.
_POINTS: Final = {
    "pre_enqueue": "PreEnqueue",
    "pre_filter": "PreFilter", "pre_filter_pod": "PreFilter", "is_relevant": "PreFilter",
    "generation": "PreFilter", "filter": "Filter", "passes": "Filter", "filter_row": "Filter",
    "filter_pod": "Filter", "dry_runs": "Filter", "capacity_constraints": "Filter",
    "rejection": "Filter",
    "post_filter": "PostFilter", "has_scores": "PreScore", "score": "Score", "score_row": "Score",
    "score_pod": "Score", "reserve": "Reserve", "bind": "Bind",
}  # fmt: skip
_ROW_ARRAY_METHODS: Final = ("filter", "passes", "score")
_POD_ARRAY_METHODS: Final = ("filter_pod", "score_pod")
_ROW_FUNCTION_METHODS: Final = ("filter_row", "score_row")


def _is_rejection(answer: object) -> bool:
    return isinstance(answer, Rejection) and all(isinstance(r, str) for r in answer.reasons)


def _is_post_filter_result(answer: Any) -> bool:
    if not isinstance(answer, PostFilterResult):
        return False
    message, nominate, victims = (
        getattr(answer, f) for f in ("message", "nominated_node_name", "victims")
    )
    return (
        isinstance(message, str)
        and isinstance(nominate, str | None)
        and isinstance(victims, tuple)
        and all(isinstance(v, PodEntry) and v.row >= 0 for v in victims)
    )


def _is_pre_filter_answer(answer: object) -> bool:
    if isinstance(answer, frozenset):
        return all(isinstance(name, str) for name in answer)
    return answer is None or _is_rejection(answer)


# Checks of the answers of other methods, each with the expected answer in words.
_ANSWER_CHECKS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "pre_enqueue": (lambda a: a is None or _is_rejection(a), "a Rejection or None"),
    "pre_filter": (_is_pre_filter_answer, "a Rejection, a frozenset of node names or None"),
    "pre_filter_pod": (lambda a: a is None or _is_rejection(a), "a Rejection or None"),
    "rejection": (_is_rejection, "a Rejection with texts"),
    "generation": (lambda a: isinstance(a, int), "a whole number"),
    "is_relevant": (lambda a: isinstance(a, bool), "True or False"),
    "has_scores": (lambda a: isinstance(a, bool), "True or False"),
    "capacity_constraints": (
        lambda a: a is None,
        "None: only built-in plugins return capacity constraints",
    ),
    "post_filter": (
        lambda a: _is_post_filter_result(a),
        "a PostFilterResult with texts and placed pods",
    ),
    "dry_runs": (lambda a: a is None or callable(a), "a function or None"),
    "bind": (lambda a: isinstance(a, bool), "True or False"),
}


def guard_plugin(plugin: Plugin) -> Plugin:
    """Guards every method of the plugin, in place. Returns the plugin."""
    guards = {method: _guard(plugin, method, point) for method, point in _POINTS.items()}
    guards["sort_key"] = _guard_key(plugin)
    guards["domain_scores"] = lambda *_: None  # `score_pod`, whose answers are checked, says it all
    guards["post_bind"] = _guard_post_bind(plugin.post_bind)
    for method, guard in guards.items():
        setattr(plugin, method, guard)
    plugin.hint = _guard_hint(plugin.hint)  # type: ignore[method-assign]
    plugin.hint_pod = _guard_hint(plugin.hint_pod)  # type: ignore[method-assign]
    return plugin


def _guard(plugin: Plugin, method: str, point: str) -> Callable[..., Any]:
    call = getattr(plugin, method)
    is_valid, want = _ANSWER_CHECKS.get(method, (None, ""))

    def guard(*args: Any, **options: Any) -> Any:
        try:
            answer = call(*args, **options)
        except PluginError:
            raise
        except Exception as error:
            raise PluginError(_error_text(plugin, point, error)) from error
        if is_valid is not None and not is_valid(answer):
            raise PluginError(_error_text(plugin, point, _wrong_type_text(method, answer, want)))
        if answer is None:
            return None
        if method in _ROW_ARRAY_METHODS:
            state, rows = args[1], args[2]
            return _checked_array(plugin, point, method, answer, state.present[rows])
        if method in _POD_ARRAY_METHODS:
            among = args[3] if method == "score_pod" else np.ones(args[2].row_limit, np.bool_)
            return _checked_array(plugin, point, method, answer, among)
        if method in _ROW_FUNCTION_METHODS:
            return _guard_row(plugin, point, method, answer)
        if method == "dry_runs":
            make = _guard_call(plugin, point, answer)
            return lambda row: _DryRunGuard(plugin, make(row))
        if method == "reserve":
            return _ReservationGuard(plugin, answer)
        return answer

    return guard


def _guard_call(plugin: Plugin, point: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def guard(row: int) -> Any:
        try:
            return call(row)
        except PluginError:
            raise
        except Exception as error:
            raise PluginError(_error_text(plugin, point, error)) from error

    return guard


def _guard_row(plugin: Plugin, point: str, method: str, call: Any) -> Callable[[int], int]:
    if not callable(call):
        raise PluginError(
            _error_text(plugin, point, _wrong_type_text(method, call, "a function or None"))
        )
    low, high = _allowed_range(plugin, method)
    answers = _guard_call(plugin, point, call)

    def guard(row: int) -> int:
        answer = answers(row)
        # NumPy integers have __index__; floating-point numbers do not.
        if not hasattr(answer, "__index__"):
            raise PluginError(
                _error_text(plugin, point, _wrong_type_text(method, answer, "a whole number"))
            )
        number = int(answer)
        if not low <= number <= high:
            raise PluginError(_error_text(plugin, point, f"got {number}, want {low} to {high}"))
        return number

    return guard


def _checked_array(plugin: Plugin, point: str, method: str, answer: Any, among: Any) -> Any:
    """Returns the answer as an array with one entry for each row: bool for `passes`, else int64.

    `among`: bool[rows], the rows on which the numbers must be in the allowed range. Raises
    PluginError.
    """
    kinds, noun = ("b", "booleans") if method == "passes" else ("iub", "whole numbers")
    array = np.asarray(answer)
    if array.shape != among.shape or array.dtype.kind not in kinds:
        want = f"want {len(among)} {noun}"
        raise PluginError(
            _error_text(plugin, point, f"got {array.dtype}{list(array.shape)}, {want}")
        )
    if method == "passes":
        return array
    low, high = _allowed_range(plugin, method)
    checked = array[among]
    if len(checked) and not (checked.min() >= low and checked.max() <= high):
        quantity = "scores" if "score" in method else "codes"
        fault = f"got {quantity} of {checked.min()} to {checked.max()}, want {low} to {high}"
        raise PluginError(_error_text(plugin, point, fault))
    return array.astype(np.int64)


def _allowed_range(plugin: Plugin, method: str) -> tuple[int, int]:
    if "filter" in method:
        return 0, RAW_MAX
    if method != "score_pod" and plugin.normalize is not Normalize.NONE:
        return -RAW_MAX, RAW_MAX
    return 0, MAX_NODE_SCORE


class _DryRunGuard:
    """A plugin's DryRun, whose exceptions and malformed codes become PluginError."""

    def __init__(self, plugin: Plugin, inner: DryRun) -> None:
        self._plugin = plugin
        self._inner = inner

    def add(self, entry: PodEntry) -> None:
        """Implements DryRun."""
        self._call("add", entry)

    def remove(self, entry: PodEntry) -> None:
        """Implements DryRun."""
        self._call("remove", entry)

    def code(self) -> int:
        """Implements DryRun."""
        code = self._call("code")
        if not isinstance(code, int | np.integer) or not 0 <= code <= RAW_MAX:
            raise PluginError(
                _error_text(
                    self._plugin,
                    "Filter",
                    _wrong_type_text("code", code, f"a code of 0 to {RAW_MAX}"),
                )
            )
        return int(code)

    def _call(self, method: str, *args: PodEntry) -> Any:
        try:
            return getattr(self._inner, method)(*args)
        except PluginError:
            raise
        except Exception as error:
            raise PluginError(_error_text(self._plugin, "Filter", error)) from error


class _ReservationGuard:
    """A plugin's Reservation, whose exceptions become the reason why it fails."""

    def __init__(self, plugin: Plugin, inner: Reservation) -> None:
        self._plugin = plugin
        self._inner = inner
        self._error = ""
        try:
            self.timeout_message = str(inner.timeout_message)
            self.timeout_ns = int(inner.timeout_ns)
            self.awaited_objects = tuple(inner.awaited_objects)
            methods = [
                inner.assume, inner.writes, inner.on_answer, inner.failure_reason, inner.is_done,
                inner.waiting_event, inner.forget, inner.unreserve,
            ]  # fmt: skip
        except Exception as error:
            raise PluginError(_error_text(plugin, "Reserve", error)) from error
        if not all(map(callable, methods)):
            raise PluginError(
                _error_text(
                    plugin,
                    "Reserve",
                    f"reserve returned {type(inner).__name__}, want a Reservation or None",
                )
            )

    @property
    def retry_at_ns(self) -> int | None:
        """Implements Reservation. None where the plugin's reservation has no such property."""
        retry_ns = self._call("PreBind", getattr, self._inner, "retry_at_ns", None)
        return retry_ns if isinstance(retry_ns, int) else None

    def assume(self, state: ClusterState) -> None:
        """Implements Reservation."""
        self._call("Reserve", self._inner.assume, state)

    def writes(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Implements Reservation."""
        return list(self._call("PreBind", self._inner.writes, state, next_id) or ())

    def on_answer(self, state: ClusterState, id: int, code: int, version: str) -> bool:
        """Implements Reservation."""
        answered = self._inner.on_answer
        return bool(self._call("PreBind", answered, state, id, code, version)) and not self._error

    def waiting_event(self) -> tuple[str, str]:
        """Implements Reservation."""
        reason, text = self._call("PreBind", self._inner.waiting_event) or ("", "")
        return str(reason), str(text)

    def unreserve(self, state: ClusterState, next_id: Callable[[], int]) -> list[Write]:
        """Implements Reservation."""
        return list(self._call("Unreserve", self._inner.unreserve, state, next_id) or ())

    def failure_reason(self, state: ClusterState) -> str:
        """Implements Reservation."""
        return self._error or str(
            self._call("PreBind", self._inner.failure_reason, state) or self._error
        )

    def is_done(self, state: ClusterState) -> bool:
        """Implements Reservation."""
        return not self._error and bool(self._call("PreBind", self._inner.is_done, state))

    def forget(self, state: ClusterState) -> None:
        """Implements Reservation."""
        self._call("Unreserve", self._inner.forget, state)

    def _call(self, point: str, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except Exception as error:
            self._error = _error_text(self._plugin, point, error)
            return None


def _guard_key(plugin: Plugin) -> Callable[[Any, int], tuple[int, ...]]:
    call = plugin.sort_key

    def guard(pod: Any, added_ns: int) -> tuple[int, ...]:
        """Returns the plugin's key, or that of PrioritySort where the plugin fails."""
        try:
            key: Any = call(pod, added_ns)
            if isinstance(key, tuple) and all(isinstance(part, int) for part in key):
                return key
        except Exception:
            pass
        return (-pod.priority, added_ns)

    return guard


def _guard_hint(call: Callable[..., Any]) -> Callable[..., bool]:
    def guard(*args: Any) -> bool:
        try:
            return bool(call(*args))
        except Exception:
            return True

    return guard


def _guard_post_bind(call: Callable[..., Any]) -> Callable[..., list[DeleteObject]]:
    def guard(*args: Any) -> list[DeleteObject]:
        try:
            return [write for write in call(*args) or () if isinstance(write, DeleteObject)]
        except Exception:
            return []  # the pod has its node already

    return guard


def _wrong_type_text(method: str, answer: object, want: str) -> str:
    return f"{method} returned {type(answer).__name__}, want {want}"


def _error_text(plugin: Plugin, point: str, why: object) -> str:
    text = f"{type(why).__name__}: {why}" if isinstance(why, Exception) else str(why)
    return f'running {point} plugin "{plugin.name}": {text}'
