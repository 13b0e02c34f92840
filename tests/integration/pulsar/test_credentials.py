"""Who we are, to a real broker with token authentication, authorization and TLS."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.pulsar import descriptors, tables
from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import blocking
from millrace.pulsar.credentials import Credentials, NoAuth, Tls, Token, fixed, from_file
from millrace.pulsar.errors import Forbidden, PulsarError, Unauthorized, Unavailable
from tests.support import pulsar as support

pytestmark = pytest.mark.skipif("PULSAR_TOKEN_FILE" not in os.environ, reason="the broker asks for no token")


@pytest.fixture
def credentials() -> Credentials:
    return support.credentials()


@pytest.fixture
def secret(credentials: Credentials, tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("not.a.token")
    return path


def rotate(secret: Path, credentials: Credentials) -> None:
    secret.write_text(credentials.bearer() or "")


@pytest.mark.parametrize("auth", [NoAuth(), Token(fixed("not.a.token"))], ids=["none", "wrong"])
async def test_a_wrong_token_is_unauthorized(credentials: Credentials, auth: NoAuth | Token) -> None:
    async with Admin(replace(credentials, auth=auth)) as admin:
        with pytest.raises(Unauthorized, match="answered 401"):
            await admin.clusters()


async def test_the_admin_uses_a_rotated_token_without_a_restart(
    credentials: Credentials, secret: Path
) -> None:
    async with Admin(replace(credentials, auth=Token(from_file(secret)))) as admin:
        with pytest.raises(Unauthorized):
            await admin.clusters()
        rotate(secret, credentials)
        assert await admin.clusters()


async def test_a_client_uses_a_rotated_token_without_a_restart(
    admin: Admin, credentials: Credentials, secret: Path, topic: str
) -> None:
    await admin.create_topic(topic, {})
    rotating = replace(credentials, auth=Token(from_file(secret)))
    async with support.open_client(rotating, operation_timeout=3.0) as client:
        with pytest.raises((Unauthorized, Unavailable), match=r"credentials|token"):
            await tables.read_to_end(client, topic)
        rotate(secret, credentials)
        assert await tables.read_to_end(client, topic) == {}


async def test_a_role_without_the_permission_is_forbidden(credentials: Credentials, topic: str) -> None:
    limited = Path(os.environ["PULSAR_TOKEN_FILE"]).with_name("client.token")
    if not limited.exists():
        pytest.skip("there is no token of a limited role beside the administrator's")
    async with Admin(replace(credentials, auth=Token(from_file(limited)))) as admin:
        with pytest.raises(Forbidden, match="grant the role"):
            await admin.create_topic(topic, {})


async def test_a_server_that_the_ca_does_not_vouch_for_is_not_talked_to(
    credentials: Credentials, topic: str
) -> None:
    if not credentials.admin_url.startswith("https"):
        pytest.skip("the broker speaks no TLS")
    stranger = replace(credentials, tls=Tls(ca_file=Path("/etc/ssl/certs/ca-certificates.crt")))
    async with Admin(stranger, deadline=1.0) as admin:
        with pytest.raises(Unavailable, match=r"(?i)certificate verify failed"):
            await admin.clusters()
    async with support.open_client(stranger) as client:
        with pytest.raises(PulsarError):
            await blocking(tables.open_fenced_producer, client, topic)
    async with Admin(replace(credentials, tls=Tls(allow_insecure=True))) as admin:
        assert await admin.clusters()


async def test_a_broker_that_is_away_is_unavailable(credentials: Credentials, topic: str) -> None:
    away = replace(credentials, service_url="pulsar://127.0.0.1:1")
    async with support.open_client(away, operation_timeout=1.0) as client:
        with pytest.raises(Unavailable, match="brokers can be reached"):
            await descriptors.read(client, topic)
