"""Credentials, with a real HTTP peer as the OAuth2 issuer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from millrace.pulsar.credentials import (
    Credentials,
    NoAuth,
    OAuth2,
    Tls,
    Token,
    fixed,
    from_environment,
    from_file,
)
from millrace.pulsar.errors import Misconfigured, Unauthorized, Unavailable


@dataclass
class Issuer:
    """Hands out numbered tokens to whoever knows the secret."""

    secret: str = "s3cret"
    expires_in: int = 3600
    failing: bool = False
    forms: list[dict[str, str]] = field(default_factory=list)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._discover)
        app.router.add_post("/oauth/token", self._token)
        async with TestServer(app) as server:
            yield str(server.make_url("/"))

    async def _discover(self, request: web.Request) -> web.Response:
        return web.json_response({"token_endpoint": str(request.url.with_path("/oauth/token"))})

    async def _token(self, request: web.Request) -> web.Response:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.forms.append(form)
        if self.failing:
            return web.Response(status=503)
        if form["client_secret"] != self.secret:
            return web.json_response({"error": "invalid_client"}, status=401)
        return web.json_response({"access_token": f"token-{len(self.forms)}", "expires_in": self.expires_in})


async def test_oauth2_fetches_once_and_says_which_audience() -> None:
    issuer = Issuer()
    async with issuer.serve() as url:
        auth = OAuth2(url, fixed("me"), fixed("s3cret"), audience="urn:pulsar")
        tokens = await asyncio.gather(*(asyncio.to_thread(auth.token) for _ in range(5)))
    assert set(tokens) == {"token-1"}
    assert issuer.forms == [
        {
            "grant_type": "client_credentials",
            "client_id": "me",
            "client_secret": "s3cret",
            "audience": "urn:pulsar",
        }
    ]


async def test_oauth2_fetches_again_when_the_token_has_ended_or_was_refused() -> None:
    issuer = Issuer(expires_in=0)
    async with issuer.serve() as url:
        auth = OAuth2(url, fixed("me"), fixed("s3cret"))
        assert await asyncio.to_thread(auth.token) == "token-1"
        issuer.expires_in = 3600
        assert await asyncio.to_thread(auth.token) == "token-2"
        assert await asyncio.to_thread(auth.token) == "token-2"
        Credentials("pulsar://b:6650", "http://b:8080", auth).forget()
        assert await asyncio.to_thread(auth.token) == "token-3"


async def test_oauth2_uses_a_rotated_secret_at_once(tmp_path: Path) -> None:
    secret = tmp_path / "client-secret"
    secret.write_text("wrong")
    async with Issuer().serve() as url:
        auth = OAuth2(url, fixed("me"), from_file(secret))
        with pytest.raises(Unauthorized, match="client 'me'"):
            await asyncio.to_thread(auth.token)
        secret.write_text("s3cret")
        assert await asyncio.to_thread(auth.token) == "token-2"


async def test_an_issuer_that_fails_or_is_away_is_worth_a_retry() -> None:
    async with Issuer(failing=True).serve() as url:
        with pytest.raises(Unavailable, match="503"):
            await asyncio.to_thread(OAuth2(url, fixed("me"), fixed("s3cret")).token)
    with pytest.raises(Unavailable, match="cannot reach the OAuth2 issuer"):
        await asyncio.to_thread(OAuth2("http://127.0.0.1:1", fixed("me"), fixed("s")).token)


def test_a_token_in_a_file_is_read_at_each_use(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    credentials = Credentials("pulsar://b:6650", "http://b:8080", Token(from_file(path)))
    assert credentials.bearer() == "one"
    path.write_text("two\n")
    assert credentials.bearer() == "two"


def test_a_replaced_certificate_is_noticed(tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text("a")
    credentials = Credentials("pulsar://b:6650", "https://b:8443", tls=Tls(ca_file=ca))
    before = credentials.tls_fingerprint()
    assert credentials.tls_fingerprint() == before
    replacement = tmp_path / "new"
    replacement.write_text("b")
    replacement.rename(ca)
    assert credentials.tls_fingerprint() != before


def test_certificates_that_cannot_be_used_say_so(tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text("not a certificate")
    credentials = Credentials("pulsar://b:6650", "https://b:8443", tls=Tls(ca_file=ca))
    with pytest.raises(Misconfigured, match="PEM"):
        credentials.tls_context()
    with pytest.raises(Misconfigured, match="absent"):
        Credentials("pulsar://b:1", "https://b:1", tls=Tls(ca_file=tmp_path / "absent")).tls_fingerprint()


@pytest.mark.parametrize(
    ("service", "admin"), [("http://b:6650", "http://b:8080"), ("pulsar://b", "b:8080"), ("", "http://b")]
)
def test_an_address_that_is_none_is_refused(service: str, admin: str) -> None:
    with pytest.raises(Misconfigured, match=r"is no (service|admin) URL"):
        Credentials(service, admin)


def test_the_environment_gives_credentials(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("t")
    found = from_environment(
        {
            "PULSAR_SERVICE_URL": "pulsar+ssl://b:6651",
            "PULSAR_ADMIN_URL": "https://b:8443",
            "PULSAR_TOKEN_FILE": str(token),
            "PULSAR_CA_FILE": "/ca.crt",
        }
    )
    assert found.bearer() == "t"
    assert found.tls == Tls(ca_file=Path("/ca.crt"))
    assert from_environment({}).auth == NoAuth()


def test_no_secret_shows_in_a_representation() -> None:
    auth = OAuth2("https://issuer", fixed("me"), fixed("s3cret"))
    assert "s3cret" not in repr(Credentials("pulsar://b:6650", "http://b:8080", auth))
    assert "s3cret" not in repr(Credentials("pulsar://b:6650", "http://b:8080", Token(fixed("s3cret"))))
