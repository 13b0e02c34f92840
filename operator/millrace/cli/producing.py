"""Send messages of one group from a terminal: `millrace produce`.

Everything that can be checked is checked before the connection is opened. Lines are sent as they come, each
without waiting for the one before: a line that is too long ends it, after all lines before it were stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field

from millrace.cli.display import Output, complain, print_json
from millrace.cli.failures import BadInput
from millrace.cli.lines import STDIN, read_lines
from millrace.cli.options import Access
from millrace.client import Producer
from millrace.client.messages import MAX_MESSAGE_SIZE, checked_size
from millrace.core.groups import validate_group_id
from millrace.core.positions import Position

PARTING = 5.0
"""Seconds that an interrupted command waits for what it has sent."""

AHEAD = 1000
"""Lines that may be sent and not yet reported."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to send. Without a payload, the lines of standard input."""

    topic: str
    group_id: str
    payload: bytes | None = None
    properties: dict[str, str] = field(default_factory=dict)

    def check(self) -> None:
        """Raise for what could not be sent."""
        validate_group_id(self.group_id)
        checked_size(self.group_id, self.payload or b"", self.properties, MAX_MESSAGE_SIZE)


def parse_properties(texts: Iterable[str]) -> dict[str, str]:
    """Read NAME=VALUE, each name once."""
    properties: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise BadInput(f"{text!r} is no property: expected NAME=VALUE")
        if name in properties:
            raise BadInput(f"the property {name!r} is given twice; a message has one value for each name")
        properties[name] = value
    return properties


async def produce(access: Access, order: Order, output: Output) -> None:
    """Send, and print where each message was stored."""
    order.check()
    if order.payload is None and sys.stdin is None:
        raise BadInput("there is no standard input to read lines from; give --payload")
    where = access.descriptor_topic(order.topic)
    async with (
        access.connection() as connection,
        _closing(await Producer.open(connection, where)) as producer,
    ):
        if order.payload is not None:
            position = await producer.send(order.group_id, order.payload, order.properties)
            _report(order.group_id, position, output)
            return
        if sys.stdin.isatty():
            print("One message a line; Ctrl-D ends.", file=sys.stderr)
        await _send_lines(producer, order, output)


async def _send_lines(producer: Producer, order: Order, output: Output) -> None:
    sent: asyncio.Queue[asyncio.Future[Position] | Exception | None] = asyncio.Queue(AHEAD)

    async def send() -> None:
        end = None
        try:
            async for line in read_lines(STDIN, limit=MAX_MESSAGE_SIZE):
                future = await producer.submit(order.group_id, line, order.properties)
                future.add_done_callback(_seen)
                await sent.put(future)
        except Exception as error:
            end = error
        await sent.put(end)  # behind what was sent: that is reported first

    sending = asyncio.create_task(send())
    try:
        while (item := await sent.get()) is not None:
            if isinstance(item, Exception):
                raise item
            _report(order.group_id, await item, output)
    finally:
        sending.cancel()
        await asyncio.wait([sending])


def _seen(future: asyncio.Future[Position]) -> None:
    """Of several failures the first is told; the others are not to be complained of as forgotten."""
    if not future.cancelled():
        future.exception()


@contextlib.asynccontextmanager
async def _closing(producer: Producer) -> AsyncIterator[Producer]:
    try:
        yield producer
    finally:
        try:
            async with asyncio.timeout(PARTING):
                await producer.close()
        except TimeoutError:
            complain("what was not acknowledged may be stored or not")


def _report(group_id: str, position: Position, output: Output) -> None:
    if output == "json":
        print_json({"group": group_id, "position": str(position)})
    else:
        print(f"stored at {position}", flush=True)
