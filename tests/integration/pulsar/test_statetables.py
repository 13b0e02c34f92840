"""A shard's state table on a real broker: who may own it, who is refused, what is kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pulsar
import pytest

from millrace.pulsar import tables
from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import blocking
from millrace.pulsar.errors import Fenced, UnreadableTable
from millrace.pulsar.statetables import (
    COMPACTION_THRESHOLD,
    HEARTBEAT_KEY,
    OWNER_KEY,
    PreviousOwner,
    StateTable,
    ensure_state_topic,
)
from tests.support import restarts
from tests.support.pulsar import open_client
from tests.support.waiting import eventually

OWNER = {"millrace.dev/name": "orders", "millrace.dev/kind": "Subscription"}

Open = Callable[[int], "asyncio.Future[StateTable]"]


@pytest.fixture
async def topic(admin: Admin, topic: str) -> str:
    await ensure_state_topic(admin, topic, OWNER)
    return topic


@pytest.fixture
async def owner_of(topic: str) -> AsyncIterator[Open]:
    """Opens the table as the owner of an epoch, each time with a client of its own, as each pod has one."""
    async with AsyncExitStack() as stack:

        async def open_as(epoch: int) -> StateTable:
            client = await stack.enter_async_context(open_client())
            table = await StateTable.open(client, topic, epoch)
            stack.push_async_callback(table.close)
            return table

        yield open_as  # type: ignore[misc]


async def stored(table: StateTable, *records: tuple[str, bytes | None]) -> None:
    """Write, and wait until everything is stored."""
    answers: list[str] = []
    for group, value in records:
        table.write(group, value, lambda group=group: answers.append(group))  # type: ignore[misc]
    async with asyncio.timeout(30):
        await table.drain()
    assert table.reason is None
    assert answers == [group for group, _ in records]


async def owner_record(client: pulsar.Client, topic: str) -> bytes | None:
    return (await tables.read_to_end(client, topic)).get(OWNER_KEY)


async def lost(table: StateTable) -> Exception:
    async with asyncio.timeout(20):
        await table.lost.wait()
    assert table.reason is not None
    return table.reason


async def test_a_new_table_is_empty_and_had_no_owner(owner_of: Open) -> None:
    table = await owner_of(1)
    assert (table.entries, table.previous_owner) == ({}, None)


async def test_the_next_owner_finds_what_was_written_and_who_wrote_it(owner_of: Open) -> None:
    table = await owner_of(1)
    await stored(table, ("a", b"1"), ("b", b"1"), ("owner", b"no owner"), ("", b"nameless"), ("a", b"2"))
    heir = await owner_of(2)
    assert heir.entries == {"a": b"2", "b": b"1", "owner": b"no owner", "": b"nameless"}
    assert heir.previous_owner == PreviousOwner(epoch=1, released=False)


async def test_a_removed_group_stays_removed(owner_of: Open) -> None:
    table = await owner_of(1)
    await stored(table, ("a", b"1"), ("b", b"1"), ("a", None))
    assert (await owner_of(2)).entries == {"b": b"1"}


async def test_a_clean_release_is_seen_by_the_next_owner_and_by_no_later_one(owner_of: Open) -> None:
    table = await owner_of(1)
    await stored(table, ("a", b"1"))
    await table.release()
    assert table.lost.is_set()
    assert table.reason is None
    assert (await owner_of(2)).previous_owner == PreviousOwner(epoch=1, released=True)
    assert (await owner_of(3)).previous_owner == PreviousOwner(epoch=2, released=False)


async def test_writes_of_a_fenced_owner_fail_and_leave_no_trace(owner_of: Open) -> None:
    zombie = await owner_of(1)
    await stored(zombie, ("a", b"1"))
    heir = await owner_of(2)
    answers: list[str] = []
    zombie.write("a", b"stale", lambda: answers.append("a"))
    assert isinstance(await lost(zombie), Fenced)
    zombie.write("b", b"stale", lambda: answers.append("b"))
    await stored(heir, ("c", b"1"))
    assert answers == []
    assert (await owner_of(3)).entries == {"a": b"1", "c": b"1"}


async def test_an_idle_zombie_meets_the_fence_with_its_next_heartbeat(owner_of: Open) -> None:
    zombie = await owner_of(1)
    await owner_of(2)
    before = zombie.last_heartbeat
    zombie.heartbeat()
    assert isinstance(await lost(zombie), Fenced)
    assert zombie.last_heartbeat == before


async def test_an_old_owner_that_opens_after_the_new_one_is_refused_and_leaves_no_trace(
    admin: Admin, client: pulsar.Client, topic: str, owner_of: Open
) -> None:
    heir = await owner_of(2)
    await stored(heir, ("a", b"2"))
    record = await owner_record(client, topic)
    with pytest.raises(Fenced, match="belongs to epoch 2, ours is 1"):
        await owner_of(1)
    assert await owner_record(client, topic) == record
    await compacted(admin, topic)
    assert await owner_record(client, topic) == record
    # It evicted the new owner, which looks at its claim and comes again, with the same epoch.
    heir.heartbeat()
    assert isinstance(await lost(heir), Fenced)
    again = await owner_of(2)
    assert again.entries == {"a": b"2"}
    assert again.previous_owner == PreviousOwner(epoch=2, released=False)
    await stored(again, ("a", b"3"))


@pytest.mark.parametrize("attempt", range(5))
async def test_of_owners_that_open_at_the_same_time_one_at_most_has_heartbeats_that_count(
    owner_of: Open, attempt: int
) -> None:
    # Two, not more: a third one can make the broker stand still (see `tables.open_fenced_producer`).
    outcomes = await asyncio.gather(*(owner_of(epoch) for epoch in (1, 2)), return_exceptions=True)
    winners = [outcome for outcome in outcomes if isinstance(outcome, StateTable)]
    assert all(isinstance(outcome, StateTable | Fenced) for outcome in outcomes), outcomes
    opened = {table.epoch: table.last_heartbeat for table in winners}
    for table in winners:
        table.heartbeat()

    # The broker may have let in several: each of them finds out before a heartbeat of it counts.
    def at_most_one_is_left() -> bool:
        left = [table for table in winners if not table.lost.is_set()]
        return len(left) <= 1 and all(table.last_heartbeat > opened[table.epoch] for table in left)

    await eventually(at_most_one_is_left)
    for table in winners:
        if table.lost.is_set():
            assert isinstance(table.reason, Fenced)
            assert table.last_heartbeat == opened[table.epoch]


async def compacted(admin: Admin, topic: str) -> None:
    async def last() -> int:
        return int((await admin.stats(topic))["compaction"]["lastCompactionSucceedTimestamp"])

    before = await last()
    await admin.compact(topic)

    async def is_done() -> bool:
        return await last() > before

    await eventually(is_done, timeout=60)


async def test_compaction_keeps_epoch_and_state(admin: Admin, topic: str, owner_of: Open) -> None:
    table = await owner_of(5)
    groups = [f"group-{number}" for number in range(200)]
    for version in range(5):
        await stored(table, *((group, f"{version}".encode()) for group in groups))
    await stored(table, *((group, None) for group in groups[:50]))
    table.heartbeat()
    await table.drain()
    await compacted(admin, topic)
    with pytest.raises(Fenced, match="belongs to epoch 5"):
        await owner_of(4)
    heir = await owner_of(6)
    assert heir.entries == dict.fromkeys(groups[50:], b"4")
    assert heir.previous_owner == PreviousOwner(epoch=5, released=False)
    await stored(heir, ("group-60", b"5"))
    await compacted(admin, topic)
    await admin.unload(topic)
    last = await owner_of(7)
    assert last.entries == dict.fromkeys(groups[50:], b"4") | {"group-60": b"5"}
    assert last.previous_owner == PreviousOwner(epoch=6, released=False)


async def test_the_order_of_a_group_is_kept_under_load(owner_of: Open) -> None:
    """More writes than the client may hold at once; the newest wins, and the answers come in order."""
    table = await owner_of(1)
    answers: list[int] = []
    for number in range(30_000):
        group, value = f"group-{number % 7}", str(number).encode()
        table.write(group, value, lambda number=number: answers.append(number))  # type: ignore[misc]
    async with asyncio.timeout(60):
        await table.drain()
    assert answers == list(range(30_000))
    expected = {f"group-{number % 7}": str(number).encode() for number in range(29_993, 30_000)}
    assert (await owner_of(2)).entries == expected


async def test_an_unload_in_the_middle_loses_nothing_and_keeps_the_owner(
    admin: Admin, topic: str, owner_of: Open
) -> None:
    table = await owner_of(1)
    answers: list[int] = []
    for burst in range(5):
        for number in range(burst * 1000, burst * 1000 + 1000):
            table.write(f"g{number % 10}", str(number).encode(), lambda n=number: answers.append(n))  # type: ignore[misc]
        if burst in (1, 3):
            await admin.unload(topic)
    async with asyncio.timeout(60):
        await table.drain()
    assert table.reason is None
    assert answers == list(range(5000))
    assert (await owner_of(2)).entries == {f"g{n % 10}": str(n).encode() for n in range(4990, 5000)}


async def test_an_owner_that_was_replaced_while_the_topic_was_unloaded_is_fenced(
    admin: Admin, topic: str, owner_of: Open
) -> None:
    zombie = await owner_of(1)
    heir = await owner_of(2)
    await admin.unload(topic)
    zombie.write("a", b"stale", lambda: None)
    assert isinstance(await lost(zombie), Fenced)
    await stored(heir, ("a", b"1"))
    assert (await owner_of(3)).entries == {"a": b"1"}


@pytest.mark.skipif(not restarts.available(), reason="PULSAR_RESTART_COMMAND is not set")
@pytest.mark.full
async def test_a_restart_of_the_broker_loses_nothing_and_keeps_the_owner(owner_of: Open) -> None:
    table = await owner_of(1)
    answers: list[int] = []
    restarting = asyncio.ensure_future(restarts.restart_pulsar())
    number = 0
    while not restarting.done() or number < 2000:
        table.write(f"g{number % 10}", str(number).encode(), lambda n=number: answers.append(n))  # type: ignore[misc]
        number += 1
        await asyncio.sleep(0.005)  # a load, not a wait
    await restarting
    async with asyncio.timeout(120):
        await table.drain()
    assert table.reason is None
    assert answers == list(range(number))
    heir = await owner_of(2)
    assert heir.entries == {f"g{n % 10}": str(n).encode() for n in range(number - 10, number)}


async def test_a_heartbeat_counts_from_when_it_was_sent(
    admin: Admin, client: pulsar.Client, topic: str, owner_of: Open
) -> None:
    table = await owner_of(3)
    assert table.last_heartbeat <= table.opened_at <= time.monotonic()
    sent_after = time.monotonic()
    table.heartbeat()
    sent_before = time.monotonic()
    assert table.last_heartbeat < sent_after  # nothing counts before it is acknowledged
    await eventually(lambda: table.last_heartbeat >= sent_after)
    assert table.last_heartbeat <= sent_before
    assert (await tables.read_to_end(client, topic))[HEARTBEAT_KEY] == b"3:1"


async def test_an_opening_that_is_cancelled_leaves_nobody_behind(admin: Admin, topic: str) -> None:
    async with open_client() as client:
        opening = asyncio.ensure_future(StateTable.open(client, topic, 1))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        assert (await admin.stats(topic))["publishers"] == []


async def test_a_damaged_owner_record_is_told_and_not_overwritten(client: pulsar.Client, topic: str) -> None:
    def damage() -> None:
        producer = tables.open_fenced_producer(client, topic)
        producer.send(b"nonsense", partition_key=OWNER_KEY)
        producer.close()

    await blocking(damage)
    with pytest.raises(UnreadableTable, match="nonsense"):
        await StateTable.open(client, topic, 1)
    assert await owner_record(client, topic) == b"nonsense"


async def test_the_topic_is_made_so_that_nothing_in_it_can_be_lost(admin: Admin, topic: str) -> None:
    assert await admin.compaction_threshold(topic) == COMPACTION_THRESHOLD
    assert await admin.inactive_policy(topic) is False
    assert "__compaction" in await admin.subscriptions(topic)
    await ensure_state_topic(admin, topic, OWNER)  # again: nothing changes


async def test_a_hundred_thousand_entries_are_loaded_in_seconds(
    admin: Admin, topic: str, owner_of: Open, record_property: Callable[[str, object], None]
) -> None:
    table = await owner_of(1)
    value = b"x" * 100
    began = time.monotonic()
    for number in range(100_000):
        table.write(f"group-{number:08}", value, lambda: None)
        if number % 5000 == 0:
            await asyncio.sleep(0)
    async with asyncio.timeout(120):
        await table.drain()
    written = time.monotonic()
    heir = await owner_of(2)
    loaded = time.monotonic()
    assert len(heir.entries) == 100_000
    await compacted(admin, topic)
    compact = time.monotonic()
    last = await owner_of(3)
    again = time.monotonic()
    assert last.entries == heir.entries
    print(
        f"\n100,000 entries: written in {written - began:.1f} s, loaded in {loaded - written:.1f} s, "
        f"compacted in {compact - loaded:.1f} s, loaded again in {again - compact:.1f} s"
    )
    assert max(loaded - written, again - compact) < 30
