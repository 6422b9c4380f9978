"""Caches the driver's answers about unsuitable nodes per pod, and decides when the driver is asked
again.

An answer about all candidate nodes is valid for REFRESH_NS, and stays in use until the next answer
arrives. An answer about the selected node alone is valid until the ledger changes: it decides
whether devices are allocated. Nodes on which an allocation failed count as unsuitable for
REFRESH_NS. Must not know how answers are written to PodScheduling (rules.py).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from stower.driver.messages import Examination
from stower.driver.objects import Key
from stower.driver.outbox import Outbox
from stower.driver.rules import NOTHING
from stower.driver.work_queue import WorkQueue
from stower.model.kinds import Pod, ResourceClaim
from stower.model.times import SECOND_NS

REFRESH: Final[Key] = (object, "refresh")  # the timer's key in the work queue
REFRESH_NS: Final = 30 * SECOND_NS
LEDGER_CHANGE_NS: Final = SECOND_NS  # from a ledger change to the refresh: changes come in bursts
NEVER_NS: Final = 1 << 62


class Answer(NamedTuple):
    """The driver's answer about `nodes`. `subject`: the uids of the pod and its claims. `serial`:
    the version of the ledger when the driver was asked. `is_old`: the driver must be asked again;
    the answer is used until the next one arrives."""

    subject: object
    nodes: frozenset[str]
    unsuitable: frozenset[str]
    serial: int
    is_old: bool = False


Question = tuple[str, bool]  # the pod's key; whether it is about the selected node alone


class PendingQuestion(NamedTuple):
    """A question to the driver without an answer yet; `answer.unsuitable` is empty."""

    question: Question
    answer: Answer
    claims: tuple[ResourceClaim, ...]

    @property
    def pod_key(self) -> str:
        """The key of the pod that the question is about."""
        return self.question[0]


class NodeSuitability:
    """The driver's answers by pod, and the nodes on which an allocation failed."""

    def __init__(self, outbox: Outbox, queue: WorkQueue) -> None:
        self._outbox = outbox
        self._queue = queue
        self._answers: dict[Question, Answer] = {}
        self._asking: set[Question] = set()
        self._asked: dict[int, PendingQuestion] = {}
        self._serial = 0  # of the ledger: grows with each change
        self._oldest_serial = 0  # answers about all candidates count from this serial on
        self._refresh_at_ns = NEVER_NS
        self._failed_nodes: dict[str, dict[str, int]] = {}  # by pod uid: node, until when

    @property
    def is_asking(self) -> bool:
        """Whether a question to the driver is unanswered."""
        return bool(self._asked)

    def forget_pod(self, pod_key: str) -> None:
        """Drops the answers for a pod that is deleted or has a node."""
        self._answers.pop((pod_key, True), None)
        self._answers.pop((pod_key, False), None)

    def unsuitable_nodes(
        self, pod: Pod, claims: Sequence[ResourceClaim], nodes: Sequence[str]
    ) -> frozenset[str] | None:
        """Returns the nodes of `nodes` that are unsuitable for the claims; None if there is no
        valid answer: then asks the driver, and queues the pod when the answer arrives."""
        question = (pod.metadata.key, len(nodes) == 1)
        subject = (pod.metadata.uid, tuple(claim.metadata.uid for claim in claims))
        answer = self._answers.get(question)
        oldest_serial = self._serial if question[1] else self._oldest_serial
        if (
            answer is None
            or answer.subject != subject
            or answer.serial < oldest_serial
            or not answer.nodes.issuperset(nodes)
        ):
            answer = None
        if (answer is None or answer.is_old) and question not in self._asking:
            self._asking.add(question)
            id = self._outbox.next_id()
            blank = Answer(subject, frozenset(nodes), NOTHING, self._serial)
            self._asked[id] = PendingQuestion(question, blank, tuple(claims))
            self._outbox.send(Examination(id, pod, tuple(claims), tuple(nodes)))
        if answer is None:
            return None
        self._answers[question] = answer._replace(is_old=False)
        return (answer.unsuitable | self.failed_nodes(pod)).intersection(nodes)

    def pop_question(self, id: int) -> PendingQuestion:
        """Removes and returns the question with this id, after the driver has answered or
        failed."""
        asked = self._asked.pop(id)
        self._asking.discard(asked.question)
        return asked

    def keep_answer(self, asked: PendingQuestion, unsuitable: frozenset[str]) -> None:
        """Stores the driver's answer."""
        pod_key, is_selected_node = asked.question
        answer = asked.answer._replace(unsuitable=unsuitable)
        self._answers[asked.question] = answer
        all_nodes = (pod_key, False)
        if is_selected_node and (last := self._answers.get(all_nodes)):
            if last.subject == answer.subject:
                # The newest answer about this node, until all candidates are asked about again.
                merged = (last.unsuitable - answer.nodes) | answer.unsuitable
                self._answers[all_nodes] = last._replace(unsuitable=merged)
        self._refresh_after(REFRESH_NS)

    # Failed allocations

    def on_allocation_failure(self, pod: Pod, node: str) -> None:
        """Counts the node as unsuitable for the pod for the next REFRESH_NS."""
        failed = self._failed_nodes.setdefault(pod.metadata.uid, {})
        failed[node] = self._outbox.now_ns + REFRESH_NS

    def failed_nodes(self, pod: Pod | None) -> frozenset[str]:
        """Returns the nodes on which an allocation for the pod failed in the last REFRESH_NS."""
        failed = self._failed_nodes.get(pod.metadata.uid) if pod is not None else None
        if failed is None:
            return NOTHING
        now_ns = self._outbox.now_ns
        return frozenset(node for node, until_ns in failed.items() if until_ns > now_ns)

    # Refresh

    def on_ledger_change(self) -> None:
        """Records that devices were allocated or freed, and schedules a refresh."""
        self._serial += 1
        self._refresh_after(LEDGER_CHANGE_NS)

    def _refresh_after(self, delay_ns: int) -> None:
        if self._refresh_at_ns > self._outbox.now_ns + delay_ns:
            self._refresh_at_ns = self._outbox.now_ns + delay_ns
            self._queue.add_after(REFRESH, delay_ns)

    def refresh(self) -> None:
        """If a refresh is due, queues all waiting pods so that the driver is asked about all their
        nodes again. Earlier answers stay in use meanwhile, since the driver may take longer than
        REFRESH_NS; answers from before the last change of the ledger do not."""
        if self._refresh_at_ns > self._outbox.now_ns:
            return
        self._refresh_at_ns = NEVER_NS
        self._oldest_serial = self._serial
        if self._answers:
            self._refresh_after(REFRESH_NS)
        for question, answer in self._answers.items():
            self._answers[question] = answer._replace(is_old=True)
            self._queue.add((Pod, question[0]))
        for uid, failed in [*self._failed_nodes.items()]:
            if max(failed.values()) <= self._outbox.now_ns:
                del self._failed_nodes[uid]
