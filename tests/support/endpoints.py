"""HTTP endpoints on loopback: ones that behave, and ones that send exactly the bytes they are told to."""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(eq=False)
class Peer:
    """One connection, as the endpoint sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int
    """Counted from 0 in the order in which they came."""

    async def request(self) -> bytes | None:
        """The next request, head and body; None at the end of the connection."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
            return head + await self.reader.readexactly(int(length[1]) if length else 0)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def say(self, data: bytes) -> None:
        """Send these bytes."""
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """End the connection with a reset."""
        self.writer.transport.abort()


@dataclass(eq=False)
class RawEndpoint:
    """An endpoint under the test's control."""

    port: int
    tls: bool
    peers: list[Peer] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    open: int = 0
    most_open: int = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{'https' if self.tls else 'http'}://localhost:{self.port}/hook"


Script = Callable[[RawEndpoint, Peer], Awaitable[None]]


@asynccontextmanager
async def raw_endpoint(script: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawEndpoint]:
    """Run the script for each connection, which ends with it."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        peer = Peer(reader, writer, len(endpoint.peers))
        endpoint.peers.append(peer)
        endpoint.open += 1
        endpoint.most_open = max(endpoint.most_open, endpoint.open)
        try:
            with suppress(ConnectionError, asyncio.CancelledError):
                await script(endpoint, peer)
        finally:
            endpoint.open -= 1
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    endpoint = RawEndpoint(server.sockets[0].getsockname()[1], tls is not None)
    try:
        yield endpoint
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for peer in endpoint.peers:
            peer.writer.transport.abort()


def answering(*answers: bytes, close: bool = False) -> Script:
    """Read a request and send the next of these answers, the last one for ever; perhaps close after each."""

    async def script(endpoint: RawEndpoint, peer: Peer) -> None:
        while (request := await peer.request()) is not None:
            answer = answers[min(len(endpoint.requests), len(answers) - 1)]
            endpoint.requests.append(request)
            await peer.say(answer)
            if close:
                return

    return script


@dataclass(frozen=True)
class Authority:
    """A certificate authority of a test's own, made with openssl."""

    directory: Path
    name: str

    @property
    def certificate(self) -> Path:
        """Whom to trust."""
        return self.directory / f"{self.name}.crt"

    @classmethod
    def create(cls, directory: Path, name: str) -> Authority:
        """A new one, with a key of its own."""
        authority = cls(directory, name)
        authority._make(name, ["-x509", "-subj", f"/CN={name}"], "basicConstraints=critical,CA:TRUE")
        return authority

    def issue(self, name: str, host: str = "localhost") -> tuple[Path, Path]:
        """A certificate for a server at `host`, or for a client, and its key."""
        signer = ["-x509", "-CA", str(self.certificate), "-CAkey", str(self.directory / f"{self.name}.key")]
        self._make(name, [*signer, "-subj", f"/CN={name}"], f"subjectAltName=DNS:{host}")
        return self.directory / f"{name}.crt", self.directory / f"{name}.key"

    def server_context(self, host: str = "localhost", *, clients: Authority | None = None) -> ssl.SSLContext:
        """For a server at `host`; with `clients` it asks for certificates of that authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(f"{self.name}-{host}", host))
        if clients is not None:
            context.load_verify_locations(clients.certificate)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _make(self, name: str, arguments: list[str], extension: str) -> None:
        subprocess.run(
            [
                *("openssl", "req", "-new", *arguments, "-days", "2", "-noenc", "-addext", extension),
                *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
                *("-keyout", str(self.directory / f"{name}.key")),
                *("-out", str(self.directory / f"{name}.crt")),
            ],
            check=True,
            capture_output=True,
        )
