"""Who may talk to the sandbox's Pulsar: tokens signed with its key, certificates of the sandbox's authority.

Tokens carry no expiry: a sandbox is thrown away before any would run out. The key survives a restart of the
broker, so that clients keep their tokens.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from pathlib import Path

from sandbox import pki
from sandbox.layout import NODE_IP, Layout
from sandbox.pulsar.configuration import Trust

HOSTS = (NODE_IP, "127.0.0.1", "localhost", "pulsar.pulsar.svc", "pulsar.pulsar.svc.cluster.local")
ROLES = ("admin", "operator", "client")
_SERVER = "pulsar"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Everything a broker or a client needs to trust and to be trusted."""

    trust: Trust
    tokens: dict[str, Path]


def of(layout: Layout) -> Credentials:
    """Where they are, once `ensure` has made them."""
    folder = layout.state / "pulsar" / "credentials"
    trust = Trust(
        secret_key=folder / "token.key",
        admin_token=folder / "admin.token",
        server=pki.places(layout, _SERVER),
        ca=pki.places(layout, pki.AUTHORITY).certificate,
    )
    return Credentials(trust=trust, tokens={role: folder / f"{role}.token" for role in ROLES})


def ensure(layout: Layout) -> Credentials:
    """Make whatever is missing; what exists stays as it is."""
    pki.issue(layout, _SERVER, common_name="pulsar", names=HOSTS)
    made = of(layout)
    folder = made.trust.secret_key.parent
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    if not made.trust.secret_key.exists():
        _write_private(made.trust.secret_key, secrets.token_bytes(32))
    for role, path in made.tokens.items():
        if not path.exists():
            _write_private(path, token(role, made.trust.secret_key.read_bytes()).encode())
    return made


def token(role: str, key: bytes) -> str:
    """A JSON web token that says: the bearer is `role`."""
    signed = f"{_encoded({'alg': 'HS256', 'typ': 'JWT'})}.{_encoded({'sub': role})}"
    return f"{signed}.{_base64(hmac.digest(key, signed.encode(), hashlib.sha256))}"


def _encoded(value: dict[str, str]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _write_private(path: Path, content: bytes) -> None:
    # Whole or not at all: a file that is there is never written again.
    partial = path.with_suffix(".partial")
    partial.touch(mode=0o600)
    partial.write_bytes(content)
    partial.rename(path)
