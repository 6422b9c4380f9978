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


@st.composite
def pods(draw: Any, name: str, node: str = "") -> Pod:
    """A pod of one of few shapes."""
    extra: dict[str, Any] = {}
    if draw(st.integers(0, 2)) == 0:
        extra["affinity"] = {"nodeAffinity": draw(node_affinity)}
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
