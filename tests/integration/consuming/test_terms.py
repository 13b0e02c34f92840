"""A shard on a real broker: delivered in order, parked, retried, dead-lettered, taken over, built again."""

from __future__ import annotations

import pytest

from millrace.consuming.terms import Over
from millrace.core.outcomes import SUCCESS, HardFailure, Outcome, Retryable
from millrace.pulsar.errors import Fenced
from millrace.pulsar.statetables import ensure_state_topic
from tests.integration.consuming.conftest import OWNER, Create, Endpoint, dying, serving
from tests.support.waiting import eventually

GROUPS = [f"group-{number}" for number in range(20)]


def all_accepted(endpoint: Endpoint, count: int) -> bool:
    return sum(len(set(numbers)) for numbers in endpoint.accepted.values()) == count


async def test_everything_is_delivered_in_order_and_acknowledged(create: Create) -> None:
    queues = await create(2)
    endpoint = Endpoint()
    await queues.send(endpoint.checker, GROUPS, 50)
    async with serving(queues.settings(), endpoint):
        await eventually(lambda: all_accepted(endpoint, 1000), timeout=60)
    assert endpoint.checker.verdict().holds(repeats_allowed=0)
    assert await queues.backlog() == 0


async def test_a_group_that_fails_is_retried_while_the_others_go_on(create: Create) -> None:
    queues = await create(2)

    def decide(group: str, number: int, attempt: int) -> Outcome:
        return Retryable("not now") if group == "group-0" and number == 3 and attempt < 4 else SUCCESS

    endpoint = Endpoint(decide)
    await queues.send(endpoint.checker, GROUPS, 20)
    async with serving(queues.settings(), endpoint):
        await eventually(lambda: all_accepted(endpoint, 400), timeout=60)
        await queues.send(endpoint.checker, GROUPS, 1)
        await eventually(lambda: all_accepted(endpoint, 420), timeout=60)
    verdict = endpoint.checker.verdict()
    assert not verdict.violations
    assert verdict.repeats == 3, "the three attempts that failed, and nothing else"
    assert endpoint.accepted["group-0"] == list(range(21))
    assert await queues.backlog() == 0
    assert await queues.backlog("_rq") == 0


async def test_a_dead_letter_blocks_its_group_and_no_other(create: Create) -> None:
    queues = await create(2)

    def decide(group: str, number: int, attempt: int) -> Outcome:
        return HardFailure("never") if group == "group-0" and number == 3 else SUCCESS

    endpoint = Endpoint(decide)
    await queues.send(endpoint.checker, GROUPS, 20)
    async with serving(queues.settings(), endpoint) as term:
        await eventually(lambda: all_accepted(endpoint, 400 - 17), timeout=60)
        await eventually(lambda: term.flow.counts["dead_lettered"] == 17, timeout=30)
    assert endpoint.accepted["group-0"] == [0, 1, 2]
    assert await queues.backlog() == 0
    assert await queues.backlog("_dlq") == 17


async def test_a_dead_letter_that_is_skipped_blocks_nothing(create: Create) -> None:
    queues = await create(2)

    def decide(group: str, number: int, attempt: int) -> Outcome:
        return Retryable("no") if group == "group-0" and number == 3 else SUCCESS

    endpoint = Endpoint(decide)
    await queues.send(endpoint.checker, GROUPS, 10)
    async with serving(queues.settings(block_on_dead_letter=False, max_attempts=3), endpoint):
        await eventually(lambda: all_accepted(endpoint, 199), timeout=60)
    assert endpoint.accepted["group-0"] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert await queues.backlog("_dlq") == 1


async def test_a_successor_goes_on_where_an_owner_died_and_waits_out_what_it_had_sent(create: Create) -> None:
    queues = await create(2)

    def decide(group: str, number: int, attempt: int) -> Outcome:
        return Retryable("not now") if number % 7 == 3 and attempt < 3 else SUCCESS

    endpoint = Endpoint(decide, pause=0.01)
    await queues.send(endpoint.checker, GROUPS, 30)
    async with dying(queues.settings(), endpoint, epoch=1):
        await eventually(lambda: sum(map(len, endpoint.accepted.values())) > 150, timeout=60)
    async with serving(queues.settings(), endpoint, epoch=2) as term:
        await eventually(lambda: all_accepted(endpoint, 600), timeout=60)
        assert term.flow is not None
    verdict = endpoint.checker.verdict()
    assert not verdict.violations, verdict.violations[:3]
    assert not verdict.missing


async def test_an_owner_that_comes_back_after_its_successor_is_fenced(create: Create) -> None:
    queues = await create(2)
    endpoint = Endpoint()
    async with serving(queues.settings(), endpoint, epoch=2):
        pass
    with pytest.raises(Fenced):
        async with serving(queues.settings(), endpoint, epoch=1) as term:
            await eventually(lambda: term.delivering, timeout=30)


async def test_a_living_owner_stops_when_a_successor_fences_it(create: Create) -> None:
    queues = await create(2)
    old, new = Endpoint(), Endpoint()
    with pytest.raises(Over, match="state table is lost"):  # noqa: PT012 - it ends at the last exit
        async with serving(queues.settings(), old, epoch=1) as first:
            await eventually(lambda: first.delivering, timeout=30)
            async with serving(queues.settings(), new, epoch=2) as second:
                await eventually(lambda: second.delivering, timeout=60)
                await queues.send(new.checker, GROUPS, 5)
                await eventually(lambda: all_accepted(new, 100), timeout=60)
    assert not old.accepted, "the zombie has delivered"
    assert new.checker.verdict().holds(repeats_allowed=0)


async def test_a_lost_state_table_is_built_again_from_the_queues(create: Create) -> None:
    queues = await create(2)
    healthy = False

    def decide(group: str, number: int, attempt: int) -> Outcome:
        if group == "group-1":
            return HardFailure("never") if number == 2 else SUCCESS
        return Retryable("not now") if group == "group-0" and number == 2 and not healthy else SUCCESS

    endpoint = Endpoint(decide)
    await queues.send(endpoint.checker, GROUPS, 5)
    async with serving(queues.settings(), endpoint) as term:
        await eventually(lambda: all_accepted(endpoint, 94), timeout=60)
        await eventually(lambda: term.flow.counts["dead_lettered"] == 3, timeout=30)
        await eventually(lambda: term.flow.counts["retried"] >= 3, timeout=30)
    await queues.admin.delete_topic(queues.state_topic(), force=True)
    await ensure_state_topic(queues.admin, queues.state_topic(), OWNER)
    await queues.send(endpoint.checker, GROUPS, 1)
    healthy = True
    async with serving(queues.settings(), endpoint, epoch=2):
        await eventually(lambda: all_accepted(endpoint, 94 + 18 + 4), timeout=60)
    assert endpoint.accepted["group-0"] == list(range(6))
    assert endpoint.accepted["group-1"] == [0, 1], "a dead letter blocks its group as before"
    assert not endpoint.checker.verdict().violations


async def test_a_shard_crosses_to_the_next_storage_topic_by_itself(create: Create) -> None:
    queues = await create(2, 12)
    endpoint = Endpoint()
    async with serving(queues.settings(), endpoint) as term:
        await queues.send(endpoint.checker, GROUPS, 20)
        await queues.switch()
        await queues.send(endpoint.checker, GROUPS, 20)
        await eventually(lambda: all_accepted(endpoint, 800), timeout=90)
        assert term.stopped_at is None
    assert endpoint.checker.verdict().holds(repeats_allowed=0)


async def test_two_shards_have_every_group_between_them_once(create: Create) -> None:
    queues = await create(4, shards=2)
    endpoint = Endpoint()
    await queues.send(endpoint.checker, GROUPS, 20)
    async with (
        serving(queues.settings(0, 2), endpoint),
        serving(queues.settings(1, 2), endpoint),
    ):
        await eventually(lambda: all_accepted(endpoint, 400), timeout=60)
    assert endpoint.checker.verdict().holds(repeats_allowed=0)


async def test_unloads_lose_nothing_and_keep_the_order(create: Create) -> None:
    queues = await create(2)

    def decide(group: str, number: int, attempt: int) -> Outcome:
        return Retryable("not now") if number % 5 == 2 and attempt < 2 else SUCCESS

    endpoint = Endpoint(decide, pause=0.005)
    await queues.send(endpoint.checker, GROUPS, 60)
    async with serving(queues.settings(), endpoint):
        await eventually(lambda: sum(map(len, endpoint.accepted.values())) > 200, timeout=60)
        for suffix in ("", "_rq"):
            for partition in range(2):
                await queues.admin.unload(f"{queues.topic(suffix)}-partition-{partition}")
        await eventually(lambda: all_accepted(endpoint, 1200), timeout=90)
    verdict = endpoint.checker.verdict()
    assert not verdict.violations, verdict.violations[:3]
    assert not verdict.missing
