"""A Subscription delivers to a real endpoint while things happen that happen every day.

One shop serves most of the tests; each has groups of its own.
"""

from __future__ import annotations

import json

import pytest

from millrace.client import Connection
from tests.e2e import cluster
from tests.e2e.subscriptions import (
    HARD_FAILURE,
    TOPIC,
    WINDOW,
    Shop,
    dead_letters,
    judge,
    load,
    open_shop,
    subscription,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.e2e


async def test_everything_arrives_once_and_in_order_while_the_topic_grows(
    namespace: str, connection: Connection
) -> None:
    shop = await open_shop(namespace, 2)
    async with load(connection, shop, "grow", groups=120, rate=600) as running:
        await cluster.apply(cluster.composite_topic(TOPIC, namespace, 2, 12, pointer=1))
        await cluster.ready(TOPIC, namespace)
        before = running.workload.per_storage_topic[1]
        await eventually(lambda: running.workload.per_storage_topic[1] > before + 500, timeout=60)
    judge(running, repeats_allowed=0)
    assert running.workload.per_storage_topic[0], "nothing was written before the switch"

    async def both_topics_are_assigned() -> bool:
        shards = (await shop.status())["shards"]
        return all(shard["assignments"][-1]["partitions"] == ("0-5", "6-11")[shard["id"]] for shard in shards)

    await eventually(both_topics_are_assigned, timeout=60)


async def test_a_failing_group_waits_in_the_retry_queue_and_goes_on_when_it_is_taken(
    shop: Shop, connection: Connection
) -> None:
    await shop.endpoint.answer({"retry-0007": {"status": 500}})
    async with load(connection, shop, "retry") as running:
        deliveries = running.deliveries
        await eventually(lambda: deliveries.statuses[500] >= 3, timeout=60, describe=lambda: str(running))
        assert not deliveries.taken["retry-0007"]

        async def told() -> bool:
            return bool((await shop.status()).get("blockedGroups") == 1)

        await eventually(told, timeout=60)
        before = deliveries.taken.copy()
        await running.more(600)
        others = {group for group in before if group != "retry-0007"}
        assert all(deliveries.taken[group] > before[group] for group in others), "a healthy group waited"
        await shop.endpoint.answer({})
    judge(running, repeats_allowed=0)
    assert deliveries.taken["retry-0007"], "the group never went on"


async def test_a_poisoned_group_goes_to_the_dead_letter_queue_and_blocks_only_itself(
    shop: Shop, connection: Connection
) -> None:
    poisoned = "poison-0011"
    await shop.endpoint.answer({poisoned: {"status": HARD_FAILURE}})
    async with load(connection, shop, "poison", never=(poisoned,)) as running:
        await eventually(
            lambda: running.deliveries.statuses[HARD_FAILURE] == 1, timeout=60, describe=lambda: str(running)
        )
        # Whatever follows goes after it, and is not even tried: the endpoint would take it now.
        await shop.endpoint.answer({})
        await running.more(900)
    verdict = judge(running, never=(poisoned,), repeats_allowed=0)
    assert running.deliveries.statuses[HARD_FAILURE] == 1
    assert not running.deliveries.taken[poisoned]
    kept = await dead_letters(connection, shop.namespace, verdict.missing[poisoned])
    assert [(group, number) for group, number, _ in kept] == [
        (poisoned, number) for number in range(verdict.missing[poisoned])
    ]

    async def told() -> bool:
        return bool((await shop.status()).get("deadLetteredGroups") == 1)

    await eventually(told, timeout=60)


async def test_a_standby_takes_over_from_an_owner_that_is_killed(shop: Shop, connection: Connection) -> None:
    async with load(connection, shop, "kill") as running:
        killed = await shop.owner()
        await cluster.kubectl(
            "delete", "pod", killed, "-n", shop.namespace, "--grace-period=0", "--force", "--wait=false"
        )

        async def moved() -> bool:
            return await shop.owner() not in ("", killed)

        await eventually(moved, timeout=60)
        await running.more(600)
    judge(running, repeats_allowed=WINDOW)
    assert len(running.epochs) > 1, "nobody took over"


async def test_topics_that_move_to_another_broker_lose_and_reorder_nothing(
    shop: Shop, connection: Connection
) -> None:
    async with load(connection, shop, "unload") as running:
        status = await cluster.status(TOPIC, shop.namespace)
        async with cluster.admin() as admin:
            for topic in status["storageTopics"]:
                for partition in range(topic["partitions"]):
                    await admin.unload(f"{topic['topic']}-partition-{partition}")
        await running.more(600)
    judge(running)


async def test_kubectl_scale_tells_and_sets_the_count_and_one_that_does_not_fit_is_raised(shop: Shop) -> None:
    await cluster.apply(
        subscription(shop.namespace, "scaled", url=shop.endpoint.url, shardCount=0, standby=0)
    )
    await cluster.ready("scaled", shop.namespace, kind="msub")
    await cluster.kubectl("scale", "msub", "scaled", "-n", shop.namespace, "--replicas=3")
    status = await cluster.condition(
        "scaled", shop.namespace, "ShardCountAdjusted", "RaisedToFit", kind="msub"
    )
    assert (status["effectiveShardCount"], status["replicas"]) == (4, 4)
    path = f"/apis/millrace.dev/v1alpha1/namespaces/{shop.namespace}/subscriptions/scaled/scale"
    scale = json.loads(await cluster.kubectl("get", "--raw", path))
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (3, 4)
    await cluster.kubectl("delete", "msub", "scaled", "-n", shop.namespace, "--timeout=60s")
