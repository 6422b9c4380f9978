"""Hypothesis strategies for small clusters: few names and values, so that things collide."""

from typing import Any

from hypothesis import strategies as st

from stower.model.kinds import Node, Pod
from tests.builders import make_node, make_pod

NODE_NAMES = ("a", "b", "c", "d", "e")
ZONES = ("z1", "z2")

taints = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(("k1", "k2")),
            "value": st.sampled_from(("", "v")),
            "effect": st.sampled_from(("NoSchedule", "PreferNoSchedule", "NoExecute")),
        }
    ),
    max_size=2,
)
tolerations = st.lists(
    st.one_of(
        st.fixed_dictionaries(
            {"key": st.sampled_from(("k1", "k2")), "operator": st.just("Exists")},
            optional={"effect": st.sampled_from(("NoSchedule", "PreferNoSchedule"))},
        ),
        st.just({"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}),
    ),
    max_size=2,
)


@st.composite
def nodes(draw: Any, name: str | None = None) -> Node:
    """A node of one of few names and sizes."""
    extended = {"example.com__gpu": draw(st.sampled_from(("0", "1", "4")))}
    return make_node(
        name or draw(st.sampled_from(NODE_NAMES)),
        cpu=draw(st.sampled_from(("1", "2", "4500m"))),
        memory=draw(st.sampled_from(("1Gi", "1Gi", "4Gi", "0", "200Pi", "7Ei"))),
        pods=draw(st.sampled_from(("2", "5", "110"))),
        labels=draw(
            st.fixed_dictionaries(
                {}, optional={"zone": st.sampled_from(ZONES), "disk": st.sampled_from(("ssd", "7"))}
            )
        ),
        taints=draw(taints),
        unschedulable=draw(st.integers(0, 5)) == 0,
        images=draw(st.dictionaries(st.just("app:latest"), st.just(300_000_000), max_size=1)),
        **(extended if draw(st.booleans()) else {}),
    )


_expression = st.one_of(
    st.builds(
        lambda key, op, values: {"key": key, "operator": op, "values": values},
        st.sampled_from(("zone", "disk", "none")),
        st.sampled_from(("In", "NotIn")),
        st.lists(st.sampled_from(("z1", "z2", "ssd", "7")), min_size=1, max_size=2),
    ),
    st.builds(
        lambda key, op: {"key": key, "operator": op},
        st.sampled_from(("zone", "disk")),
        st.sampled_from(("Exists", "DoesNotExist")),
    ),
    st.builds(
        lambda op, value: {"key": "disk", "operator": op, "values": [value]},
        st.sampled_from(("Gt", "Lt")),
        st.sampled_from(("5", "9", "x")),
    ),
)
_field = st.builds(
    lambda op, name: {"key": "metadata.name", "operator": op, "values": [name]},
    st.sampled_from(("In", "NotIn")),
    st.sampled_from(NODE_NAMES),
)
_term = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(_expression, max_size=2),
        "matchFields": st.lists(_field, max_size=1),
    },
)
node_affinity = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
            {"nodeSelectorTerms": st.lists(_term, min_size=1, max_size=2)}
        ),
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
            st.builds(
                lambda weight, term: {"weight": weight, "preference": term},
                st.integers(0, 9),
                _term,
            ),
            max_size=2,
        ),
    },
)


_NOT_DB = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]}
_WEB, _DB = ({"matchLabels": {"app": app}} for app in ("web", "db"))
_selector = st.sampled_from((_WEB, _WEB, _WEB, _DB, _NOT_DB, _NOT_DB, {}, None))
_keys = st.sampled_from(
    ("zone", "zone", "zone", "kubernetes.io/hostname", "kubernetes.io/hostname", "disk", "nowhere")
)


@st.composite
def _pod_term(draw: Any) -> dict[str, Any]:
    """A term about other pods."""
    term: dict[str, Any] = {"topologyKey": draw(_keys), "labelSelector": draw(_selector)}
    if draw(st.integers(0, 3)) == 0:
        term["namespaces"] = draw(st.lists(st.sampled_from(("default", "other")), max_size=2))
    if draw(st.integers(0, 3)) == 0:
        term["namespaceSelector"] = draw(st.sampled_from(({}, {"matchLabels": {"team": "a"}})))
    return term


_pod_terms = st.fixed_dictionaries(
    {},
    optional={
        "requiredDuringSchedulingIgnoredDuringExecution": st.lists(_pod_term(), max_size=2),
        "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
            st.builds(
                lambda weight, term: {"weight": weight, "podAffinityTerm": term},
                st.integers(1, 9),
                _pod_term(),
            ),
            max_size=2,
        ),
    },
)


_ACTIONS = ("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")


@st.composite
def _spread(draw: Any) -> dict[str, Any]:
    """A topology spread constraint."""
    made: dict[str, Any] = {
        "maxSkew": draw(st.sampled_from((1, 1, 2, 3))),
        "topologyKey": draw(_keys),
        "whenUnsatisfiable": draw(st.sampled_from(_ACTIONS)),
        "labelSelector": draw(_selector),
    }
    if draw(st.booleans()):
        made["minDomains"] = draw(st.integers(1, 4))
    for field in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if draw(st.integers(0, 3)) == 0:
            made[field] = draw(st.sampled_from(("Honor", "Ignore")))
    if draw(st.integers(0, 3)) == 0:
        made["matchLabelKeys"] = ["app"]
    return made


@st.composite
def social_pods(draw: Any, name: str, node: str = "") -> Pod:
    """A pod with much to say about others."""
    affinity = {}
    for field in ("podAffinity", "podAntiAffinity"):
        if draw(st.booleans()):
            affinity[field] = draw(_pod_terms)
    extra: dict[str, Any] = {"topologySpreadConstraints": draw(st.lists(_spread(), max_size=2))}
    if draw(st.integers(0, 3)) == 0:
        extra["nodeSelector"] = {"zone": draw(st.sampled_from(ZONES))}
    apps = st.sampled_from(("web", "web", "db"))
    namespace = draw(st.sampled_from(("default", "default", "other")))
    return make_pod(
        name,
        node=node,
        namespace=namespace,
        labels={"app": draw(apps)},
        deletion=draw(st.sampled_from((None, None, "2026-01-01T00:00:00Z"))),
        tolerations=draw(tolerations),
        affinity=affinity,
        **extra,
    )


@st.composite
def pods(draw: Any, name: str, node: str = "") -> Pod:
    """A pod of one of few shapes."""
    extra: dict[str, Any] = {}
    if draw(st.integers(0, 2)) == 0:
        extra["affinity"] = {"nodeAffinity": draw(node_affinity)}
    if draw(st.integers(0, 2)) == 0:
        extra.setdefault("affinity", {})["podAffinity"] = draw(_pod_terms)
    if draw(st.integers(0, 2)) == 0:
        extra.setdefault("affinity", {})["podAntiAffinity"] = draw(_pod_terms)
    if draw(st.integers(0, 2)) == 0:
        extra["topologySpreadConstraints"] = draw(st.lists(_spread(), max_size=2))
    if draw(st.integers(0, 4)) == 0:
        extra["nodeSelector"] = {"zone": draw(st.sampled_from(ZONES))}
    if draw(st.integers(0, 5)) == 0:
        extra["overhead"] = {"cpu": "50m"}
    gpu = draw(st.sampled_from((None, None, "1", "2")))
    return make_pod(
        name,
        node=node,
        cpu=draw(st.sampled_from((None, "0", "100m", "900m", "2"))),
        memory=draw(st.sampled_from((None, "100Mi", "100Mi", "1Gi", "1Pi", "6Ei"))),
        labels=draw(st.dictionaries(st.just("app"), st.sampled_from(("web", "db")), max_size=1)),
        priority=draw(st.sampled_from((0, 0, 10))),
        ports=draw(st.lists(st.sampled_from((80, 443)), max_size=1)),
        image=draw(st.sampled_from(("app", "other:1"))),
        requests={"example.com/gpu": gpu} if gpu else {},
        tolerations=draw(tolerations),
        **extra,
    )
