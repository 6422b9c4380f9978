"""Defines and validates the `extenders` section of a KubeSchedulerConfiguration: HTTP services that
filter, score, preempt and bind.

Must not call an extender.

Source: kube-scheduler apis/config Extender, apis/config/validation validateExtenders.
"""

from collections.abc import Iterator
from typing import Final

from stower.framework.args import Args, invalid, label_name_faults, required
from stower.model.errors import InvalidObject
from stower.model.resources import is_extended
from stower.model.times import SECOND_NS, duration_ns

TIMEOUT_SECONDS: Final = 5


class ManagedResource(Args, frozen=True, rename="camel"):
    """A resource that the extender manages. An extender that manages resources is only called for
    pods that request one of them."""

    name: str
    ignored_by_scheduler: bool = False


class ExtenderTls(Args, frozen=True, rename="camel"):
    """TLS settings of an extender: how its certificate is verified, and the client certificate to
    present. The `data` fields are base64."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: str = ""
    key_data: str = ""
    ca_data: str = ""


class Extender(Args, frozen=True, rename={
    "url_prefix": "urlPrefix", "filter_verb": "filterVerb", "preempt_verb": "preemptVerb",
    "prioritize_verb": "prioritizeVerb", "bind_verb": "bindVerb", "enable_https": "enableHTTPS",
    "tls_config": "tlsConfig", "http_timeout": "httpTimeout",
    "node_cache_capable": "nodeCacheCapable", "managed_resources": "managedResources",
}):  # fmt: skip
    """The configuration of one extender. The extender is not called for a verb that is empty."""

    url_prefix: str = ""
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 0
    bind_verb: str = ""
    enable_https: bool = False
    tls_config: ExtenderTls | None = None
    http_timeout: str = ""
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False

    @property
    def timeout_ns(self) -> int:
        """The longest time that a call waits for the response."""
        return (duration_ns(self.http_timeout) or 0) or TIMEOUT_SECONDS * SECOND_NS


def extender_faults(extenders: tuple[Extender, ...]) -> Iterator[InvalidObject]:
    """Yields what is wrong with the extenders (validateExtenders)."""
    managed: set[str] = set()
    binders = 0
    for i, extender in enumerate(extenders):
        path = f"extenders[{i}]"
        if not extender.url_prefix.startswith(("http://", "https://")):
            yield required(f"{path}.urlPrefix", "must be http://HOST/PATH or https://HOST/PATH")
        if extender.prioritize_verb and extender.weight <= 0:
            text = "must have a positive weight applied to it"
            yield invalid(f"{path}.weight", extender.weight, text)
        if extender.http_timeout and duration_ns(extender.http_timeout) is None:
            yield invalid(
                f"{path}.httpTimeout", extender.http_timeout, "must be a duration such as 5s"
            )
        binders += bool(extender.bind_verb)
        for j, resource in enumerate(extender.managed_resources):
            name_path = f"{path}.managedResources[{j}].name"
            faults = list(label_name_faults(resource.name, name_path))
            yield from faults
            if not faults and not is_extended(resource.name):
                yield invalid(name_path, resource.name, "is an invalid extended resource name")
            if resource.name in managed:
                yield invalid(name_path, resource.name, "duplicate extender managed resource name")
            managed.add(resource.name)
    if binders > 1:
        found = f"found {binders} extenders implementing bind"
        yield invalid("extenders", found, "only one extender can implement bind")
