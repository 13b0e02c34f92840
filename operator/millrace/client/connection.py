"""Where Pulsar is and who we are there: what producers and consumers of one application share."""

from __future__ import annotations

import contextlib
import copy
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pulsar

from millrace.core.names import descriptor_topic_name
from millrace.pulsar.clients import blocking, connect
from millrace.pulsar.credentials import Auth, Credentials, Mtls, NoAuth, Tls, Token, fixed, from_file
from millrace.pulsar.errors import Misconfigured

DEFAULT_SERVICE_URL = "pulsar://localhost:6650"
DEFAULT_PULSAR_NAMESPACE = "public/default"


class Connection:
    """One Pulsar cluster. Contacted at first use; close it when all its producers and consumers are closed.

    `token` may be a callable that gives the token as it is now; a `token_file` is read again at each
    connect, so that it can rotate. Producers and consumers may share a connection; it belongs to no event
    loop.
    """

    def __init__(
        self,
        service_url: str = DEFAULT_SERVICE_URL,
        *,
        token: str | Callable[[], str] | None = None,
        token_file: str | Path | None = None,
        certificate_file: str | Path | None = None,
        key_file: str | Path | None = None,
        ca_file: str | Path | None = None,
        operation_timeout: float = 30.0,
    ) -> None:
        auth: Auth = NoAuth()
        if token is not None:
            auth = Token(fixed(token) if isinstance(token, str) else token)
        elif token_file is not None:
            auth = Token(from_file(token_file))
        elif certificate_file is not None and key_file is not None:
            auth = Mtls(Path(certificate_file), Path(key_file))
        if (certificate_file is None) != (key_file is None):
            raise Misconfigured("a client certificate needs its key, and a key its certificate: give both")
        self._credentials = Credentials(
            service_url=service_url,
            admin_url="http://unused",  # applications need no admin access
            auth=auth,
            tls=Tls(ca_file=Path(ca_file) if ca_file is not None else None),
        )
        self._operation_timeout = operation_timeout
        self._client: pulsar.Client | None = None
        self._reading: pulsar.Client | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Connection:
        """From PULSAR_SERVICE_URL, PULSAR_TOKEN_FILE and PULSAR_CA_FILE."""
        return cls(
            environment.get("PULSAR_SERVICE_URL", DEFAULT_SERVICE_URL),
            token_file=environment.get("PULSAR_TOKEN_FILE"),
            ca_file=environment.get("PULSAR_CA_FILE"),
        )

    @property
    def service_url(self) -> str:
        """Where it connects to."""
        return self._credentials.service_url

    @property
    def client(self) -> pulsar.Client:
        """The native client, created at first use."""
        if self._client is None:
            if isinstance(self._credentials.auth, Token):
                self._credentials.auth.token()  # a missing file is better told here than in a thread's log
            self._client = connect(self._credentials, operation_timeout=self._operation_timeout)
        return self._client

    @property
    def reading_client(self) -> pulsar.Client:
        """A native client for whatever may read a sealed partition to its end.

        At the end of a terminated topic the broker sends a command that the native client does not know,
        whereupon it drops the connection, with all that share it (3.13). Producers must not be among them.
        """
        if self._reading is None:
            self._reading = connect(self._credentials, operation_timeout=self._operation_timeout)
        return self._reading

    def apart(self) -> Connection:
        """The same way to Pulsar with native clients of its own, to be closed on its own."""
        other = copy.copy(self)
        other._client = other._reading = None
        return other

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection and whatever still uses it."""
        clients, self._client, self._reading = (self._client, self._reading), None, None
        for client in clients:
            if client is not None:
                with contextlib.suppress(pulsar.PulsarException):  # closed already
                    await blocking(client.close)


def descriptor_topic(topic: str, pulsar_namespace: str = DEFAULT_PULSAR_NAMESPACE) -> str:
    """The descriptor topic of `NAMESPACE/NAME` (a CompositeTopic in Kubernetes), or a full name as it is."""
    if "://" in topic:
        return topic
    namespace, slash, name = topic.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise Misconfigured(
            f"{topic!r} is no composite topic: expected NAMESPACE/NAME as in Kubernetes, or the full name "
            "of its descriptor topic (persistent://...)"
        )
    return descriptor_topic_name(pulsar_namespace, namespace, name)
