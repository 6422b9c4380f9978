"""Runs `stower run` with kube-scheduler's command line, for deployments that start kube-scheduler
by name and replace only its image: a static pod, or the user-scheduler of zero-to-jupyterhub.

Options of both programs go to `stower run`. Options that only configure how kube-scheduler
authorizes requests for its metrics, or how kube-scheduler profiles itself, are accepted without
effect: Stower always authorizes such requests through the API server.
"""

import sys
from typing import Final

from stower.cli.main import main as stower

PORT: Final = "10259"
# Taken, with a value behind = or in the next argument, and of no effect here.
WITHOUT_EFFECT: Final = (
    "--allow-metric-labels", "--allow-metric-labels-manifest", "--authentication-kubeconfig",
    "--authentication-token-webhook-cache-ttl", "--authorization-always-allow-paths",
    "--authorization-kubeconfig", "--authorization-webhook-cache-authorized-ttl",
    "--authorization-webhook-cache-unauthorized-ttl", "--cert-dir", "--client-ca-file",
    "--disabled-metrics", "--emulated-version", "--http2-max-streams-per-connection",
    "--kube-api-burst", "--kube-api-content-type", "--kube-api-qps", "--leader-elect-resource-lock",
    "--log-flush-frequency", "--log-json-info-buffer-size", "--log-json-split-stream",
    "--log-text-info-buffer-size", "--log-text-split-stream", "--master",
    "--min-compatibility-version", "--pod-max-in-unschedulable-pods-duration",
    "--requestheader-allowed-names",
    "--requestheader-client-ca-file", "--requestheader-extra-headers-prefix",
    "--requestheader-group-headers", "--requestheader-uid-headers",
    "--requestheader-username-headers", "--show-hidden-metrics-for-version", "--tls-cipher-suites",
    "--tls-min-version", "--tls-sni-cert-key", "--vmodule", "--write-config-to",
)  # fmt: skip
# The same, which stand alone or have a value behind =.
SWITCHES: Final = (
    "--authentication-skip-lookup", "--authentication-tolerate-lookup-failure",
    "--contention-profiling", "--permit-address-sharing", "--permit-port-sharing", "--profiling",
)  # fmt: skip


def arguments(given: list[str]) -> list[str]:
    """Those of `stower run`."""
    kept: list[str] = []
    rest = list(given)
    while rest:
        one = rest.pop(0)
        name, equals, _ = one.partition("=")
        if name in SWITCHES or name in WITHOUT_EFFECT:
            if name in WITHOUT_EFFECT and not equals and rest:
                rest.pop(0)
            sys.stderr.write(f"stower: {name} has no effect in Stower\n")
            continue
        kept.append(one)
    said = {one.partition("=")[0] for one in kept}
    if not said & {"--secure-port", "--port"}:
        kept += ["--secure-port", PORT]
    if "--bind-address" not in said:
        kept += ["--bind-address", "0.0.0.0"]
    return ["run", *kept]


def main() -> None:
    """Run as kube-scheduler would."""
    sys.argv = ["stower", *arguments(sys.argv[1:])]
    stower()


if __name__ == "__main__":
    main()
