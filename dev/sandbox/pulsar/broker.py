"""The broker's life in one sandbox: prepare, start, stop, kill, restart."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandbox import processes
from sandbox.layout import NODE_IP, Layout, SandboxError
from sandbox.pulsar import configuration, credentials, distribution, rest
from sandbox.pulsar.configuration import HTTP_PORT, HTTPS_PORT, PLAIN_PORT, TLS_PORT

DAEMON = "pulsar"
CLIENT_NAMESPACE = "public/default"
START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Endpoints:
    """How to reach the broker from inside the sandbox's network."""

    service_url: str
    admin_url: str
    plain_service_url: str
    plain_admin_url: str
    admin_token_file: Path
    operator_token_file: Path
    client_token_file: Path
    ca_file: Path


def endpoints(layout: Layout) -> Endpoints:
    """Addresses and credentials; valid once `prepare` has run."""
    made = credentials.of(layout)
    return Endpoints(
        service_url=f"pulsar+ssl://{NODE_IP}:{TLS_PORT}",
        admin_url=f"https://{NODE_IP}:{HTTPS_PORT}",
        plain_service_url=f"pulsar://{NODE_IP}:{PLAIN_PORT}",
        plain_admin_url=f"http://{NODE_IP}:{HTTP_PORT}",
        admin_token_file=made.tokens["admin"],
        operator_token_file=made.tokens["operator"],
        client_token_file=made.tokens["client"],
        ca_file=made.trust.ca,
    )


def prepare(layout: Layout) -> None:
    """Fetch what is missing and write the configuration. Starts nothing that stays."""
    home = distribution.ensure()
    made = credentials.ensure(layout)
    folder = _folder(layout)
    (folder / "data").mkdir(parents=True, exist_ok=True)
    _config(layout).write_text(configuration.render(home, configuration.trusting(made.trust)))


def start(layout: Layout) -> None:
    """Start the broker unless it runs, wait until it serves, and let the client role in."""
    if processes.pid_of(layout, DAEMON) is None:
        prepare(layout)
    _refuse_name_servers(layout)
    daemon = processes.Daemon(
        name=DAEMON,
        argv=distribution.command(_config(layout), address=NODE_IP, data=_folder(layout) / "data"),
        ready=lambda: _serves(layout),
        timeout=START_SECONDS,
    )
    processes.start(layout, daemon)
    _let_client_in(layout)


def stop(layout: Layout) -> None:
    """An orderly end: ledgers are closed."""
    processes.stop(layout, DAEMON, grace=30.0)


def kill(layout: Layout) -> None:
    """The end that a power cut brings: no ledger is closed, nothing is flushed."""
    processes.stop(layout, DAEMON, first=signal.SIGKILL)


def restart(layout: Layout) -> None:
    """Stop and start, with the same data."""
    stop(layout)
    start(layout)


def _serves(layout: Layout) -> bool:
    """Health alone says ok before the default namespace is there; clients need both."""
    token = credentials.of(layout).tokens["admin"]
    healthy = rest.call(layout, "GET", "/admin/v2/brokers/health", token=token)
    if healthy.status != 200 or healthy.body.strip() != "ok":
        return False
    return rest.call(layout, "GET", f"/admin/v2/namespaces/{CLIENT_NAMESPACE}", token=token).status == 200


def _let_client_in(layout: Layout) -> None:
    answer = rest.call(
        layout,
        "POST",
        f"/admin/v2/namespaces/{CLIENT_NAMESPACE}/permissions/client",
        token=credentials.of(layout).tokens["admin"],
        body=["produce", "consume"],
    )
    if answer.status not in {200, 204}:
        raise SandboxError(
            f"Pulsar runs, but did not let the client role into {CLIENT_NAMESPACE}: "
            f"{answer.status} {answer.body}"
        )


def _refuse_name_servers(layout: Layout) -> None:
    """Let look-ups fail at once: the bookie asks for its addresses' names, and would wait 30 s in vain."""
    for line in Path("/etc/resolv.conf").read_text().splitlines():
        match line.split():
            case ["nameserver", address, *_] if ":" not in address:
                argv = [*layout.enter(), "ip", "route", "replace", "unreachable", address]
                subprocess.run(argv, check=True, capture_output=True)
            case _:
                continue


def _folder(layout: Layout) -> Path:
    return layout.state / "pulsar"


def _config(layout: Layout) -> Path:
    return _folder(layout) / "standalone.conf"
