"""How to reach a Pulsar cluster and who we are there.

Secrets rotate while we run, so nothing here holds a secret: a `Material` is asked at each use, and
certificates are paths whose content is looked at again at each use. The admin API and the native client
share these values.
"""

from __future__ import annotations

import json
import os
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulsar

from millrace.pulsar.errors import Misconfigured, Unauthorized, Unavailable

Material = Callable[[], str]
"""Gives a secret as it is now. Called for every request and from any thread: be quick and thread-safe."""


def from_file(path: str | Path) -> Material:
    """A secret in a file (a mounted Secret changes under us)."""
    where = Path(path)

    def read() -> str:
        try:
            return where.read_text().strip()
        except OSError as error:
            raise Misconfigured(
                f"cannot read the secret in {where}: {error.strerror}; check the mount"
            ) from error

    return read


def fixed(value: str) -> Material:
    """A secret that does not change while this program runs."""
    return lambda: value


@dataclass(frozen=True, slots=True)
class NoAuth:
    """No authentication; TLS may still be on."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token (usually a JWT)."""

    token: Material


@dataclass(frozen=True, slots=True)
class Mtls:
    """A client certificate. Files, because both OpenSSL and the native client read nothing else."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class OAuth2:
    """The client-credentials flow; the access token is cached until shortly before it expires.

    Asking blocks (the native client asks from its own thread); event loops go through a thread.
    """

    issuer: str
    client_id: Material
    client_secret: Material
    audience: str = ""
    scope: str = ""
    ca_file: Path | None = None
    _cache: _TokenCache = field(default_factory=lambda: _TokenCache(), repr=False, compare=False)  # noqa: PLW0108

    def token(self) -> str:
        """The access token to use now."""
        return self._cache.get(self)

    def forget(self) -> None:
        """Drop the cached token: it was refused."""
        self._cache.clear()


Auth = NoAuth | Token | Mtls | OAuth2


@dataclass(frozen=True, slots=True)
class Tls:
    """What to believe of the other side's certificate."""

    ca_file: Path | None = None
    allow_insecure: bool = False
    validate_hostname: bool = True


@dataclass(frozen=True, slots=True)
class Credentials:
    """One Pulsar cluster, as one of our connections sees it."""

    service_url: str
    admin_url: str
    auth: Auth = field(default_factory=NoAuth)
    tls: Tls = field(default_factory=Tls)

    def __post_init__(self) -> None:
        _check_url("service URL", self.service_url, ("pulsar", "pulsar+ssl"))
        _check_url("admin URL", self.admin_url, ("http", "https"))

    def bearer(self) -> str | None:
        """The token for an Authorization header, as it is now. May block: it may have to be fetched."""
        match self.auth:
            case Token(token):
                return token()
            case OAuth2() as oauth2:
                return oauth2.token()
            case _:
                return None

    def forget(self) -> None:
        """The other side refused us: whatever was cached is not to be used again."""
        if isinstance(self.auth, OAuth2):
            self.auth.forget()

    def client_authentication(self) -> pulsar.Authentication | None:
        """For the native client, which calls back for a token at each connect and when a broker asks anew."""
        match self.auth:
            case Token(token):
                return pulsar.AuthenticationToken(token)
            case OAuth2() as oauth2:
                # The OAuth2 method speaks "token" on the wire as well; this way both edges share one cache.
                return pulsar.AuthenticationToken(oauth2.token)
            case Mtls(certificate, key):
                return pulsar.AuthenticationTLS(str(certificate), str(key))
            case _:
                return None

    def tls_fingerprint(self) -> tuple[tuple[str, int, int], ...]:
        """Changes when a certificate, key or CA file does: equal means that a TLS context is still good."""
        files = [self.tls.ca_file]
        if isinstance(self.auth, Mtls):
            files += [self.auth.certificate, self.auth.key]
        marks = []
        for path in files:
            if path is not None:
                try:
                    stat = path.stat()
                except OSError as error:
                    raise Misconfigured(f"cannot read {path}: {error.strerror}; check the mount") from error
                marks.append((str(path), stat.st_mtime_ns, stat.st_ino))
        return tuple(marks)

    def tls_context(self) -> ssl.SSLContext | None:
        """For the admin API; None where it is plain HTTP."""
        if not self.admin_url.startswith("https:"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls.ca_file)
            if self.tls.allow_insecure or not self.tls.validate_hostname:
                context.check_hostname = False
            if self.tls.allow_insecure:
                context.verify_mode = ssl.CERT_NONE
            if isinstance(self.auth, Mtls):
                context.load_cert_chain(self.auth.certificate, self.auth.key)
        except (OSError, ssl.SSLError) as error:
            raise Misconfigured(
                f"cannot use the certificates for {self.admin_url}: {error}; check that CA, certificate "
                "and key are PEM files that belong together"
            ) from error
        return context


def from_environment(environment: Mapping[str, str] = os.environ) -> Credentials:
    """From PULSAR_SERVICE_URL, PULSAR_ADMIN_URL, and if set PULSAR_TOKEN_FILE and PULSAR_CA_FILE."""
    ca_file = environment.get("PULSAR_CA_FILE")
    token_file = environment.get("PULSAR_TOKEN_FILE")
    return Credentials(
        service_url=environment.get("PULSAR_SERVICE_URL", "pulsar://localhost:6650"),
        admin_url=environment.get("PULSAR_ADMIN_URL", "http://localhost:8080"),
        auth=Token(from_file(token_file)) if token_file else NoAuth(),
        tls=Tls(ca_file=Path(ca_file) if ca_file else None),
    )


def _check_url(what: str, url: str, schemes: tuple[str, ...]) -> None:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in schemes or not parts.netloc:
        raise Misconfigured(f"{url!r} is no {what}: it starts with {' or '.join(s + '://' for s in schemes)}")


class _TokenCache:
    """One access token, fetched again shortly before its end; a burst of callers fetches once."""

    MARGIN = 30.0
    TIMEOUT = 10.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._token = ""
        self._asked_with: tuple[str, str] | None = None
        self._good_until = 0.0

    def get(self, oauth2: OAuth2) -> str:
        asked_with = (oauth2.client_id(), oauth2.client_secret())
        with self._lock:
            # A rotated secret must prove itself now, not when the old secret's token happens to end.
            if time.monotonic() >= self._good_until or asked_with != self._asked_with:
                self._token, lifetime = _fetch(oauth2, *asked_with, timeout=self.TIMEOUT)
                self._asked_with = asked_with
                self._good_until = time.monotonic() + max(lifetime - self.MARGIN, lifetime / 2)
            return self._token

    def clear(self) -> None:
        with self._lock:
            self._good_until = 0.0


def _fetch(oauth2: OAuth2, client_id: str, client_secret: str, *, timeout: float) -> tuple[str, float]:
    issuer = oauth2.issuer.rstrip("/")
    context = ssl.create_default_context()
    if oauth2.ca_file is not None:
        context.load_verify_locations(oauth2.ca_file)
    form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": client_secret}
    form |= {"audience": oauth2.audience} if oauth2.audience else {}
    form |= {"scope": oauth2.scope} if oauth2.scope else {}
    try:
        found = _json(f"{issuer}/.well-known/openid-configuration", None, context, timeout)
        answer = _json(str(found["token_endpoint"]), urllib.parse.urlencode(form).encode(), context, timeout)
        return str(answer["access_token"]), float(answer.get("expires_in", 60))
    except urllib.error.HTTPError as error:
        if error.code in (400, 401, 403):
            raise Unauthorized(
                f"{issuer} refused a token for client {client_id!r} ({error.code}); check client id, "
                "secret and audience"
            ) from error
        raise Unavailable(
            f"{issuer} answered {error.code} to a request for a token; it will be tried again"
        ) from error
    except (KeyError, ValueError, TypeError) as error:
        raise Unavailable(
            f"{issuer} answered something that is no OAuth2 token: {error!r}; check the issuer"
        ) from error
    except OSError as error:
        raise Unavailable(
            f"cannot reach the OAuth2 issuer {issuer}: {error}; it will be tried again"
        ) from error


def _json(url: str, form: bytes | None, context: ssl.SSLContext, timeout: float) -> dict[str, Any]:
    _check_url("OAuth2 URL", url, ("http", "https"))
    request = urllib.request.Request(url, data=form)  # noqa: S310 - the scheme was checked
    with urllib.request.urlopen(  # noqa: S310
        request, timeout=timeout, context=context if url.startswith("https") else None
    ) as answer:
        document = json.load(answer)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return document
