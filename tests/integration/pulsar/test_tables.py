from __future__ import annotations

import pulsar
import pytest

from millrace.pulsar import tables
from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import blocking
from millrace.pulsar.tables import read_to_end


async def write(client: pulsar.Client, topic: str, *records: tuple[str, bytes | None]) -> None:
    def run() -> None:
        producer = tables.open_fenced_producer(client, topic)
        for key, value in records:
            producer.send(value, partition_key=key)
        producer.close()

    await blocking(run)


async def test_an_empty_topic_is_an_empty_table(admin: Admin, client: pulsar.Client, topic: str) -> None:
    await admin.create_topic(topic, {})
    assert await read_to_end(client, topic) == {}


@pytest.mark.parametrize("gone", [None, b""], ids=["null", "empty"])
async def test_the_newest_value_of_a_key_wins_and_a_tombstone_removes_it(
    admin: Admin, client: pulsar.Client, topic: str, gone: bytes | None
) -> None:
    await admin.create_topic(topic, {})
    await write(client, topic, ("a", b"1"), ("b", b"1"), ("c", b"1"), ("a", b"2"), ("b", gone))
    assert await read_to_end(client, topic) == {"a": b"2", "c": b"1"}


async def test_an_unload_hides_nothing(admin: Admin, client: pulsar.Client, topic: str) -> None:
    await admin.create_topic(topic, {})
    await write(client, topic, ("a", b"1"))
    await admin.unload(topic)
    await write(client, topic, ("b", b"1"))
    await admin.unload(topic)
    assert await read_to_end(client, topic) == {"a": b"1", "b": b"1"}


async def test_a_table_of_tombstones_is_empty(admin: Admin, client: pulsar.Client, topic: str) -> None:
    await admin.create_topic(topic, {})
    await write(client, topic, ("a", b"1"), ("a", None))
    assert await read_to_end(client, topic) == {}
