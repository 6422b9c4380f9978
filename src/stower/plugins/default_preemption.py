"""DefaultPreemption: evict pods of lower priority for one that fits nowhere, as few as will do.

Source: kube-scheduler plugins/defaultpreemption, framework/preemption.
"""

from collections.abc import Mapping
from typing import Any, Final

from stower.framework.args import Args, convert_args, invalid, raise_faults
from stower.framework.plugin import Features, Plugin
from stower.framework.post_filter import PostFilterResult, PreemptionEvaluator
from stower.model.kinds import Pod
from stower.model.kinds.pod import DISRUPTION_TARGET

PREEMPT_NEVER: Final = "Never"
PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"


class DefaultPreemptionArgs(Args, frozen=True, rename="camel"):
    """Arguments of the plugin in a KubeSchedulerConfiguration. They bound how many nodes are tried;
    here all are, always."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


class DefaultPreemption(Plugin):
    """Choose the node where evictions hurt least."""

    is_preemption = True
    name = "DefaultPreemption"

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "DefaultPreemption":
        """DefaultPreemptionArgs, checked as upstream's ValidateDefaultPreemptionArgs does."""
        read = convert_args(args, DefaultPreemptionArgs, path)
        percentage = read.min_candidate_nodes_percentage
        absolute = read.min_candidate_nodes_absolute
        share, least = "minCandidateNodesPercentage", "minCandidateNodesAbsolute"
        faults = []
        if not 0 <= percentage <= 100:
            faults.append(invalid(f"{path}.{share}", percentage, "not in valid range [0, 100]"))
        if absolute < 0:
            faults.append(invalid(f"{path}.{least}", absolute, "not in valid range [0, inf)"))
        if percentage == 0 and absolute == 0:
            text = "cannot be zero at the same time as"
            faults.append(invalid(f"{path}.{share}", 0, f"{text} {least}"))
            faults.append(invalid(f"{path}.{least}", 0, f"{text} {share}"))
        raise_faults(faults)
        return cls()

    def post_filter(self, evaluator: PreemptionEvaluator) -> PostFilterResult:
        """Victims and their node; or why there are none."""
        why_not = _ineligibility_reason(evaluator)
        if why_not:
            return PostFilterResult(f"preemption: {why_not}")
        row = evaluator.select_candidate()
        if row < 0:
            return PostFilterResult(
                f"preemption: {evaluator.no_candidate_reason()}", nominated_node_name=""
            )
        return PostFilterResult("", evaluator.state.node_names[row], evaluator.victims(row))


def _ineligibility_reason(evaluator: PreemptionEvaluator) -> str:
    pod, state = evaluator.pod, evaluator.state
    if pod.spec.preemption_policy == PREEMPT_NEVER:
        return "not eligible due to preemptionPolicy=Never."
    promised = evaluator.nominated_node_name
    row = state.row_of(promised) if promised else -1
    if row < 0 or evaluator.is_unresolvable(promised):
        return ""
    for entry in state.pods_by_row[row].values():
        if entry.pod.priority < pod.priority and (
            entry.is_deletion_pending or _is_terminating_by_preemption(entry.pod)
        ):
            return "not eligible due to a terminating pod on the nominated node."
    return ""


def _is_terminating_by_preemption(pod: Pod) -> bool:
    if pod.metadata.deletion_timestamp is None:
        return False
    condition = pod.condition(DISRUPTION_TARGET)
    return (
        condition is not None
        and condition.status == "True"
        and condition.reason == PREEMPTION_BY_SCHEDULER
    )
