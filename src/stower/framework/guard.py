"""A guard around plugins of others: what goes wrong in them is the matter of one pod.

An exception, or an answer of the wrong form, becomes PluginError, which the engine tells of in the
pod's condition; where no pod is at stake, the answer is the one that does no harm.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from stower.framework.plugin import MAX_NODE_SCORE, Plugin
from stower.framework.reasons import Rejection


class PluginError(Exception):
    """A plugin failed. The text says which, where, and why."""


# Methods and the extension points of which an error speaks.
_POINTS: Final = {
    "pre_filter": "PreFilter", "pre_filter_pod": "PreFilter", "concerns": "PreFilter",
    "generation": "PreFilter", "filter": "Filter", "passes": "Filter", "filter_row": "Filter",
    "filter_pod": "Filter", "dry_runs": "Filter", "rooms": "Filter", "rejection": "Filter",
    "post_filter": "PostFilter", "speaks": "PreScore", "score": "Score", "score_row": "Score",
    "score_pod": "Score", "reserve": "Reserve", "bind": "Bind",
}  # fmt: skip
_ARRAYS: Final = ("filter", "filter_pod", "score", "score_pod")


def guarded(plugin: Plugin) -> Plugin:
    """The same plugin, with every method guarded."""
    for method, point in _POINTS.items():
        setattr(plugin, method, _guard(plugin, method, point))
    plugin.pre_enqueue = _or_else(plugin.pre_enqueue, _gate(plugin))  # type: ignore[method-assign]
    plugin.hint = _or_else(plugin.hint, lambda error: True)  # type: ignore[method-assign]
    plugin.hint_pod = _or_else(plugin.hint_pod, lambda error: True)  # type: ignore[method-assign]
    return plugin


def _guard(plugin: Plugin, method: str, point: str) -> Callable[..., Any]:
    call = getattr(plugin, method)

    def guard(*args: Any, **options: Any) -> Any:
        try:
            answer = call(*args, **options)
        except (PluginError, NotImplementedError):
            raise
        except Exception as error:
            raise PluginError(_told(plugin, point, error)) from error
        if method in _ARRAYS and answer is not None:
            return _checked(plugin, point, method, answer, args)
        if callable(answer):  # one row at a time
            return _guard_row(plugin, point, answer)
        return answer

    return guard


def _guard_row(plugin: Plugin, point: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def guard(row: int) -> Any:
        try:
            return call(row)
        except PluginError:
            raise
        except Exception as error:
            raise PluginError(_told(plugin, point, error)) from error

    return guard


def _checked(plugin: Plugin, point: str, method: str, answer: Any, args: tuple[Any, ...]) -> Any:
    """Whole numbers, one for each row; scores of a pod between 0 and 100."""
    state = args[1] if method in ("filter", "score") else args[2]
    count = len(state.present[args[2]]) if method in ("filter", "score") else state.row_limit
    array = np.asarray(answer)
    if array.shape != (count,) or array.dtype.kind not in "iub":
        want = f"want {count} whole numbers"
        raise PluginError(_told(plugin, point, f"got {array.dtype}{list(array.shape)}, {want}"))
    if method == "score_pod":
        among = array[args[3]]
        if len(among) and not (among.min() >= 0 and among.max() <= MAX_NODE_SCORE):
            wrong = f"got scores of {among.min()} to {among.max()}, want 0 to {MAX_NODE_SCORE}"
            raise PluginError(_told(plugin, point, wrong))
    return array.astype(np.int64)


def _or_else(call: Callable[..., Any], harmless: Callable[[Exception], Any]) -> Callable[..., Any]:
    def guard(*args: Any) -> Any:
        try:
            return call(*args)
        except NotImplementedError:
            raise
        except Exception as error:
            return harmless(error)

    return guard


def _gate(plugin: Plugin) -> Callable[[Exception], Rejection]:
    return lambda error: Rejection((_told(plugin, "PreEnqueue", error),))


def _told(plugin: Plugin, point: str, why: object) -> str:
    text = f"{type(why).__name__}: {why}" if isinstance(why, Exception) else str(why)
    return f'running {point} plugin "{plugin.name}": {text}'
