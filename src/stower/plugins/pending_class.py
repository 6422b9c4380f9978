"""PendingClass: tells of each pod that waits for long what it takes until it runs, as a condition.

The condition `stower.dev/Pending` has the class of `stower explain pod` as its reason (Never,
Blocked, Waiting, Ready) and why it is so as its message. It goes when the pod has a node. Not part
of the default profile: an explanation costs as much as many attempts.

    plugins: {multiPoint: {enabled: [{name: PendingClass}]}}
    pluginConfig:
      - name: PendingClass
        args: {afterSeconds: 30}
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from typing import Annotated, Any, Final

import msgspec

from stower.framework.args import Args, convert_args
from stower.framework.cluster_events import ClusterEvent
from stower.framework.companion import Metric, TrialScheduler
from stower.framework.plugin import Features, Plugin
from stower.framework.writes import PatchPodStatus, Write
from stower.model.kinds import ApiObject, Pod
from stower.model.kinds.pod import PodCondition
from stower.model.times import SECOND_NS, time_ns
from stower.state.cluster import ClusterState

CONDITION: Final = "stower.dev/Pending"
# A pod is explained anew so long after its last explanation.
REFRESH_NS: Final = 60 * SECOND_NS
# No two explanations come sooner after each other, and later the more pods there are: what costs
# most looks at the cluster without any of them, some 12 us for each.
SPACING_NS: Final = SECOND_NS
SPACING_PER_POD_NS: Final = 250_000
MESSAGE_MAX: Final = 1_024
DAY_S: Final = 86_400


class PendingClassArgs(Args, frozen=True, rename="camel"):
    """Arguments of the plugin: for how long a pod waits before it is explained."""

    after_seconds: Annotated[int, msgspec.Meta(ge=0, le=DAY_S)] = 30


class PendingClass(Plugin):
    """Has a companion, and no extension point."""

    name = "PendingClass"

    def __init__(self, after_seconds: int = PendingClassArgs().after_seconds) -> None:
        self._after_seconds = after_seconds

    @classmethod
    def from_args(
        cls, args: Mapping[str, Any] | None, path: str, features: Features
    ) -> "PendingClass":
        """Reads PendingClassArgs: afterSeconds."""
        return cls(convert_args(args, PendingClassArgs, path).after_seconds)

    def companion(self, state: ClusterState, seed: int) -> "PendingConditions":
        """Returns the companion, which writes the conditions."""
        return PendingConditions(state, self._after_seconds * SECOND_NS)


class PendingConditions:
    """See Companion."""

    def __init__(self, state: ClusterState, after_ns: int) -> None:
        self._state = state
        self._after_ns = after_ns
        self._trial_scheduler: TrialScheduler | None = None
        self._pods: dict[str, Pod] = {}  # that wait, by uid
        self._due: list[tuple[int, str]] = []  # a heap, with one entry for each of them
        self._done: dict[str, Pod] = {}  # with a node and the condition, by uid
        self._sent: dict[str, PodCondition] = {}  # by uid, and not shown yet
        self._asked: dict[int, str] = {}  # uids by write without an answer
        self._not_before_ns = 0
        self._is_held = False

    def attach(self, trial_scheduler: TrialScheduler) -> None:
        """See Companion."""
        self._trial_scheduler = trial_scheduler

    def on_object(self, obj: ApiObject, is_deleted: bool, now_ns: int) -> None:
        """See Companion."""
        if not isinstance(obj, Pod):
            return
        uid = obj.metadata.uid
        condition = obj.condition(CONDITION)
        if condition is not None and condition == self._sent.get(uid):
            del self._sent[uid]
        self._done.pop(uid, None)
        if is_deleted or obj.spec.node_name or obj.is_terminal:
            self._pods.pop(uid, None)
            self._sent.pop(uid, None)
            if condition is not None and not is_deleted and not obj.is_terminal:
                self._done[uid] = obj
            return
        if uid not in self._pods:
            made_ns = time_ns(obj.metadata.creation_timestamp)
            since_ns = now_ns if made_ns is None else min(made_ns, now_ns)
            heappush(self._due, (since_ns + self._after_ns, uid))
        self._pods[uid] = obj

    def on_list(self, objects: Iterable[ApiObject], now_ns: int) -> None:
        """See Companion."""
        for kept in (self._pods, self._done, self._sent):
            kept.clear()
        self._due.clear()
        for obj in objects:
            self.on_object(obj, False, now_ns)

    def run(self, now_ns: int, next_id: Callable[[], int], is_held: bool) -> list[Write]:
        """See Companion."""
        self._is_held = is_held
        if is_held:
            return []
        writes: list[Write] = []
        asked = set(self._asked.values())
        for uid in [uid for uid in self._done if uid not in asked]:
            writes.append(self._patch(self._done.pop(uid), next_id(), removed=(CONDITION,)))
        if now_ns >= self._not_before_ns and (pod := self._pop(now_ns)) is not None:
            cost_ns = SPACING_PER_POD_NS * len(self._state.pods)
            self._not_before_ns = now_ns + max(SPACING_NS, cost_ns)
            heappush(self._due, (now_ns + REFRESH_NS, pod.metadata.uid))
            condition = self._explained(pod)
            if condition is not None:
                self._sent[pod.metadata.uid] = condition
                writes.append(self._patch(pod, next_id(), condition))
        return writes

    def _pop(self, now_ns: int) -> Pod | None:
        """Returns the pod whose turn it is, if one is due."""
        while self._due and self._due[0][0] <= now_ns:
            _, uid = heappop(self._due)
            if (pod := self._pods.get(uid)) is not None:
                return pod
        return None

    def _explained(self, pod: Pod) -> PodCondition | None:
        """Returns the condition to write; None where the pod says it, or is placed by now."""
        entry = self._state.pods.get(pod.metadata.uid)
        if self._trial_scheduler is None or entry is None or entry.row >= 0:
            return None
        found = self._trial_scheduler.classify(pod)
        if found is None:
            return None
        class_, because = found
        text = because if len(because) <= MESSAGE_MAX else f"{because[: MESSAGE_MAX - 3]}..."
        condition = PodCondition(CONDITION, "True", class_.title(), text)
        told = self._sent.get(pod.metadata.uid) or pod.condition(CONDITION)
        return None if told == condition else condition

    def _patch(
        self,
        pod: Pod,
        id: int,
        condition: PodCondition | None = None,
        removed: tuple[str, ...] = (),
    ) -> PatchPodStatus:
        meta = pod.metadata
        self._asked[id] = meta.uid
        return PatchPodStatus(
            id, meta.namespace, meta.name, meta.uid, condition, removed_conditions=removed,
            generation=meta.generation if condition is not None else 0,
        )  # fmt: skip

    def take_cluster_events(self) -> list[ClusterEvent]:
        """See Companion."""
        return []

    def take_pods_to_activate(self) -> list[tuple[str, str]]:
        """See Companion."""
        return []

    def on_answer(self, id: int, code: int, message: str, now_ns: int) -> None:
        """See Companion. What has failed is repeated: by the next explanation, and of a pod with a
        node after its next event."""
        uid = self._asked.pop(id)
        if code:
            self._sent.pop(uid, None)

    @property
    def next_wake_ns(self) -> int | None:
        """See Companion."""
        if self._is_held or not self._due:
            return None
        return max(self._due[0][0], self._not_before_ns)

    def take_log_lines(self) -> list[tuple[str, str, str]]:
        """See Companion."""
        return []

    def metrics(self) -> list[Metric]:
        """See Companion."""
        return []

    @property
    def is_idle(self) -> bool:
        """See Companion."""
        return not self._asked

    def on_request(self, id: int, method: str, body: bytes, now_ns: int) -> bool:
        """See Companion."""
        return False
