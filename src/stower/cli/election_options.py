"""Defines kube-scheduler's options of leader election, and merges them with leaderElection of the
configuration: an option overrides its field.
"""

from typing import Annotated, Any

import typer

from stower.framework.election import LeaderElectionConfig, read_leader_election

LeaderElect = Annotated[
    bool | None,
    typer.Option(
        "--leader-elect/--no-leader-elect",
        help="Schedule only while holding the Lease; default: as in the configuration, or on.",
    ),
]


def _option(name: str, text: str, metavar: str) -> Any:
    return typer.Option(f"--leader-elect-{name}", help=text, metavar=metavar)


LeaseDuration = Annotated[str, _option("lease-duration", "Duration of the Lease (15s).", "TIME")]
RenewDeadline = Annotated[
    str,
    _option("renew-deadline", "Stop leading this long after the last renewal (10s).", "TIME"),
]
RetryPeriod = Annotated[str, _option("retry-period", "Time between renewals (2s).", "TIME")]
ResourceName = Annotated[
    str, _option("resource-name", "Name of the Lease (kube-scheduler).", "NAME")
]
ResourceNamespace = Annotated[
    str, _option("resource-namespace", "Namespace of the Lease (kube-system).", "NAME")
]


def merge_leader_election(
    configured: dict[str, Any] | None,
    leader_elect: bool | None,
    lease_duration: str,
    renew_deadline: str,
    retry_period: str,
    resource_name: str,
    resource_namespace: str,
) -> LeaderElectionConfig | None:
    """Returns the election that the options and the configuration describe; None: no election.

    An option overrides the field of the configuration.
    Raises InvalidObject.
    """
    given: dict[str, Any] = {
        "leaderElect": leader_elect,
        "leaseDuration": lease_duration or None,
        "renewDeadline": renew_deadline or None,
        "retryPeriod": retry_period or None,
        "resourceName": resource_name or None,
        "resourceNamespace": resource_namespace or None,
    }
    own = {key: value for key, value in given.items() if value is not None}
    return read_leader_election({**(configured or {}), **own})
