"""Receiving from one native consumer or reader, in the order of its partition: a thread that blocks.

The native client has an asynchronous receive, and it is not used. As its source reads, the client lets go of
its lock between looking for a receive that stands and queueing a message that has come: a receive made in
that moment would get the *next* message, and the one before would come after it, or stay behind until
something else comes. (Messages were missing twice with it; the moment itself was never caught.) A blocking
receive takes from the queue and nothing else, so it is in order.

One thread a partition, which sleeps while nothing comes. What the client holds already is taken along, so
that the event loop is woken once for many messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

import pulsar

POLL_MILLIS = 1000
"""How long one receive blocks; only then is a close noticed that the client itself does not tell of."""

Came = Callable[[list[Any], pulsar.PulsarException | None], None]
"""Called in the event loop with native messages, or with why there are none."""


class Receiving:
    """Answers one `ask` after the other. To be used in the event loop that made it."""

    def __init__(self, receive: Callable[[int], Any], most: int) -> None:
        """`receive` blocks for so many milliseconds; `most` messages are handed over at once."""
        self._receive = receive
        self._most = most
        self._loop = asyncio.get_running_loop()
        self._asked: queue.SimpleQueue[Came | None] = queue.SimpleQueue()
        self._closed = False
        self._thread: threading.Thread | None = None

    def ask(self, came: Came) -> None:
        """Have the next messages handed over, once there are any."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="pulsar-receive", daemon=True)
            self._thread.start()
        self._asked.put(came)

    def close(self) -> None:
        """Answer no more. The thread ends by itself, at the latest when its receive does."""
        self._closed = True
        self._asked.put(None)

    def _work(self) -> None:
        while (came := self._asked.get()) is not None and not self._closed:
            messages, error = self._next()
            if self._closed:
                return
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                self._loop.call_soon_threadsafe(self._tell, came, messages, error)

    def _next(self) -> tuple[list[Any], pulsar.PulsarException | None]:
        messages: list[Any] = []
        while not self._closed:
            try:
                messages.append(self._receive(POLL_MILLIS))
                while len(messages) < self._most:
                    messages.append(self._receive(0))
            except pulsar.Timeout:
                if not messages:
                    continue
            except pulsar.PulsarException as error:
                if not messages:  # else it is met again at the next ask
                    return [], error
            return messages, None
        return [], None

    def _tell(self, came: Came, messages: list[Any], error: pulsar.PulsarException | None) -> None:
        if not self._closed:
            came(messages, error)
