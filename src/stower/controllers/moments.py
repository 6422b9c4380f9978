"""The exact times of what objects date in whole seconds: a container that runs for five seconds
would run for up to one less, if its start were read from its status.

Nothing remembers them after a restart. The end of the second counts then: nothing takes less time
than it should, and at most a second more.
"""

from collections.abc import Callable
from typing import Final

from stower.controllers.objects import Object, uid_of
from stower.model.times import SECOND_NS, time_ns

PER_POD_MAX: Final = 32  # arbitrary: containers of a pod start and end in few different seconds
ExactTime = Callable[[str | None], int]


class Moments:
    """When something happened to pods, by uid and second: the last time in each."""

    def __init__(self) -> None:
        self._by_pod: dict[str, dict[int, int]] = {}

    def note(self, pod: Object, now_ns: int) -> None:
        """Remembers that a status is written that may say that something happened now."""
        own = self._by_pod.setdefault(uid_of(pod), {})
        own[now_ns // SECOND_NS] = now_ns
        if len(own) > PER_POD_MAX:
            del own[min(own)]

    def forget(self, pod: Object) -> None:
        """Forgets a pod."""
        self._by_pod.pop(uid_of(pod), None)

    def of(self, pod: Object, now_ns: int) -> ExactTime:
        """Returns what gives the exact time, in ns, of one that the pod's status gives or will
        give when what happens now is written."""
        own = self._by_pod.get(uid_of(pod), {})

        def exact(text: str | None) -> int:
            at_ns = time_ns(text)
            if at_ns is None:
                return 0
            return own.get(at_ns // SECOND_NS, min(at_ns + SECOND_NS, now_ns))

        return exact
