"""SwitchProduce with three producers writing while things break: nothing lost, nothing twice, all in order.

The fault strikes the moment the operator has announced the switch. Each round records how far the switch had
come by then; over the rounds at least one must have been struck half way, or the test has proved nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from demo.workload import Workload
from millrace.client import Connection
from tests.e2e import cluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.e2e

Fault = Callable[[str, str], Awaitable[None]]
POINTER = 3


async def nothing(namespace: str, name: str) -> None:
    """The undisturbed run."""


async def kill_the_operator(namespace: str, name: str) -> None:
    await cluster.kill_operator()


async def restart_pulsar(namespace: str, name: str) -> None:
    await cluster.sandbox("restart", "pulsar")


async def kill_pulsar(namespace: str, name: str) -> None:
    await cluster.sandbox("kill", "pulsar")
    await cluster.sandbox("restart", "pulsar")


async def unload_every_topic(namespace: str, name: str) -> None:
    status = await cluster.status(name, namespace)
    async with cluster.admin() as admin:
        for topic in status["storageTopics"]:
            for partition in range(topic["partitions"]):
                await admin.unload(f"{topic['topic']}-partition-{partition}")


@contextlib.asynccontextmanager
async def load(connection: Connection, namespace: str, name: str):  # type: ignore[no-untyped-def]
    """Three producers and one reader over the whole composite topic."""
    workload = Workload(connection, "public/default", f"{namespace}/{name}", producers=3, groups=60, rate=600)
    reader = asyncio.create_task(workload.read())
    writers = [asyncio.create_task(workload.produce(index)) for index in range(3)]
    try:
        await eventually(lambda: workload.acknowledged > 500, timeout=60)
        yield workload
        before = workload.acknowledged
        await eventually(lambda: workload.acknowledged > before + 500, timeout=120)
        workload.stopping.set()
        await asyncio.wait_for(asyncio.gather(*writers), timeout=120)
        await eventually(
            lambda: len(workload.positions) >= workload.acknowledged,
            timeout=120,
            describe=lambda: f"read {len(workload.positions)} of {workload.acknowledged}",
        )
    finally:
        for task in (reader, *writers):
            task.cancel()
        await asyncio.gather(reader, *writers, return_exceptions=True)


def judge(workload: Workload) -> None:
    verdict = workload.checker.verdict()
    assert not verdict.violations, verdict.violations[:3]
    assert not verdict.missing, dict(list(verdict.missing.items())[:3])
    print(
        f"{verdict.sent} sent, {verdict.repeats} delivered twice, {len(workload.stored_twice)} stored twice"
    )
    assert not workload.stored_twice, f"{len(workload.stored_twice)}: {workload.stored_twice[:12]}"
    assert workload.acknowledged == verdict.sent, "a send was never acknowledged"
    assert POINTER in workload.read_per_storage_topic, "nothing was written after the switch"


async def switch(namespace: str, name: str, fault: Fault) -> int:
    """Announce the switch, strike, and wait until it is done. Returns the pointer when the fault struck."""
    await cluster.apply(cluster.composite_topic(name, namespace, 4, 12, 6, 24, pointer=POINTER))

    struck_at = -1

    async def begun() -> bool:
        nonlocal struck_at
        status = await cluster.status(name, namespace)
        struck_at = status.get("producePointer", 0)
        return status.get("switchingTo") is not None or struck_at > 0

    await eventually(begun, timeout=60, interval=0.02)
    await fault(namespace, name)
    status = await cluster.ready(name, namespace, seconds=180)
    assert status["producePointer"] == POINTER
    assert [topic["state"] for topic in status["storageTopics"]] == ["Sealed", "Sealed", "Sealed", "Ready"]
    return struck_at


@pytest.mark.parametrize("fault", [nothing, kill_the_operator, unload_every_topic, restart_pulsar])
async def test_order_holds_when_the_topic_grows_shrinks_and_grows_again_while(
    fault: Fault, namespace: str, connection: Connection
) -> None:
    await cluster.apply(cluster.composite_topic("orders", namespace, 4, 12, 6, 24))
    await cluster.ready("orders", namespace)
    async with load(connection, namespace, "orders") as workload:
        await switch(namespace, "orders", fault)
    judge(workload)


@pytest.mark.full
@pytest.mark.parametrize("fault", [kill_the_operator, unload_every_topic, kill_pulsar])
async def test_at_least_one_of_several_faults_strikes_half_way(
    fault: Fault, namespace: str, connection: Connection
) -> None:
    struck: list[int] = []
    for round_ in range(4):
        name = f"orders-{round_}"
        await cluster.apply(cluster.composite_topic(name, namespace, 4, 12, 6, 24))
        await cluster.ready(name, namespace, seconds=180)
        async with load(connection, namespace, name) as workload:
            struck.append(await switch(namespace, name, fault))
        judge(workload)
    assert min(struck) < POINTER, f"every switch was over before the fault: {struck}"
