"""Ways to Pulsar: which PulsarConnection an object means, and an open session with secrets that rotate.

A session is kept per connection object and generation. Its secrets are read through the API, namespace by
namespace (never listed or watched, so that the right to read them stays narrow), at most every half minute,
and at once when Pulsar refuses them. What OpenSSL and the native client want as files is kept in a private
directory and replaced whole.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pulsar

from millrace.api.meta import LocalRef
from millrace.api.pulsarconnection import AuthType, PulsarConnection
from millrace.api.reasons import Reason
from millrace.controller import metrics
from millrace.controller.kube import Kube, KubeError
from millrace.pulsar import credentials as pulsar_credentials
from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import blocking, connect
from millrace.pulsar.credentials import Credentials

logger = logging.getLogger(__name__)

SECRETS_ARE_GOOD_FOR = 30.0


class NoConnection(Exception):  # noqa: N818 - it is what happened
    """There is no usable connection; `reason` and the message go into a condition."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(slots=True)
class Session:
    """One connection, open. Closed when its object changes or goes."""

    connection: PulsarConnection
    credentials: Credentials
    admin: Admin
    directory: Path
    secrets: dict[str, str]
    """What the credentials' suppliers hand out; replaced in place when a Secret rotates."""
    read_at: float
    _client: pulsar.Client | None = field(default=None)

    def client(self) -> pulsar.Client:
        """The native client, made when it is first needed."""
        if self._client is None:
            self._client = connect(self.credentials, operation_timeout=15.0)
        return self._client

    async def close(self) -> None:
        """Close everything; the private files go too."""
        await self.admin.close()
        client, self._client = self._client, None
        if client is not None:
            try:
                await blocking(client.close)
            except pulsar.PulsarException as error:
                logger.debug("closing the client of %s: %s", self.connection.metadata.name, error)
        shutil.rmtree(self.directory, ignore_errors=True)


class Connections:
    """Every PulsarConnection that the watch has shown, and the sessions that are open."""

    def __init__(self, kube: Kube, clock: Callable[[], float] = time.monotonic) -> None:
        self._kube = kube
        self._clock = clock
        self._known: dict[tuple[str, str], PulsarConnection] = {}
        self._sessions: dict[tuple[str, str], Session] = {}
        self._opening = asyncio.Lock()
        """Many objects share a connection; only one of them opens it or reads its secrets again."""

    def seen(self, connection: PulsarConnection) -> None:
        """The watch shows it, new or changed."""
        self._known[connection.metadata.namespace, connection.metadata.name] = connection

    async def gone(self, namespace: str, name: str) -> None:
        """It was deleted."""
        self._known.pop((namespace, name), None)
        session = self._sessions.pop((namespace, name), None)
        if session is not None:
            await session.close()

    def resolve(self, namespace: str, reference: LocalRef | None) -> PulsarConnection:
        """The connection that an object means; references stay in the object's namespace."""
        if reference is not None:
            named = self._known.get((namespace, reference.name))
            if named is None:
                raise NoConnection(
                    Reason.CONNECTION_NOT_FOUND,
                    f"there is no PulsarConnection {reference.name} in {namespace}",
                )
            return named
        defaults = [
            connection
            for (where, _), connection in sorted(self._known.items())
            if where == namespace and connection.spec.is_default
        ]
        if not defaults:
            raise NoConnection(
                Reason.CONNECTION_NOT_FOUND,
                f"no PulsarConnection in {namespace} has isDefault: true; create one, or set connectionRef",
            )
        if len(defaults) > 1:
            names = ", ".join(connection.metadata.name for connection in defaults)
            raise NoConnection(
                Reason.AMBIGUOUS_DEFAULT,
                f"{names} all have isDefault: true in {namespace}; leave it on one, or set connectionRef",
            )
        return defaults[0]

    async def session(self, connection: PulsarConnection, *, afresh: bool = False) -> Session:
        """An open session with secrets that are at most half a minute old, or newer if asked for."""
        key = connection.metadata.namespace, connection.metadata.name
        async with self._opening:
            session = self._sessions.get(key)
            if session is not None and _identity(session.connection) != _identity(connection):
                del self._sessions[key]
                await session.close()
                session = None
            if session is None:
                session = self._sessions[key] = await self._open(connection)
            elif afresh or self._clock() - session.read_at > SECRETS_ARE_GOOD_FOR:
                session.secrets.update(await self._read_secrets(connection, session.directory))
                session.read_at = self._clock()
                session.credentials.forget()
            return session

    async def close(self) -> None:
        """Close every session."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    async def _open(self, connection: PulsarConnection) -> Session:
        directory = Path(tempfile.mkdtemp(prefix="millrace-"))
        try:
            secrets = await self._read_secrets(connection, directory)
            credentials = _credentials(connection, secrets, directory)
            admin = Admin(credentials, observer=metrics.observe_pulsar_call)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        return Session(connection, credentials, admin, directory, secrets, self._clock())

    async def _read_secrets(self, connection: PulsarConnection, directory: Path) -> dict[str, str]:
        spec, namespace = connection.spec, connection.metadata.namespace
        secrets: dict[str, str] = {}
        reference = spec.admin_secret_ref
        if reference is not None:
            match spec.auth.type:
                case AuthType.TOKEN:
                    secrets["token"] = (
                        await self._secret(namespace, reference.name, reference.token_key)
                    ).strip()
                case AuthType.OAUTH2:
                    text = await self._secret(namespace, reference.name, reference.credentials_key)
                    secrets.update(_client_credentials(namespace, reference.name, text))
                case AuthType.MTLS:
                    for key, file in (
                        (reference.certificate_key, "tls.crt"),
                        (reference.private_key_key, "tls.key"),
                    ):
                        _replace(directory / file, await self._secret(namespace, reference.name, key))
                case AuthType.NONE:
                    pass
        if spec.tls is not None and spec.tls.ca_secret_ref is not None:
            where = spec.tls.ca_secret_ref
            _replace(directory / "ca.crt", await self._secret(namespace, where.name, where.key))
        elif spec.tls is not None and spec.tls.ca_config_map_ref is not None:
            where = spec.tls.ca_config_map_ref
            _replace(directory / "ca.crt", await self._config_map(namespace, where.name, where.key))
        return secrets

    async def _secret(self, namespace: str, name: str, key: str) -> str:
        document = await self._look_up("Secret", namespace, name)
        value = (document.get("data") or {}).get(key)
        if value is None:
            raise NoConnection(Reason.SECRET_NOT_FOUND, f"the Secret {namespace}/{name} has no key {key}")
        return base64.b64decode(value).decode()

    async def _config_map(self, namespace: str, name: str, key: str) -> str:
        document = await self._look_up("ConfigMap", namespace, name)
        value = (document.get("data") or {}).get(key)
        if value is None:
            raise NoConnection(Reason.SECRET_NOT_FOUND, f"the ConfigMap {namespace}/{name} has no key {key}")
        return str(value)

    async def _look_up(self, kind: str, namespace: str, name: str) -> dict[str, dict[str, str]]:
        read = self._kube.read_secret if kind == "Secret" else self._kube.read_config_map
        try:
            return await read(namespace, name)
        except KubeError as error:
            if error.status == 404:
                raise NoConnection(
                    Reason.SECRET_NOT_FOUND, f"there is no {kind} {namespace}/{name}; create it"
                ) from error
            if error.status == 403:
                raise NoConnection(
                    Reason.SECRET_NOT_FOUND,
                    f"the operator may not read the {kind} {namespace}/{name}: add the namespace to the "
                    "chart's secretNamespaces, or bind a Role that allows it",
                ) from error
            raise


def _identity(connection: PulsarConnection) -> tuple[str, int]:
    return connection.metadata.uid, connection.metadata.generation


def _replace(path: Path, content: str) -> None:
    """Never half a file: who opens it gets the old one or the new one. Unchanged content leaves it alone."""
    if path.exists() and path.read_text() == content:
        return
    fresh = path.with_suffix(".new")
    fresh.touch(mode=0o600)
    fresh.write_text(content)
    fresh.rename(path)


def _client_credentials(namespace: str, name: str, text: str) -> dict[str, str]:
    try:
        document = json.loads(text)
        return {"client_id": str(document["client_id"]), "client_secret": str(document["client_secret"])}
    except (ValueError, KeyError, TypeError) as error:
        raise NoConnection(
            Reason.SECRET_NOT_FOUND,
            f"the Secret {namespace}/{name} has no JSON document with client_id and client_secret",
        ) from error


def _credentials(connection: PulsarConnection, secrets: dict[str, str], directory: Path) -> Credentials:
    spec = connection.spec
    authority = directory / "ca.crt"
    ca_file = authority if authority.exists() else None
    auth: pulsar_credentials.Auth = pulsar_credentials.NoAuth()
    match spec.auth.type:
        case AuthType.TOKEN:
            auth = pulsar_credentials.Token(lambda: secrets["token"])
        case AuthType.MTLS:
            auth = pulsar_credentials.Mtls(directory / "tls.crt", directory / "tls.key")
        case AuthType.OAUTH2:
            oauth2 = spec.auth.oauth2
            assert oauth2 is not None, "the CRD requires it with this type"
            auth = pulsar_credentials.OAuth2(
                issuer=oauth2.issuer_url,
                client_id=lambda: secrets["client_id"],
                client_secret=lambda: secrets["client_secret"],
                audience=oauth2.audience,
                scope=oauth2.scope or "",
            )
        case AuthType.NONE:
            pass
    tls = pulsar_credentials.Tls(ca_file=ca_file)
    if spec.tls is not None:
        tls = pulsar_credentials.Tls(ca_file, spec.tls.allow_insecure, spec.tls.validate_hostname)
    return Credentials(spec.service_url, spec.admin_url, auth, tls)
