"""Namespace (v1): its labels, by which terms about pods select it."""

import msgspec

from stower.model.meta import ObjectMeta


class Namespace(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A namespace."""

    metadata: ObjectMeta
