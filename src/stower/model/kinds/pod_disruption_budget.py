"""PodDisruptionBudget (policy/v1): how many of the selected pods may be evicted now."""

import msgspec

from stower.model.meta import ObjectMeta
from stower.model.numbers import Int32
from stower.model.selectors import LabelSelector


class BudgetSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Whom it protects."""

    selector: LabelSelector | None = None


class BudgetStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """What is left of it, and pods whose eviction is counted already."""

    disruptions_allowed: Int32 = 0
    disrupted_pods: dict[str, str] | None = None


class PodDisruptionBudget(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A budget."""

    metadata: ObjectMeta
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()
