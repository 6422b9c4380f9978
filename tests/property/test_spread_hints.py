"""The quick look at pods that come and go, for pods that spread: it overlooks nothing."""

from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from stower.plugins.spread_constraints import may_match, resolve_constraint
from tests.builders import make_pod

LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"), max_size=2)
EXPRESSION = st.fixed_dictionaries({
    "key": st.sampled_from("ab"), "operator": st.sampled_from(["In", "NotIn"]),
    "values": st.lists(st.sampled_from("xy"), min_size=1, max_size=2, unique=True),
})  # fmt: skip
CONSTRAINT = st.tuples(
    LABELS, st.lists(EXPRESSION, max_size=2), st.lists(st.sampled_from("ab"), max_size=1)
)


@settings(max_examples=300)
@given(st.lists(CONSTRAINT, max_size=3), LABELS, LABELS)
def test_no_pod_that_a_constraint_matches_is_overlooked(
    drawn: list[Any], own: dict[str, str], labels: dict[str, str]
) -> None:
    constraints = [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
         "labelSelector": {"matchLabels": match, "matchExpressions": expressions},
         "matchLabelKeys": keys}
        for match, expressions, keys in drawn
    ]  # fmt: skip
    pod = make_pod("p", labels=own, topologySpreadConstraints=constraints)
    other = make_pod("other", labels=labels)
    is_matched = any(
        resolve_constraint(one, pod).matches(other)
        for one in pod.spec.topology_spread_constraints or ()
    )
    assert may_match(pod, other) or not is_matched
