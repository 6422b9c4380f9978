"""Whatever is asked for in whatever spelling: what is carried out is what was authorized.

The model reads paths with one regular expression over what discovery lists; it shares no code with
RequestInfo, the authorizer or the router.
"""

import json
import re
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote

from hypothesis import strategies as st

from stower.api.errors import ApiError
from stower.api.request_info import read_request_info
from stower.api.requests import APPLY_PATCH, JSON, MERGE_PATCH, Request, Response, encode
from stower.api.server import Api
from stower.api.users import AUTHENTICATED, UserInfo
from stower.api.watches import Watch
from stower.apiserver.tables import load_registry
from stower.apiserver.targets import parse_target
from tests.fuzz.limits import fuzzed

Object = dict[str, Any]
NOW_NS: Final = 1_800_000_000 * 10**9
REGISTRY: Final = load_registry("1.36")
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
MARK: Final = "only-for-eyes-that-may-see"
JO: Final = UserInfo("jo", (AUTHENTICATED,))
PUBLIC: Final = ("", "/api", "/apis", "/openapi", "/version", "/healthz", "/livez", "/readyz")

_PATH: Final = re.compile(
    r"/+(?:api/(?P<core>[^/]+)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))(?P<watch>/watch)?"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/(?!status/*$|finalize/*$)[^/]))?"
    r"/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?/*"
)


class Meaning(NamedTuple):
    """What a request does: a verb on a resource (with its subresource) of a group."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str


def meaning_of(method: str, target: str) -> Meaning | None:
    """Returns what a request means; None: nothing that is served."""
    target = re.sub(r"^https?://[^/]*", "", target)
    path, _, query = target.partition("?")
    found = _PATH.fullmatch(unquote(path))
    if found is None:
        return None
    group, version = found["group"] or "", found["core"] or found["version"]
    resource = REGISTRY.find(group, version, found["plural"])
    if resource is None or (found["namespace"] and not resource.namespaced):
        return None
    plain = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
    verb, name = plain.get(method, ""), found["name"] or ""
    pairs = parse_qsl(query, keep_blank_values=True)
    watches = next((v for k, v in pairs if k == "watch"), "0").lower() not in ("0", "false")
    if found["watch"]:
        if method != "GET" or found["sub"]:
            return None
        verb = "watch"
    elif verb == "get" and not name:
        verb = "watch" if watches else "list"
    elif verb == "delete" and not name:
        verb = "deletecollection"
    if verb in ("list", "watch") and not (name or found["watch"]):  # upstream: only what was a get
        text = next((v for k, v in pairs if k == "fieldSelector"), "")
        chosen = re.findall(r"(?:^|,)metadata\.name==?([a-z0-9-]+)(?=,|$)", text)
        name = chosen[0] if chosen else ""
    namespace = found["namespace"] or ""
    if not resource.namespaced and found["plural"] == "namespaces" and found["name"]:
        namespace = found["name"]
    full = f"{found['plural']}/{found['sub']}" if found["sub"] else found["plural"]
    return Meaning(verb, group, full, namespace, name)


def _send(api: Api, user: UserInfo, ask: "Ask", target: str) -> Response | Watch | None:
    """Sends a request as the handler would; None where its target is none."""
    try:
        path, query = parse_target(target.encode())
    except ApiError:
        return None
    info = read_request_info(ask.method, path, query)
    body = b"" if ask.method == "GET" else encode(ask.body)
    return api.handle(Request(
        ask.method, path, NOW_NS, query, body, ask.content_type, user=user, info=info
    ))  # fmt: skip


def _cluster() -> Api:
    """Returns a server with some objects in two namespaces; each says the mark."""
    api = Api(REGISTRY, seed=1, secret="s", by_roles=True)
    api.bootstrap(NOW_NS)
    for namespace in ("a", "b"):
        _create(api, "/api/v1/namespaces", {"metadata": {"name": namespace}})
        root = f"/api/v1/namespaces/{namespace}"
        for plural in ("secrets", "configmaps", "serviceaccounts", "services"):
            meta = {"name": "x", "annotations": {"mark": MARK}}
            spec = {"spec": {"ports": [{"port": 80}]}} if plural == "services" else {}
            _create(api, f"{root}/{plural}", {"metadata": meta, **spec})
    return api


def _create(api: Api, path: str, body: Object) -> None:
    response = api.handle(Request("POST", path, NOW_NS, body=encode(body), content_type=JSON))
    assert isinstance(response, Response)
    assert 201 == response.status, response.body


def _grant(api: Api, meaning: Meaning) -> bool:
    """Gives jo the right to do just that. Returns whether there is a namespace for it."""
    names = [meaning.name] if meaning.name and meaning.verb != "create" else []
    rule = {"verbs": [meaning.verb], "apiGroups": [meaning.group],
            "resources": [meaning.resource], "resourceNames": names}  # fmt: skip
    root = f"{RBAC}/namespaces/{meaning.namespace}/" if meaning.namespace else f"{RBAC}/cluster"
    kind = "Role" if meaning.namespace else "ClusterRole"
    if meaning.namespace not in ("a", "b", ""):
        return False
    _create(api, f"{root}roles", {"metadata": {"name": "r"}, "rules": [rule]})
    reference = {"kind": kind, "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
    subject = {"kind": "User", "name": "jo", "apiGroup": "rbac.authorization.k8s.io"}
    _create(api, f"{root}rolebindings", {
        "metadata": {"name": "r"}, "roleRef": reference, "subjects": [subject]
    })  # fmt: skip
    return True


class Ask(NamedTuple):
    """`granted` has another meaning, most of the time: what jo may do instead."""

    method: str
    target: str
    content_type: str
    body: Object
    granted: tuple[str, str]


def _is_public(target: str) -> bool:
    """Whether everybody may read a path that is no resource's: discovery and health."""
    path = unquote(re.sub(r"^https?://[^/]*", "", target).partition("?")[0]).rstrip("/")
    return path.startswith(("/api", "/openapi")) or path in PUBLIC


def carried_out(ask: Ask) -> None:
    """Nothing succeeds without the right to it, and with the right, what succeeds for everybody's
    master succeeds for jo; nobody sees or changes what is not meant."""
    meaning = meaning_of(ask.method, ask.target)
    api = _cluster()
    revision = api.store.revision
    _check_refused(ask, meaning, _send(api, JO, ask, ask.target), api, revision)
    other = meaning_of(*ask.granted)
    if other is not None and other != meaning and not _includes(other, meaning):
        _grant(api, other)
        revision = api.store.revision
        _check_refused(ask, meaning, _send(api, JO, ask, ask.target), api, revision)
    if meaning is None:
        return
    free, bound = _cluster(), _cluster()
    before = free.store.revision
    master = _send(free, Request("GET", "/", 0).user, ask, ask.target)
    _check_effect(free, before, meaning)
    is_granted = _grant(bound, meaning)
    own = _send(bound, JO, ask, ask.target)
    is_plain = ask.content_type != APPLY_PATCH and not _is_rbac(meaning)
    if _succeeds(master) and is_plain and is_granted:
        assert _succeeds(own), (meaning, own)


def _is_rbac(meaning: Meaning) -> bool:
    return meaning.group == "rbac.authorization.k8s.io"


def _includes(wider: Meaning, meaning: Meaning | None) -> bool:
    """Whether a right without a name or namespace covers the meaning."""
    return meaning is not None and (
        wider[:3] == meaning[:3]
        and wider.namespace in ("", meaning.namespace)
        and (wider.name in ("", meaning.name) or wider.verb == "create")
    )


def _succeeds(response: Response | Watch | None) -> bool:
    return isinstance(response, Watch) or (response is not None and response.status < 400)


def _check_refused(
    ask: Ask,
    meaning: Meaning | None,
    response: Response | Watch | None,
    api: Api,
    revision: int,
) -> None:
    is_own = meaning is not None and meaning.resource.startswith("self")
    assert not isinstance(response, Watch), ask
    assert revision == api.store.revision, ask
    if response is None or is_own:
        return
    assert MARK.encode() not in response.body, ask
    assert b'"token":"' not in response.body, ask  # "token":{ describes it
    if response.status < 400:
        assert meaning is None, ask
        assert _is_public(ask.target), ask


def _check_effect(api: Api, before: int, meaning: Meaning) -> None:
    """Only objects of the resource were changed, and only in its namespace."""
    for (group, plural), collection in api.store.collections.items():
        for event in collection.events_after(before) or ():
            assert (meaning.group, meaning.resource.partition("/")[0]) == (group, plural)
            namespace, slash, name = event.record.key.rpartition("/")
            assert not slash or meaning.namespace in ("", namespace)
            assert meaning.name in ("", name)


SEGMENTS: Final = (
    "api", "apis", "v1", "apps", "rbac.authorization.k8s.io", "namespaces", "a", "b", "x", "watch",
    "proxy", "secrets", "configmaps", "serviceaccounts", "services", "pods", "nodes", "token",
    "status", "finalize", "eviction", "binding", "log", "roles", "clusterroles", "bindings", "",
    ".", "..", "%61", "secret%73", "*", "healthz", "selfsubjectreviews", "tokenreviews",
    "authentication.k8s.io",
)  # fmt: skip
WELL_FORMED: Final = (
    "/api/v1/namespaces/{n}/secrets", "/api/v1/namespaces/{n}/secrets/x", "/api/v1/secrets",
    "/api/v1/namespaces/{n}/configmaps", "/api/v1/namespaces/{n}/configmaps/x",
    "/api/v1/namespaces/{n}/configmaps/y", "/api/v1/namespaces/{n}/serviceaccounts/x/token",
    "/api/v1/namespaces/{n}", "/api/v1/namespaces/{n}/status", "/api/v1/namespaces/{n}/finalize",
    "/api/v1/namespaces", "/api/v1/configmaps", "/api/v1/nodes", "/api/v1/nodes/x/status",
    "/api/v1/namespaces/{n}/services/x", "/api/v1/watch/namespaces/{n}/secrets",
    "/api/v1/watch/secrets", "/api/v1/watch/namespaces/{n}/secrets/x",
    "/api/v1/watch/namespaces/{n}/serviceaccounts/x/token",
    "/api/v1/proxy/namespaces/{n}/secrets/x", "/apis/apps/v1/namespaces/{n}/deployments",
    f"{RBAC}/namespaces/{{n}}/roles", f"{RBAC}/clusterroles", f"{RBAC}/clusterroles/cluster-admin",
    "/apis/authentication.k8s.io/v1/tokenreviews", "/apis/apps/v1", "/healthz", "/", "/openapi/v2",
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
)  # fmt: skip
QUERIES: Final = (
    "", "", "", "?watch=1", "?watch=true&watch=0", "?watch=0&watch=1",
    "?fieldSelector=metadata.name=x", "?fieldSelector=metadata.name=x,metadata.name=y",
    "?fieldSelector=metadata.name!=x", "?dryRun=All", "?limit=1&watch=x", "?fieldManager=m",
    "?fieldSelector=metadata.name=x&fieldSelector=", "?labelSelector=a", "?%77atch=1",
)  # fmt: skip
BODIES: Final = (
    {}, {"metadata": {"name": "x"}}, {"metadata": {"name": "y"}},
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "y"}, "data": {"k": "v"}},
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "y"}},
    {"spec": {"expirationSeconds": 600}}, {"metadata": {"labels": {"l": "1"}}},
    {"metadata": {"name": "y"}, "rules": [{"verbs": ["*"], "apiGroups": ["*"],
                                           "resources": ["*"]}]},
)  # fmt: skip


def _edited(path: str, edits: list[tuple[int, int, str]]) -> str:
    """A path with segments that were put in, taken away or replaced."""
    parts = path.split("/")
    for what, at, segment in edits:
        i = at % (len(parts) + 1)
        if what == 0:
            parts.insert(i, segment)
        elif what == 1 and len(parts) > 1:
            del parts[i % len(parts)]
        else:
            parts[i % len(parts)] = segment
    return "/".join(parts)


EDITS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 8), st.sampled_from(SEGMENTS)), max_size=2
)
PATHS = st.builds(
    lambda path, namespace, edits: _edited(path.format(n=namespace), edits),
    st.sampled_from(WELL_FORMED), st.sampled_from(("a", "b")), st.one_of(st.just([]), EDITS),
)  # fmt: skip
METHODS = st.sampled_from(("GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"))
TARGETS = st.builds(
    lambda host, path, query: host + path + query,
    st.sampled_from(("", "", "", "https://x", "*", "ftp://x")), PATHS, st.sampled_from(QUERIES),
)  # fmt: skip
ASKS = st.builds(
    Ask, METHODS, TARGETS, st.sampled_from((JSON, MERGE_PATCH, APPLY_PATCH)),
    st.sampled_from(BODIES), st.tuples(METHODS, TARGETS),
)  # fmt: skip
test_carried_out, test_carried_out_long = fuzzed(carried_out, 20_000, ask=ASKS)


def test_the_model_knows_what_is_asked_for() -> None:
    """So that the property is not empty: jo may do something."""
    meaning = meaning_of("GET", "/api/v1/namespaces/a/secrets/x")
    assert Meaning("get", "", "secrets", "a", "x") == meaning
    api = _cluster()
    ask = Ask("GET", "/api/v1/namespaces/a/secrets/x", JSON, {}, ("GET", "/"))
    assert not _succeeds(_send(api, JO, ask, ask.target))
    _grant(api, meaning)
    response = _send(api, JO, ask, ask.target)
    assert isinstance(response, Response)
    assert MARK == json.loads(response.body)["metadata"]["annotations"]["mark"]
