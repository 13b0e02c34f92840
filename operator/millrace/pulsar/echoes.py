"""Reading back what is written to a topic, to find out whether anybody else writes to it.

The broker lets in two fencing producers if they open at the same moment (found with 4.0.8: it evicts those
that are there, and two that are just coming do not see each other). Both go on to write. But a topic has one
order: whoever reads its own records back, with nothing of anybody else before them, was alone up to there.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pulsar

from millrace.pulsar.errors import PulsarError, from_client

POLL_MS = 1000


class Echo:
    """Reads a topic from a thread of its own, until it is closed or something is wrong."""

    def __init__(self, client: pulsar.Client, topic: str, after: Any, writer: str) -> None:
        """Begin after a message. `writer` is the only producer that may have written the rest. Blocks."""
        self.topic = topic
        self._writer = writer
        self._closed = False
        try:
            self._reader = client.create_reader(topic, after)
        except pulsar.PulsarException as error:
            raise from_client(error, f"read back {topic}") from error

    def start(
        self,
        key: str,
        heard: Callable[[bytes], None],
        alien: Callable[[str], None],
        failed: Callable[[PulsarError], None],
    ) -> None:
        """Call back, in this event loop: `heard` for each own record of this key, in the topic's order (some
        again after a reconnect), or at last `alien` with the key of a record that somebody else wrote.
        """
        loop = asyncio.get_running_loop()

        def tell(what: Callable[[Any], None], argument: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                loop.call_soon_threadsafe(what, argument)

        def listen() -> None:
            read_next, writer = self._reader._reader.read_next, self._writer
            while not self._closed:
                try:
                    raw = read_next(POLL_MS)
                except pulsar.Timeout:
                    continue
                except pulsar.PulsarException as error:
                    if not self._closed:
                        tell(failed, from_client(error, f"read back {self.topic}"))
                    return
                if raw.producer_name() != writer:
                    tell(alien, raw.partition_key())
                    return
                if raw.partition_key() == key:
                    tell(heard, raw.data())

        threading.Thread(target=listen, name="pulsar-echo", daemon=True).start()

    def close(self) -> None:
        """Stop, if it did not yet. Blocks."""
        self._closed = True
        with contextlib.suppress(pulsar.PulsarException, ValueError):  # closed already, with its client
            self._reader.close()
