"""The second half of the demonstration: the topic is delivered to an HTTP endpoint that has its moods."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass, field
from typing import Any

from demo import cluster
from demo.cluster import DemoError
from demo.endpoint import Deliveries, Endpoint
from millrace.client import Connection, Consumer
from millrace.core.promise import PromiseChecker

SUBSCRIPTION = "billing"
FAILING = "customer-0007"
POISONED = "customer-0013"
BROKEN, UNPROCESSABLE = 500, 422


@dataclass(slots=True)
class Delivering:
    """The Subscription, its endpoint, and what the endpoint was sent."""

    namespace: str
    deliveries: Deliveries
    status: dict[str, Any] = field(default_factory=dict)
    dead: list[int] = field(default_factory=list)
    """The numbers of the poisoned group's messages in the dead-letter queue, in the order they stand in."""

    @classmethod
    def to(cls, endpoint: Endpoint) -> Delivering:
        """Nothing is delivered yet."""
        return cls(endpoint.namespace, Deliveries(endpoint, PromiseChecker()))

    async def begin(self, seconds: float) -> None:
        """Apply the example, and wait until its shards deliver."""
        await cluster.apply_example("subscription.yaml", self.namespace)
        await cluster.wait_until_ready(SUBSCRIPTION, self.namespace, seconds, kind="subscription")

    async def follow(self) -> None:
        """Keep what is known of it fresh, for ever."""
        while True:
            with contextlib.suppress(DemoError):
                await self.deliveries.look()
                self.status = await cluster.status(SUBSCRIPTION, self.namespace, kind="subscription")
            await asyncio.sleep(0.25)

    async def refuse(self) -> None:
        """The endpoint does not take two groups, each for a reason of its own."""
        await self.deliveries.endpoint.answer(
            {FAILING: {"status": BROKEN}, POISONED: {"status": UNPROCESSABLE}}
        )

    async def recover(self) -> None:
        """It takes everything again."""
        await self.deliveries.endpoint.answer({})

    def failures(self, status: int) -> int:
        """How often the endpoint answered so."""
        return self.deliveries.statuses[status]

    @property
    def missing(self) -> int:
        """Messages that were not taken yet; those of the poisoned group apart, which never will be."""
        missing = self.deliveries.checker.verdict().missing
        return sum(count for group, count in missing.items() if group != POISONED)

    async def read_dead_letters(self, connection: Connection, seconds: float = 20.0) -> None:
        """As many as are missing of the poisoned group; fewer if they do not come in time."""
        count = self.deliveries.checker.verdict().missing.get(POISONED, 0)
        topic = f"{self.namespace}/{SUBSCRIPTION}_dlq"
        async with await Consumer.open(connection, topic) as consumer:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while len(self.dead) < count:
                        message = await anext(consumer)
                        document = json.loads(message.payload)
                        self.dead.append(document["number"] if document["group"] == POISONED else -1)

    @property
    def held(self) -> bool:
        """All but the poisoned group was taken in order, and what was not is in the dead-letter queue."""
        verdict = self.deliveries.checker.verdict()
        lost = {group for group in verdict.missing if group != POISONED}
        first = self.deliveries.taken[POISONED]
        expected = list(range(first, first + verdict.missing.get(POISONED, 0)))
        return (
            not verdict.violations
            and not lost
            and not self.deliveries.overlaps
            and self.dead == expected != []
        )


async def remove(namespace: str, endpoint: Endpoint) -> None:
    """The Subscription with its queues and cursors, and the endpoint."""
    kind = "subscription.millrace.dev"
    if (
        await cluster.kubectl("get", kind, SUBSCRIPTION, "-n", namespace, "-o", "name", "--ignore-not-found")
    ).strip():
        await cluster.delete_with_data("subscription", SUBSCRIPTION, namespace)
    await endpoint.remove()
