"""Claims of shards through a real broker: one holder each, a new epoch each time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pulsar
import pytest

from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import blocking, connect
from millrace.pulsar.shardclaims import PulsarClaim, PulsarClaims
from millrace.pulsar.statetables import ensure_state_topic
from tests.support.pulsar import credentials


class Process:
    """Something that claims shards, with a client of its own."""

    def __init__(self, topics: list[str]) -> None:
        self.client: pulsar.Client = connect(credentials())
        self.claims = PulsarClaims(self.client, topics, renew_seconds=0.4)
        self.dead = False

    async def claim(self) -> PulsarClaim:
        async with asyncio.timeout(30):
            return await self.claims.claim()

    async def die(self) -> None:
        """Disconnect without a word."""
        if not self.dead:
            self.dead = True
            await blocking(self.client.close)


Start = Callable[[], Process]


@pytest.fixture
async def topics(admin: Admin, fresh: Callable[[], str]) -> list[str]:
    topics = [fresh() for _ in range(2)]
    for topic in topics:
        await ensure_state_topic(admin, topic, {"millrace.dev/name": "orders"})
    return topics


@pytest.fixture
async def start(topics: list[str]) -> AsyncIterator[Start]:
    started: list[Process] = []

    def start_one() -> Process:
        started.append(Process(topics))
        return started[-1]

    yield start_one
    for process in started:
        await process.die()


async def is_waiting(claiming: asyncio.Future[PulsarClaim]) -> bool:
    done, _ = await asyncio.wait((claiming,), timeout=1.5)
    return not done


async def test_each_shard_has_one_holder_and_the_others_stand_by(start: Start) -> None:
    first, second = await asyncio.gather(start().claim(), start().claim())
    assert {first.shard, second.shard} == {0, 1}
    assert {first.epoch, second.epoch} == {1}
    standby = asyncio.ensure_future(start().claim())
    assert await is_waiting(standby)
    standby.cancel()


async def test_a_standby_takes_over_what_is_released_with_the_next_epoch(start: Start) -> None:
    one, two, three = start(), start(), start()
    first, _ = await one.claim(), await two.claim()
    standby = asyncio.ensure_future(three.claim())
    await one.claims.release(first)
    heir = await standby
    assert (heir.shard, heir.epoch) == (first.shard, 2)


async def test_a_standby_takes_over_from_a_holder_that_is_gone(start: Start) -> None:
    one, two, three = start(), start(), start()
    first, _ = await one.claim(), await two.claim()
    standby = asyncio.ensure_future(three.claim())
    assert await is_waiting(standby)
    await one.die()
    heir = await standby
    assert (heir.shard, heir.epoch) == (first.shard, 2)


async def test_a_holder_keeps_its_shard_through_an_unload(
    admin: Admin, topics: list[str], start: Start
) -> None:
    one, two = start(), start()
    claim = await one.claim()
    await two.claim()
    keeping = asyncio.ensure_future(one.claims.keep(claim))
    standby = asyncio.ensure_future(start().claim())
    for _ in range(3):
        await admin.unload(topics[claim.shard])
        await asyncio.wait((keeping, standby), timeout=1.0)
    # Whoever comes back first has it. Exactly one does, and the other is told.
    await asyncio.wait((keeping, standby), timeout=1.0)
    assert keeping.done() == standby.done()
    if standby.done():
        assert (standby.result().shard, standby.result().epoch) == (claim.shard, claim.epoch + 1)
    for task in (keeping, standby):
        task.cancel()
    await asyncio.wait((keeping, standby))


async def test_a_claim_that_is_given_up_while_it_is_made_holds_nothing(start: Start) -> None:
    one, two = start(), start()
    await two.claim()
    claiming = asyncio.ensure_future(one.claim())
    for _ in range(5):  # steps of the event loop: it is on its way to the broker then
        await asyncio.sleep(0)
    claiming.cancel()
    await asyncio.wait((claiming,))
    assert (await start().claim()).shard in (0, 1)
