"""What the tests of Subscriptions share: one that delivers to a recorder, load on it, and the judgement."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from demo.endpoint import Deliveries, Endpoint
from demo.workload import Workload
from millrace.client import Connection, Consumer
from millrace.core.promise import Verdict
from tests.e2e import cluster
from tests.e2e.cluster import Manifest
from tests.support.waiting import eventually

NAME = "to-shop"
TOPIC = "orders"
PULSAR_NAMESPACE = "public/default"
HARD_FAILURE = 422
WINDOW = 8 * 64
"""What one shard may have delivered and not acknowledged: a few rounds of what it sends at a time."""
TIMEOUT = "3s"
"""A successor waits for requests of the owner before, so the tests wait for it too."""


def subscription(namespace: str, name: str = NAME, *, url: str, **spec: Any) -> Manifest:
    delivery = {"url": url, "timeout": TIMEOUT, **spec.pop("delivery", {})}
    retry = {
        "initial": "300ms",
        "max": "2s",
        "maxAttempts": 1000,
        "hardFailureCodes": [HARD_FAILURE],
        **spec.pop("retry", {}),
    }
    return {
        "apiVersion": "millrace.dev/v1alpha1",
        "kind": "Subscription",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "topicRef": {"name": TOPIC},
            "shardCount": 2,
            "delivery": delivery,
            "retry": retry,
            **spec,
        },
    }


@dataclass(frozen=True)
class Shop:
    """A namespace with a topic, an endpoint and a Subscription from the one to the other."""

    namespace: str
    endpoint: Endpoint

    async def status(self) -> Manifest:
        return await cluster.status(NAME, self.namespace, kind="msub")

    async def owner(self, shard: int = 0) -> str:
        """The pod that holds a shard, as the shard's Lease says."""
        owners = await self.owners()
        return owners[shard]

    async def owners(self) -> list[str]:
        leases = [await cluster.get("lease", f"{NAME}-0-{shard}", self.namespace) for shard in range(2)]
        return [lease.get("spec", {}).get("holderIdentity", "") for lease in leases]


async def open_shop(namespace: str, *partitions: int) -> Shop:
    """Ready to deliver when it returns."""
    shop = Shop(namespace, Endpoint(namespace, "shop"))
    await cluster.apply(cluster.composite_topic(TOPIC, namespace, *partitions))
    await asyncio.gather(shop.endpoint.start(), cluster.ready(TOPIC, namespace))
    await cluster.apply(subscription(namespace, url=shop.endpoint.url))
    await cluster.ready(NAME, namespace, seconds=120, kind="msub")
    return shop


@dataclass(frozen=True)
class Load:
    """Producers at work, and what came of it at the endpoint."""

    workload: Workload
    deliveries: Deliveries

    def verdict(self) -> Verdict:
        return self.workload.checker.verdict()

    async def more(self, count: int, seconds: float = 120.0) -> None:
        """Wait until so many more were taken."""
        wanted = self.taken + count
        await eventually(
            lambda: self.taken >= wanted,
            timeout=seconds,
            describe=lambda: f"{self.taken} taken of {self.workload.acknowledged}, not {wanted}; {self}",
        )

    @property
    def taken(self) -> int:
        return self.deliveries.taken.total()

    @property
    def epochs(self) -> set[int]:
        return set(self.deliveries.epochs.values())

    def missing(self, *but: str) -> int:
        """How many are not taken yet, apart from these groups."""
        missing = self.verdict().missing
        return sum(count for group, count in missing.items() if group not in but)

    def __str__(self) -> str:
        return f"answers {dict(self.deliveries.statuses)}, epochs {sorted(self.epochs)}"


@contextlib.asynccontextmanager
async def load(
    connection: Connection,
    shop: Shop,
    prefix: str,
    *,
    groups: int = 60,
    rate: float = 300,
    never: tuple[str, ...] = (),
) -> AsyncIterator[Load]:
    """Three producers while the body runs; then waits until all is taken but what `never` will be."""
    workload = Workload(
        connection,
        PULSAR_NAMESPACE,
        f"{shop.namespace}/{TOPIC}",
        producers=3,
        groups=groups,
        rate=rate,
        prefix=prefix,
    )
    running = Load(workload, Deliveries(shop.endpoint, workload.checker, prefix))
    following = asyncio.create_task(running.deliveries.follow())
    writers = [asyncio.create_task(workload.produce(index)) for index in range(3)]
    try:
        await running.more(300)
        yield running
        workload.stopping.set()
        await asyncio.wait_for(asyncio.gather(*writers), timeout=120)
        await eventually(
            lambda: not running.missing(*never),
            timeout=180,
            describe=lambda: f"{running.missing(*never)} of {workload.acknowledged} not taken; {running}",
        )
    finally:
        for task in (following, *writers):
            task.cancel()
        await asyncio.gather(following, *writers, return_exceptions=True)
    await running.deliveries.look()


def judge(running: Load, *, never: tuple[str, ...] = (), repeats_allowed: int | None = None) -> Verdict:
    """The promise: nothing lost, first deliveries in order, repeats run in order; one at a time a group."""
    verdict = running.verdict()
    print(f"{verdict.sent} sent, {verdict.repeats} duplicates; {running}")
    assert not verdict.violations, verdict.violations[:3]
    assert not running.deliveries.stale, running.deliveries.stale[:3]
    assert not running.deliveries.overlaps, running.deliveries.overlaps[:3]
    lost = {group: count for group, count in verdict.missing.items() if group not in never}
    assert not lost, dict(list(lost.items())[:3])
    assert running.workload.acknowledged == verdict.sent, "a send was never acknowledged"
    if repeats_allowed is not None:
        assert verdict.repeats <= repeats_allowed
    return verdict


async def dead_letters(
    connection: Connection, namespace: str, count: int, name: str = NAME, seconds: float = 30.0
) -> list[tuple[str, int | None, bytes]]:
    """So many messages of the dead-letter queue, as group, number and payload, in the order they stand in."""
    found: list[tuple[str, int | None, bytes]] = []
    topic = f"{namespace}/{name}_dlq"
    async with await Consumer.open(connection, topic, pulsar_namespace=PULSAR_NAMESPACE) as consumer:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for message in consumer:
                    found.append((message.group_id, _number(message.payload), message.payload))
                    if len(found) >= count:
                        break
    return found


def _number(payload: bytes) -> int | None:
    try:
        return int(json.loads(payload)["number"])
    except (ValueError, KeyError, TypeError):
        return None
