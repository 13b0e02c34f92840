"""A client of one HTTP/1.1 endpoint, made for many small requests at a time.

A request costs no task and no future: `post` takes a callback, which is called exactly once, from the event
loop. One request is in flight per connection, and there are at most `max_connections` of them; what is beyond
that waits its turn. **A request is sent at most once**: if it fails in any way the callback says so, and
whether to send it again is the caller's decision.

A request has `timeout` seconds in all: for its turn, for a connection and for the answer. One sweeper looks
for what is late, a few times a second, so it may be given up that much later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from millrace.core.endpointurls import EndpointUrl
from millrace.shard.answers import Answer, AnswerReader, BadAnswer
from millrace.shard.certificates import TlsContexts, TlsFiles

Done = Callable[[Answer], None]

LARGE = 64 * 1024
"""Bytes of a body from which copying it behind its head costs more than writing twice."""


class Endpoint:
    """The connections to one endpoint. To be made, used and closed in one event loop."""

    def __init__(
        self,
        url: EndpointUrl,
        *,
        max_connections: int,
        timeout: float,
        connect_timeout: float = 5.0,
        idle_seconds: float = 4.0,
        tls: TlsFiles | None = None,
    ) -> None:
        self._url = url
        self._max_connections = max_connections
        self._timeout = timeout
        self._connect_timeout = min(connect_timeout, timeout)
        # Servers close what is idle, some after 5 s; a request that meets the closing would fail.
        self._idle_seconds = idle_seconds
        self._tls = TlsContexts(tls or TlsFiles()) if url.tls else None
        self._loop = asyncio.get_running_loop()
        self._idle: list[_Connection] = []
        """The one used last is at the end, and used next: those that are not needed grow old at the front."""
        self._open: set[_Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._waiting: deque[tuple[float, bytes, bytes, Done]] = deque()
        """Deadline, head, body and callback of what no connection has taken yet, oldest first."""
        self._closing = False
        self._quiet = asyncio.Event()
        self._sweep_seconds = max(0.005, min(0.25, timeout / 8, idle_seconds / 4))
        self._sweeper: asyncio.TimerHandle | None = None

    @property
    def connections(self) -> int:
        """How many are open, busy or not."""
        return len(self._open)

    @property
    def in_flight(self) -> int:
        """Requests whose callback was not called yet."""
        return len(self._open) - len(self._idle) + len(self._waiting)

    def post(self, head: bytes, body: bytes, done: Done) -> None:
        """Send one request; `head` is complete, from the request line to the empty line.

        The callback must not raise. It may post the next request.
        """
        if self._idle:
            self._idle.pop().send(head, body, done, self._loop.time() + self._timeout)
        else:
            self._wait(head, body, done)

    async def send(self, head: bytes, body: bytes) -> Answer:
        """The same for callers with time to wait."""
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self.post(head, body, lambda got: None if answer.done() else answer.set_result(got))
        return await answer

    async def close(self) -> None:
        """Let every request have its answer or its time-out, take no new ones, then close the connections."""
        self._closing = True
        for idle in self._idle[:]:
            idle.close()
        while self._open or self._waiting or self._connecting:
            self._quiet.clear()
            await self._quiet.wait()
        self._stop_sweeping()

    def abort(self) -> None:
        """Close the connections now; the requests in flight fail."""
        self._closing = True
        while self._waiting:
            self._give_up("the request was given up before it was sent")
        for connection in tuple(self._open):
            connection.fail("the connection was closed on our side before the answer came")
        for task in self._connecting:
            task.cancel()
        self._stop_sweeping()
        self._quiet.set()

    # Called by connections.

    def opened(self, connection: _Connection) -> None:
        """A connection is ready for its first request."""
        self._open.add(connection)
        self._sweep_later()
        self.released(connection)

    def released(self, connection: _Connection) -> None:
        """A connection is free; whoever has waited longest gets it."""
        if self._waiting:
            deadline, head, body, done = self._waiting.popleft()
            connection.send(head, body, done, deadline)
        elif self._closing:
            connection.close()
        else:
            connection.deadline = self._loop.time() + self._idle_seconds
            self._idle.append(connection)

    def lost(self, connection: _Connection) -> None:
        """A connection is gone, or of no more use. Others may be needed in its place."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._connect_as_needed()
        self._quiet.set()

    def finish(self, done: Done, answer: Answer) -> None:
        """Call back where an exception of the callback would stop more than this one request."""
        try:
            done(answer)
        except Exception as raised:
            self._loop.call_exception_handler(
                {"message": "a delivery's callback raised", "exception": raised}
            )

    def _wait(self, head: bytes, body: bytes, done: Done) -> None:
        if self._closing:  # later, so that a callback is never called from within `post`
            unsent = Answer(0, error="the endpoint is being closed on our side")
            self._loop.call_soon(self.finish, done, unsent)
            return
        self._waiting.append((self._loop.time() + self._timeout, head, body, done))
        self._sweep_later()
        self._connect_as_needed()

    def _connect_as_needed(self) -> None:
        """One attempt for each request that waits, within the limit of connections."""
        room = self._max_connections - len(self._open) - len(self._connecting)
        for _ in range(min(room, len(self._waiting) - len(self._connecting))):
            task = self._loop.create_task(self._connect())
            self._connecting.add(task)
            task.add_done_callback(self._connected)

    async def _connect(self) -> None:
        url, connection, made = self._url, _Connection(self), False
        try:
            async with asyncio.timeout(self._connect_timeout):
                await self._loop.create_connection(
                    lambda: connection,
                    url.host,
                    url.port,
                    ssl=None if self._tls is None else self._tls.current(),
                    server_hostname=url.host if url.tls else None,
                )
            made = True
        except TimeoutError:
            self._give_up(f"no connection to {url.where} within {self._connect_timeout:g} s")
        except (OSError, ValueError, EOFError) as error:
            self._give_up(f"cannot connect to {url.where}: {_told(error)}")
        finally:
            if not made:
                connection.abandon()

    def _connected(self, task: asyncio.Task[None]) -> None:
        self._connecting.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._give_up(f"cannot connect to {self._url.where}: {task.exception()!r}")
        self._connect_as_needed()
        self._quiet.set()

    def _give_up(self, error: str) -> None:
        """Fail the request that has waited longest, if there is one."""
        if self._waiting:
            self.finish(self._waiting.popleft()[3], Answer(0, error=error))

    def _sweep_later(self) -> None:
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(self._sweep_seconds, self._sweep)

    def _stop_sweeping(self) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None

    def _sweep(self) -> None:
        """Give up what is late, close what is idle for long."""
        self._sweeper = None
        now = self._loop.time()
        for connection in [connection for connection in self._open if connection.deadline <= now]:
            if connection.busy:
                connection.fail(f"no answer from {self._url.where} within {self._timeout:g} s")
            else:
                connection.close()
        while self._waiting and self._waiting[0][0] <= now:
            self._give_up(f"no free connection to {self._url.where} within {self._timeout:g} s")
        self._quiet.set()
        if self._open or self._waiting:
            self._sweep_later()


class _Connection(asyncio.Protocol):
    """One connection: idle, or with exactly one request whose answer has not come."""

    __slots__ = ("_abandoned", "_done", "_endpoint", "_made", "_reader", "_transport", "_write", "deadline")

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._reader = AnswerReader()
        self._done: Done | None = None
        self._abandoned = False
        self._made = False
        self._transport: asyncio.Transport
        self._write: Callable[[bytes], None]
        self.deadline = 0.0
        """In the loop's time: of the answer if there is a request, else of being idle."""

    @property
    def busy(self) -> bool:
        """Whether an answer is awaited."""
        return self._done is not None

    def send(self, head: bytes, body: bytes, done: Done, deadline: float) -> None:
        """Write a request; the connection is idle."""
        self._done = done
        self.deadline = deadline
        if len(body) < LARGE:
            self._write(head + body)
        else:
            self._transport.writelines((head, body))

    def close(self) -> None:
        """End an idle connection."""
        self._endpoint.lost(self)
        self._transport.close()

    def fail(self, error: str) -> None:
        """End the connection, whatever it does; its request, if it has one, failed."""
        self._transport.abort()
        self._ended(error)

    def abandon(self) -> None:
        """Making it was given up. uvloop may tell of its beginning all the same, and then of no end."""
        self._abandoned = True
        if self._made:
            self.fail("the connection was given up while it was made")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready for the first request."""
        if self._abandoned:
            cast("asyncio.Transport", transport).abort()
            return
        self._made = True
        self._transport = cast("asyncio.Transport", transport)
        self._write = self._transport.write
        self._endpoint.opened(self)

    def data_received(self, data: bytes) -> None:
        """A part of an answer, mostly all of it."""
        done = self._done
        if done is None:
            # Nobody asked: the endpoint says why it is about to close, or it is confused. Both end here.
            self.fail("")
            return
        try:
            answer = self._reader.feed(data)
        except BadAnswer as error:
            self.fail(str(error))
            return
        if answer is None:
            return
        self._done = None
        if self._reader.reusable:
            self._endpoint.released(self)
        else:
            self._endpoint.lost(self)
            self._transport.close()
        done(answer)

    def eof_received(self) -> None:
        """The other side will send no more. An idle connection must not be given another request."""
        if self._done is None:
            self._endpoint.lost(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side closed it, or the network did, or we did."""
        answer, error = None, "the endpoint closed the connection before it answered"
        if exc is not None:
            error = f"the connection was lost before the answer was complete: {_told(exc)}"
        elif self._done is not None:
            try:
                answer = self._reader.feed_end()
            except BadAnswer as bad:
                error = str(bad)
        self._ended(error, answer)

    def _ended(self, error: str, answer: Answer | None = None) -> None:
        done, self._done = self._done, None
        self._endpoint.lost(self)
        if done is not None:
            self._endpoint.finish(done, answer or Answer(0, error=error))


def _told(error: BaseException) -> str:
    """What an error says for itself, or at least what it is."""
    return str(error) or type(error).__name__
