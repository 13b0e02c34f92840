"""How one replica of the operator is set up: the environment, as the chart writes it, read and checked."""

from __future__ import annotations

import logging
import math
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CONNECTIONS_FILE = Path("/etc/millrace/default-connection.yaml")
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class SettingsError(Exception):
    """The environment does not make sense; the message names the variable and what to write there."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that differs between installations."""

    identity: str
    """Who this replica is, in the Lease and in events: the pod's name."""
    lease_namespace: str
    lease_name: str = "millrace"
    watch_namespaces: tuple[str, ...] = ()
    """Empty: all of them."""
    cluster_id: str = ""
    """Empty: the UID of the namespace kube-system."""
    metrics_port: int = 8080
    log_format: str = "json"
    log_level: str = "INFO"
    workers: int = 16
    resync_seconds: float = 600.0
    audit_seconds: float = 30.0
    """How often the watch is compared with a listing; owed for twice as long, a change means a dead watch."""
    connections_file: Path = CONNECTIONS_FILE
    image: str = "millrace"
    """What the pods of subscriptions run: the operator's own image."""
    image_pull_policy: str = "IfNotPresent"


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read `MILLRACE_*`; what is missing has a default, what is wrong is an error."""
    namespaces = environment.get("MILLRACE_WATCH_NAMESPACES", "").split(",")
    log_format = environment.get("MILLRACE_LOG_FORMAT") or "json"
    if log_format not in ("json", "text"):
        raise SettingsError(f"MILLRACE_LOG_FORMAT is {log_format!r}: write json or text")
    log_level = (environment.get("MILLRACE_LOG_LEVEL") or "INFO").upper()
    if log_level not in logging.getLevelNamesMapping():
        raise SettingsError(f"MILLRACE_LOG_LEVEL is {log_level!r}: write DEBUG, INFO, WARNING or ERROR")
    settings = Settings(
        identity=environment.get("MILLRACE_IDENTITY") or socket.gethostname(),
        lease_namespace=environment.get("MILLRACE_LEASE_NAMESPACE") or _own_namespace(),
        lease_name=environment.get("MILLRACE_LEASE_NAME") or "millrace",
        watch_namespaces=tuple(sorted({name.strip() for name in namespaces if name.strip()})),
        cluster_id=environment.get("MILLRACE_CLUSTER_ID", ""),
        metrics_port=_count(environment, "MILLRACE_METRICS_PORT", 8080, most=65535),
        log_format=log_format,
        log_level=log_level,
        workers=_count(environment, "MILLRACE_WORKERS", 16),
        resync_seconds=_number(environment, "MILLRACE_RESYNC_SECONDS", 600),
        audit_seconds=_number(environment, "MILLRACE_AUDIT_SECONDS", 30),
        connections_file=Path(environment.get("MILLRACE_DEFAULT_CONNECTION") or CONNECTIONS_FILE),
        image=environment.get("MILLRACE_IMAGE") or "millrace",
        image_pull_policy=_pull_policy(environment),
    )
    if settings.watch_namespaces and not settings.cluster_id:
        raise SettingsError(
            "MILLRACE_CLUSTER_ID must be set together with MILLRACE_WATCH_NAMESPACES: without rights on "
            "the whole cluster its identity cannot be looked up"
        )
    return settings


def _pull_policy(environment: Mapping[str, str]) -> str:
    policy = environment.get("MILLRACE_IMAGE_PULL_POLICY") or "IfNotPresent"
    if policy not in ("Always", "IfNotPresent", "Never"):
        raise SettingsError(f"MILLRACE_IMAGE_PULL_POLICY is {policy!r}: write Always, IfNotPresent or Never")
    return policy


def _own_namespace() -> str:
    try:
        return SERVICE_ACCOUNT.read_text().strip()
    except OSError:
        raise SettingsError(
            "MILLRACE_LEASE_NAMESPACE must be set outside of a pod: it says where the Lease of the leader is"
        ) from None


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name) or str(default)
    try:
        value = float(text)
    except ValueError:
        raise SettingsError(f"{name} is {text!r}: write a number") from None
    if not 0 < value < math.inf:
        raise SettingsError(f"{name} is {text}: write a number above 0")
    return value


def _count(environment: Mapping[str, str], name: str, default: int, most: int | None = None) -> int:
    value = _number(environment, name, default)
    if value != int(value) or (most is not None and value > most):
        limit = "" if most is None else f" up to {most}"
        raise SettingsError(f"{name} is {environment[name]}: write a whole number{limit}")
    return int(value)
