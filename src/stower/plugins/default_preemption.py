"""DefaultPreemption: evicts pods of lower priority, as few as needed, for a pod that fits nowhere.

Source: kube-scheduler plugins/defaultpreemption, framework/preemption.
"""

from collections.abc import Mapping
from typing import Any, Final

from stower.framework.args import Args, convert_args, invalid, raise_faults
from stower.framework.plugin import Features, Plugin
from stower.framework.post_filter import PostFilterResult, PreemptionEvaluator
from stower.model.kinds import Pod
from stower.model.kinds.pod import DISRUPTION_TARGET, PREEMPT_NEVER
from stower.state.claim_release import is_releasing_devices

PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"


class DefaultPreemptionArgs(Args, frozen=True, rename="camel"):
    """Arguments of the plugin in a KubeSchedulerConfiguration. kube-scheduler limits the number of
    candidate nodes by them; here all candidates are always considered."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100


class DefaultPreemption(Plugin):
    """Nominates the node where evictions are least disruptive, and names the victims."""

    is_preemption = True
    name = "DefaultPreemption"

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "DefaultPreemption":
        """Reads DefaultPreemptionArgs; checks them as ValidateDefaultPreemptionArgs does."""
        parsed = convert_args(args, DefaultPreemptionArgs, path)
        percentage = parsed.min_candidate_nodes_percentage
        absolute = parsed.min_candidate_nodes_absolute
        percentage_key, absolute_key = "minCandidateNodesPercentage", "minCandidateNodesAbsolute"
        faults = []
        if not 0 <= percentage <= 100:
            faults.append(
                invalid(f"{path}.{percentage_key}", percentage, "not in valid range [0, 100]")
            )
        if absolute < 0:
            faults.append(
                invalid(f"{path}.{absolute_key}", absolute, "not in valid range [0, inf)")
            )
        if percentage == 0 and absolute == 0:
            text = "cannot be zero at the same time as"
            faults.append(invalid(f"{path}.{percentage_key}", 0, f"{text} {absolute_key}"))
            faults.append(invalid(f"{path}.{absolute_key}", 0, f"{text} {percentage_key}"))
        raise_faults(faults)
        return cls()

    def post_filter(self, evaluator: PreemptionEvaluator) -> PostFilterResult:
        """Returns the nominated node and its victims, or why there are none."""
        ineligibility = _ineligibility_reason(evaluator)
        if ineligibility:
            return PostFilterResult(f"preemption: {ineligibility}")
        row = evaluator.select_candidate()
        if row < 0:
            return PostFilterResult(
                f"preemption: {evaluator.no_candidate_reason()}", nominated_node_name=""
            )
        return PostFilterResult("", evaluator.state.node_names[row], evaluator.victims(row))


def _ineligibility_reason(evaluator: PreemptionEvaluator) -> str:
    """Returns why the pod may not preempt others, or "" (PodEligibleToPreemptOthers)."""
    pod, state = evaluator.pod, evaluator.state
    if pod.spec.preemption_policy == PREEMPT_NEVER:
        return "not eligible due to preemptionPolicy=Never."
    nominated = evaluator.nominated_node_name
    row = state.row_of(nominated) if nominated else -1
    if row < 0:
        return ""
    for victim in evaluator.leaving_victims():
        # Upstream moves no nomination; here drivers' answers do, and victims leave another node.
        if victim.row != row and not evaluator.is_unresolvable(state.node_names[victim.row]):
            return "not eligible as pods that were evicted for it are still terminating."
    if evaluator.is_unresolvable(nominated):
        return ""
    for entry in state.pods_by_row[row].values():
        if entry.pod.priority < pod.priority and (
            entry.is_deletion_pending or _is_terminating_by_preemption(entry.pod)
        ):
            return "not eligible due to a terminating pod on the nominated node."
    is_claiming = evaluator.shape.has_claims or evaluator.shape.extended_requests
    if is_claiming and is_releasing_devices(state, nominated):
        # Deleted victims hold devices until their claims are released: upstream preempts for no
        # devices, and has no text for this.
        return "not eligible as devices on the nominated node are being released."
    return ""


def _is_terminating_by_preemption(pod: Pod) -> bool:
    """Returns whether the pod is terminating because kube-scheduler preempted it."""
    if pod.metadata.deletion_timestamp is None:
        return False
    condition = pod.condition(DISRUPTION_TARGET)
    return (
        condition is not None
        and condition.status == "True"
        and condition.reason == PREEMPTION_BY_SCHEDULER
    )
