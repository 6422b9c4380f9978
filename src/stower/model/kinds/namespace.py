"""Namespace (v1): the labels that namespace selectors of pod affinity terms match."""

import msgspec

from stower.model.meta import ObjectMeta


class Namespace(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A namespace."""

    metadata: ObjectMeta
