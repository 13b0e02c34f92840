"""Certificates are made once, signed by the sandbox's own authority, and keys are for root alone."""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from sandbox import pki
from sandbox.layout import Layout


@dataclass(frozen=True)
class Elsewhere:
    """A sandbox's places in a directory of the test's own."""

    name: str
    state: Path

    @property
    def pki(self) -> Path:
        return self.state / "pki"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return cast("Layout", Elsewhere("dev", tmp_path))


def text_of(certificate: Path) -> str:
    command = ["openssl", "x509", "-in", str(certificate), "-noout", "-text"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_a_server_has_every_name_and_address_and_the_authority_vouches_for_it(layout: Layout) -> None:
    pair = pki.issue(layout, "server", common_name="server", names=["example.svc", "10.77.0.1", "::1"])
    shown = text_of(pair.certificate)
    assert "DNS:example.svc, IP Address:10.77.0.1, IP Address:0:0:0:0:0:0:0:1" in shown
    assert "TLS Web Server Authentication" in shown
    trusted = str(pki.authority(layout).certificate)
    subprocess.run(
        ["openssl", "verify", "-CAfile", trusted, str(pair.certificate)], check=True, capture_output=True
    )


def test_a_client_is_no_server_and_carries_user_and_group(layout: Layout) -> None:
    shown = text_of(
        pki.issue(layout, "kubelet", common_name="system:node:a", organization="system:nodes").certificate
    )
    assert "TLS Web Server Authentication" not in shown
    assert "O = system:nodes, CN = system:node:a" in shown


def test_asking_again_makes_nothing_new(layout: Layout) -> None:
    first = pki.issue(layout, "client", common_name="a").certificate.read_bytes()
    key, token = pki.service_account_key(layout).read_bytes(), pki.admin_token(layout)
    assert pki.issue(layout, "client", common_name="a").certificate.read_bytes() == first
    assert pki.service_account_key(layout).read_bytes() == key
    assert pki.admin_token(layout) == token


def test_half_a_pair_is_made_anew(layout: Layout) -> None:
    pair = pki.issue(layout, "client", common_name="a")
    before = pair.key.read_bytes()
    pair.certificate.unlink()
    assert pki.issue(layout, "client", common_name="a").complete
    assert pair.key.read_bytes() != before


def test_nothing_that_lets_one_in_can_be_read_by_others(layout: Layout) -> None:
    config = pki.kubeconfig(layout, layout.state / "admin.kubeconfig")
    pki.service_account_key(layout)
    pair = pki.issue(layout, "client", common_name="a")
    secret = [
        config,
        pair.key,
        pki.authority(layout).key,
        *layout.pki.glob("*.key"),
        *layout.pki.glob("*.token"),
    ]
    assert len(secret) > 4
    for path in secret:
        assert path.stat().st_mode & 0o077 == 0, path


def test_the_administrators_configuration_trusts_the_authority_and_has_the_token(layout: Layout) -> None:
    config = json.loads(pki.kubeconfig(layout, layout.state / "config").read_text())
    (cluster,), (user,) = config["clusters"], config["users"]
    trusted = base64.b64decode(cluster["cluster"]["certificate-authority-data"])
    assert trusted == pki.authority(layout).certificate.read_bytes()
    assert user["user"] == {"token": pki.admin_token(layout)}


def test_every_name_of_the_api_server_inside_the_cluster_is_covered() -> None:
    names = pki.api_server_names("10.79.0.1")
    assert {"kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "10.79.0.1"} <= set(names)
