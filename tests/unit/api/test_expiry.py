"""Events that are too old go, by when they were last written; nothing else does."""

from stower.api.expiry import AT_ONCE, EventExpiry
from stower.api.requests import Request, encode
from stower.api.server import Api
from stower.apiserver.tables import load_registry

PATH = "/api/v1/namespaces/default/events"
HOUR_NS = 3600 * 10**9


def told(api: Api, name: str, now_ns: int, method: str = "POST", reason: str = "Scheduled") -> None:
    item = {
        "metadata": {"name": name}, "reason": reason, "type": "Normal",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
    }  # fmt: skip
    path = PATH if method == "POST" else f"{PATH}/{name}"
    answer = api.handle(Request(method, path, now_ns, body=encode(item)))
    assert answer.status in (200, 201)  # type: ignore[union-attr]


def names(api: Api) -> list[str]:
    return [key.partition("/")[2] for key in api.store.collection(("", "events")).keys]


def swept(api: Api, expiry: EventExpiry, now_ns: int) -> int:
    expiry.find_expired(now_ns)
    turns = 1
    while expiry.remove_some(now_ns):
        turns += 1
    return turns


def test_an_event_goes_an_hour_after_it_was_last_written() -> None:
    api = Api(load_registry("1.36"), seed=1)
    api.bootstrap(1)
    expiry = EventExpiry(api, HOUR_NS, 1)
    told(api, "early", 1)
    told(api, "again", 1)
    swept(api, expiry, HOUR_NS // 2)
    told(api, "late", HOUR_NS // 2 + 1)
    told(api, "again", HOUR_NS // 2 + 1, "PUT", "Scheduled")  # says nothing new: no write
    told(api, "again", HOUR_NS // 2 + 1, "PUT", "Pulled")
    assert ["again", "early", "late"] == names(api)
    swept(api, expiry, HOUR_NS // 2 + HOUR_NS)
    assert ["again", "late"] == names(api)
    namespaces = list(api.store.collection(("", "namespaces")).keys)
    swept(api, expiry, HOUR_NS * 2 + HOUR_NS // 2)
    assert [] == names(api)
    assert namespaces == list(api.store.collection(("", "namespaces")).keys)


def test_many_go_a_few_at_a_time_and_watchers_are_told() -> None:
    api = Api(load_registry("1.36"), seed=1)
    api.bootstrap(1)
    expiry = EventExpiry(api, HOUR_NS, 1)
    for number in range(3 * AT_ONCE):
        told(api, f"e{number}", 1)
    swept(api, expiry, 2)
    revision = api.store.revision
    assert 3 == swept(api, expiry, 2 + HOUR_NS)
    events = api.store.collection(("", "events")).events_after(revision)
    assert events is not None
    assert ["DELETED"] * 3 * AT_ONCE == [event.type for event in events]


def test_what_is_written_again_before_its_turn_stays() -> None:
    api = Api(load_registry("1.36"), seed=1)
    api.bootstrap(1)
    expiry = EventExpiry(api, HOUR_NS, 1)
    for number in range(AT_ONCE + 1):
        told(api, f"e{number:03}", 1)
    swept(api, expiry, 2)
    expiry.find_expired(2 + HOUR_NS)
    assert expiry.remove_some(2 + HOUR_NS)
    (left,) = names(api)
    told(api, left, 2 + HOUR_NS, "PUT", "Pulled")
    assert not expiry.remove_some(2 + HOUR_NS)
    assert [left] == names(api)
