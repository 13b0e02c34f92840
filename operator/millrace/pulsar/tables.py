"""A compacted topic as a table: the newest value per key, and the one producer that may write.

Where is the end? The client's own answer (`has_message_available`) asks the broker for the last message,
and the broker says "none" while the newest ledger is empty, which it is after every unload or restart,
although older ledgers hold messages. So there are two readings here: `read_to` stops at an entry that is
known to be there, and is exact; `read_to_end` has only the broker's answer and a moment of silence, which
is good enough to show and to start from, never to overwrite by.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pulsar

from millrace.core.positions import EntryId
from millrace.pulsar.clients import blocking
from millrace.pulsar.errors import Unavailable, from_client

SILENCE = 1.0
"""Seconds without a message after which a topic that says from the start that it has none is believed."""

Table = dict[str, bytes]


async def read_to_end(client: pulsar.Client, topic: str, *, within: float = 30.0) -> Table:
    """The table as of now, as far as the broker tells."""
    return await blocking(read_to_end_blocking, client, topic, timeout=within)


def read_to_end_blocking(client: pulsar.Client, topic: str, *, timeout: float = 30.0) -> Table:
    """`read_to_end` for callers in a thread."""

    told = False

    def next_message(reader: pulsar.Reader) -> pulsar.Message | None:
        nonlocal told
        if reader.has_message_available():
            told = True
            return reader.read_next(int(timeout * 1000))
        if told:
            return None
        try:
            return reader.read_next(int(SILENCE * 1000))
        except pulsar.Timeout:
            return None

    return _read(client, topic, timeout, next_message)


def read_to_blocking(client: pulsar.Client, topic: str, end: EntryId, *, timeout: float = 30.0) -> Table:
    """The table up to an entry that is known to exist under a key that is never removed (or a later one)."""
    reached = False
    deadline = time.monotonic() + timeout

    def next_message(reader: pulsar.Reader) -> pulsar.Message | None:
        nonlocal reached
        if reached:
            return None
        message = reader.read_next(max(1, int((deadline - time.monotonic()) * 1000)))
        reached = entry_of(message.message_id()) >= end
        return message

    return _read(client, topic, timeout, next_message)


def _read(
    client: pulsar.Client,
    topic: str,
    timeout: float,
    next_message: Callable[[pulsar.Reader], pulsar.Message | None],
) -> Table:
    table: Table = {}
    deadline = time.monotonic() + timeout
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
        try:
            while (message := next_message(reader)) is not None:
                apply(table, message)
                if time.monotonic() > deadline:
                    raise Unavailable(
                        f"cannot read {topic} to its end within {timeout:.0f} s; it will be tried again"
                    )
        finally:
            reader.close()
    except pulsar.PulsarException as error:
        raise from_client(error, f"read {topic}") from error
    return table


def apply(table: Table, message: pulsar.Message) -> None:
    """Take one message over; an empty one removes its key, as compaction does."""
    key, value = message.partition_key(), message.data()
    if value:
        table[key] = value
    else:
        table.pop(key, None)


def entry_of(message_id: pulsar.MessageId) -> EntryId:
    """The entry, without partition and batch index."""
    return EntryId(message_id.ledger_id(), message_id.entry_id())


def open_fenced_producer(
    client: pulsar.Client, topic: str, *, send_timeout: float = 10.0, **options: Any
) -> pulsar.Producer:
    """The only producer of the topic: whoever came before is fenced, also when it reconnects. Blocks.

    It is "last to arrive", not "highest epoch": read to the end *after* opening, and stop if somebody newer
    wrote. Further options are those of the native client.

    Open one only with a claim to the topic. If two open at once while a third one, which they evict, has a
    write under way, the broker may stand still for good (4.0.8): one thread holds the topic and waits for the
    evicted producer, another holds that and waits for the topic.
    """
    try:
        return client.create_producer(
            topic,
            access_mode=pulsar.ProducerAccessMode.ExclusiveWithFencing,
            send_timeout_millis=int(send_timeout * 1000),
            **{"batching_enabled": False, **options},
        )
    except pulsar.PulsarException as error:
        raise from_client(error, f"open the writer of {topic}") from error
