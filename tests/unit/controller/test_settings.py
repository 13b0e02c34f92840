"""The environment of a replica: the defaults, what can be set, and words for everything that is wrong."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from millrace.controller import settings
from millrace.controller.settings import CONNECTIONS_FILE, Settings, SettingsError, from_environment

LEAST = {"MILLRACE_IDENTITY": "millrace-7d4b-x2x", "MILLRACE_LEASE_NAMESPACE": "millrace-system"}


def test_what_is_missing_has_a_default() -> None:
    assert from_environment(LEAST) == Settings(
        identity="millrace-7d4b-x2x",
        lease_namespace="millrace-system",
        lease_name="millrace",
        watch_namespaces=(),
        cluster_id="",
        metrics_port=8080,
        log_format="json",
        log_level="INFO",
        workers=16,
        resync_seconds=600.0,
        audit_seconds=30.0,
        connections_file=CONNECTIONS_FILE,
        image="millrace",
        image_pull_policy="IfNotPresent",
    )


def test_everything_can_be_set() -> None:
    found = from_environment(
        {
            "MILLRACE_IDENTITY": "pod-1",
            "MILLRACE_LEASE_NAMESPACE": "ops",
            "MILLRACE_LEASE_NAME": "millrace-blue",
            "MILLRACE_WATCH_NAMESPACES": "shop,billing",
            "MILLRACE_CLUSTER_ID": "prod-eu",
            "MILLRACE_METRICS_PORT": "9090",
            "MILLRACE_LOG_FORMAT": "text",
            "MILLRACE_LOG_LEVEL": "debug",
            "MILLRACE_WORKERS": "4",
            "MILLRACE_RESYNC_SECONDS": "0.5",
            "MILLRACE_AUDIT_SECONDS": "5",
            "MILLRACE_DEFAULT_CONNECTION": "/tmp/connection.yaml",
            "MILLRACE_IMAGE": "millrace:1.2",
            "MILLRACE_IMAGE_PULL_POLICY": "Never",
        }
    )
    assert found == Settings(
        identity="pod-1",
        lease_namespace="ops",
        lease_name="millrace-blue",
        watch_namespaces=("billing", "shop"),
        cluster_id="prod-eu",
        metrics_port=9090,
        log_format="text",
        log_level="DEBUG",
        workers=4,
        resync_seconds=0.5,
        audit_seconds=5.0,
        connections_file=Path("/tmp/connection.yaml"),
        image="millrace:1.2",
        image_pull_policy="Never",
    )


def test_a_pull_policy_that_kubernetes_does_not_know_is_refused() -> None:
    with pytest.raises(SettingsError, match="write Always, IfNotPresent or Never"):
        from_environment({**LEAST, "MILLRACE_IMAGE_PULL_POLICY": "Sometimes"})


@pytest.mark.parametrize(
    "variable",
    [
        "MILLRACE_LEASE_NAME",
        "MILLRACE_WATCH_NAMESPACES",
        "MILLRACE_CLUSTER_ID",
        "MILLRACE_METRICS_PORT",
        "MILLRACE_LOG_FORMAT",
        "MILLRACE_LOG_LEVEL",
        "MILLRACE_WORKERS",
        "MILLRACE_RESYNC_SECONDS",
        "MILLRACE_AUDIT_SECONDS",
        "MILLRACE_DEFAULT_CONNECTION",
    ],
)
def test_a_variable_that_is_empty_counts_as_missing(variable: str) -> None:
    assert from_environment({**LEAST, variable: ""}) == from_environment(LEAST)


def test_a_replica_without_a_name_is_called_as_its_host() -> None:
    assert from_environment({"MILLRACE_LEASE_NAMESPACE": "ops"}).identity == socket.gethostname()


def test_namespaces_are_read_however_they_are_written() -> None:
    found = from_environment(
        {**LEAST, "MILLRACE_WATCH_NAMESPACES": " shop, billing,,shop ", "MILLRACE_CLUSTER_ID": "c"}
    )
    assert found.watch_namespaces == ("billing", "shop")


def test_an_operator_of_some_namespaces_must_be_told_which_cluster_it_is_in() -> None:
    with pytest.raises(SettingsError, match="MILLRACE_CLUSTER_ID must be set"):
        from_environment({**LEAST, "MILLRACE_WATCH_NAMESPACES": "shop"})


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        ("MILLRACE_LOG_FORMAT", "xml", "write json or text"),
        ("MILLRACE_LOG_LEVEL", "loud", "write DEBUG, INFO, WARNING or ERROR"),
        ("MILLRACE_METRICS_PORT", "http", "write a number"),
        ("MILLRACE_METRICS_PORT", "-1", "write a number above 0"),
        ("MILLRACE_METRICS_PORT", "65536", "write a whole number up to 65535"),
        ("MILLRACE_WORKERS", "0", "write a number above 0"),
        ("MILLRACE_WORKERS", "0.5", "write a whole number"),
        ("MILLRACE_WORKERS", "inf", "write a number above 0"),
        ("MILLRACE_RESYNC_SECONDS", "nan", "write a number above 0"),
        ("MILLRACE_RESYNC_SECONDS", "ten minutes", "write a number"),
    ],
)
def test_what_is_wrong_is_named_with_what_to_write(variable: str, value: str, remedy: str) -> None:
    with pytest.raises(SettingsError) as error:
        from_environment({**LEAST, variable: value})
    said, _, to_write = str(error.value).partition(": ")
    assert said.startswith(f"{variable} is")
    assert value in said.lower()
    assert to_write == remedy


def test_within_a_pod_the_lease_is_in_the_pods_own_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = tmp_path / "namespace"
    mounted.write_text("millrace-system\n")
    monkeypatch.setattr(settings, "SERVICE_ACCOUNT", mounted)
    assert from_environment({}).lease_namespace == "millrace-system"


def test_outside_of_a_pod_the_namespace_of_the_lease_must_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "SERVICE_ACCOUNT", tmp_path / "absent")
    with pytest.raises(SettingsError, match="MILLRACE_LEASE_NAMESPACE must be set"):
        from_environment({})
