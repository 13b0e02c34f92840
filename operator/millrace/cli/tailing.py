"""Print the messages of a composite topic as they come: `millrace tail`.

The client's consumer reads from the oldest message on and keeps each group's order across switches. It cannot
begin with the newest. So `latest` reads the partitions of the produce topic from where they are now to their
sealed ends, and only then leaves the next storage topic to a consumer. Nothing is acknowledged and no
subscription is left behind: looking changes nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal

from millrace.cli.display import Output, print_json, terminal
from millrace.cli.messages import document, line
from millrace.cli.options import Access
from millrace.cli.topics import newest
from millrace.client import Connection, Consumer
from millrace.client.errors import NoSuchPartition
from millrace.client.partitions import SILENCE, Message, PartitionReader, pull_to
from millrace.client.streams import pull_unless
from millrace.core.descriptor import Descriptor
from millrace.core.groups import validate_group_id
from millrace.core.positions import Position
from millrace.pulsar.descriptors import DescriptorFollower

Beginning = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class Wish:
    """What to show: of one group or of all, and so many messages or without end."""

    topic: str
    beginning: Beginning = "latest"
    group_id: str | None = None
    limit: int | None = None

    def check(self) -> None:
        """Raise for what cannot be."""
        if self.group_id is not None:
            validate_group_id(self.group_id)


class Enough(Exception):  # noqa: N818 - no error: it ends the readers of all partitions at once
    """As many messages were shown as were asked for."""


class Screen:
    """Shows what is wished for, as lines of text or of JSON; each message once.

    A reader may repeat messages when it reconnects, which it does while a partition is being sealed.
    """

    def __init__(self, wish: Wish, output: Output) -> None:
        self._group_id = wish.group_id
        self._left = wish.limit
        self._shown: dict[tuple[int, int], Position] = {}
        """The newest message of each partition."""
        self._console = terminal() if output == "text" else None

    def show(self, message: Message) -> None:
        """Print a message unless it was shown, or is of another group. Raises Enough after the last."""
        stream = (message.position.storage_topic, message.partition)
        if (newest := self._shown.get(stream)) is not None and message.position <= newest:
            return
        self._shown[stream] = message.position
        if self._group_id is not None and message.group_id != self._group_id:
            return
        if self._console is None:
            print_json(document(message))
        else:
            self._console.print(line(message), soft_wrap=True)
            self._console.file.flush()
        if self._left is not None:
            self._left -= 1
            if self._left <= 0:
                raise Enough


async def tail(access: Access, wish: Wish, output: Output) -> None:
    """Print messages until there were enough of them, or for ever."""
    wish.check()
    where = access.descriptor_topic(wish.topic)
    screen = Screen(wish, output)
    async with access.connection() as connection:
        try:
            first = 0 if wish.beginning == "earliest" else await _show_live(connection, where, screen)
            async with await _consumer(connection, where, first, access.timeout) as consumer:
                async for message in consumer:
                    screen.show(message)
        except Enough:
            return


async def _consumer(connection: Connection, where: str, first: int, patience: float) -> Consumer:
    """A consumer from this storage topic on, which is known to be there.

    A consumer begins with the generation it happens to hear of first, and refuses what that one lacks.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience
    while True:
        try:
            return await Consumer.open(connection, where, read_pointer=first)
        except NoSuchPartition:
            if loop.time() > deadline:
                raise


async def _show_live(connection: Connection, where: str, screen: Screen) -> int:
    """Show what is written from now on until a switch. Says which storage topic comes next."""
    descriptor = await newest(connection, where)
    index, topic = descriptor.produce_pointer, descriptor.produce_topic
    readers = [
        PartitionReader(connection.client, topic.partition_topic(partition), index, partition, None)
        for partition in range(topic.layout.partitions)
    ]
    async with DescriptorFollower(connection.client, where) as follower:
        sealing = asyncio.ensure_future(follower.wait_for(lambda found: found.produce_pointer > index))
        tasks = [asyncio.create_task(_show_partition(reader, sealing, screen)) for reader in readers]
        try:
            await asyncio.gather(*tasks)
            return index + 1
        finally:
            for task in (sealing, *tasks):
                task.cancel()
            await asyncio.wait((sealing, *tasks))
            await asyncio.gather(*(reader.close() for reader in readers))


async def _show_partition(
    reader: PartitionReader, sealing: asyncio.Future[Descriptor], screen: Screen
) -> None:
    await reader.open(latest=True)
    heard = False
    while not sealing.done():
        for message in await pull_unless(reader, sealing):
            heard = True
            screen.show(message)
    sealed = sealing.result().storage_topics[reader.storage_topic].sealed
    assert sealed is not None, "what lies before the produce pointer is sealed"
    if not heard:
        # Its end may lie before our beginning, which has no position to compare it with: then silence it is.
        try:
            async with asyncio.timeout(SILENCE):
                late = await reader.pull()
        except TimeoutError:
            return
        for message in late:
            screen.show(message)
    while (rest := await pull_to(reader, sealed[reader.partition])) is not None:
        for message in rest:
            screen.show(message)
