"""A reverse proxy in front of the real admin API, which does to requests what networks and brokers do.

What it does is decided request by request: the first rule that is in force and matches says what happens;
without one the request is passed on. Everything is written down, also what the broker really answered.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

import aiohttp
from aiohttp import web

from millrace.pulsar.credentials import Credentials

WRITES = frozenset({"PUT", "POST", "DELETE"})
_CARRIED = ("Authorization", "Content-Type", "Accept")
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer in the broker's place; the broker never sees the request."""

    status: int
    reason: str = "injected"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reset:
    """Break the connection; the broker never sees the request."""


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """Let the broker do it, then break the connection."""


@dataclass(frozen=True, slots=True)
class Delay:
    """Pass it on after a while, whether or not the caller still waits."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Call back, and break the connection: before the broker sees the request, or after it has done it."""

    call: Callable[[], Awaitable[None]]
    after: bool


Behaviour = Answer | Reset | LoseAnswer | Delay | Interrupt


@dataclass(slots=True)
class Rule:
    """What happens to requests whose path contains `about`, from the one after `skip` on."""

    about: str
    behaviour: Behaviour
    methods: frozenset[str] | None = None
    skip: int = 0
    times: int | None = None
    hits: list[float] = field(default_factory=list)
    """When it was applied, by the monotonic clock."""
    ended: bool = False

    def takes(self, method: str, path: str) -> bool:
        """Whether this request is one of those; counts it if so."""
        if self.ended or self.about not in path or (self.methods and method not in self.methods):
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.hits.append(time.monotonic())
        self.ended = self.times is not None and len(self.hits) >= self.times
        return True

    def end(self) -> None:
        """From now on all is well."""
        self.ended = True


@dataclass(frozen=True, slots=True)
class Passage:
    """A request, and what the broker answered; None if it did not see it."""

    method: str
    path: str
    status: int | None


class AdminProxy:
    """Use as an async context manager. `url` stays the same over `close` and `open`."""

    def __init__(self, credentials: Credentials) -> None:
        self._target = credentials.admin_url.rstrip("/")
        self._tls: ssl.SSLContext | bool = credentials.tls_context() or True
        self._rules: list[Rule] = []
        self._port = 0
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self.log: list[Passage] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession()
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        assert self._session is not None
        await self._session.close()

    async def open(self) -> None:
        """Listen, on the same port as before."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]

    async def close(self) -> None:
        """Stop listening: whoever calls is refused."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    def rule(
        self,
        about: str,
        behaviour: Behaviour,
        *,
        methods: frozenset[str] | None = None,
        skip: int = 0,
        times: int | None = None,
    ) -> Rule:
        """Have this happen to requests about something, until the rule is ended."""
        made = Rule(about, behaviour, methods, skip, times)
        self._rules.append(made)
        return made

    def requests(self, about: str) -> list[Passage]:
        """What has come along so far about something."""
        return [passage for passage in self.log if about in passage.path]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        found = next((rule for rule in self._rules if rule.takes(request.method, request.path)), None)
        match found and found.behaviour:
            case None:
                return await self._forward(request, body)
            case Delay(seconds):
                await asyncio.sleep(seconds)
                return await self._forward(request, body)
            case Answer(status, reason, headers):
                self._note(request, None)
                return web.json_response({"reason": reason}, status=status, headers=headers)
            case Reset():
                self._note(request, None)
            case LoseAnswer():
                await self._forward(request, body)
            case Interrupt(call, after):
                if after:
                    await self._forward(request, body)
                else:
                    self._note(request, None)
                await call()
        return _reset(request)

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        assert self._session is not None
        headers = {name: request.headers[name] for name in _CARRIED if name in request.headers}
        try:
            async with self._session.request(
                request.method,
                self._target + request.raw_path,
                data=body or None,
                headers=headers,
                ssl=self._tls,
                allow_redirects=False,
            ) as answer:
                text = await answer.read()
        except aiohttp.ClientError as error:
            self._note(request, None)
            return web.json_response({"reason": f"the proxy has no connection: {error}"}, status=502)
        self._note(request, answer.status)
        carried = {
            name: answer.headers[name]
            for name in ("Content-Type", "Location", "Retry-After")
            if name in answer.headers
        }
        return web.Response(status=answer.status, body=text, headers=carried)

    def _note(self, request: web.Request, status: int | None) -> None:
        self.log.append(Passage(request.method, request.path, status))


def _reset(request: web.Request) -> web.Response:
    """The caller's connection is gone at once, with nothing said on it; what is returned reaches nobody."""
    if request.transport is not None:
        connection = request.transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        request.transport.abort()
    return web.Response()
