"""One shard at full speed: delivered messages per second, against wrk and against the bare client.

The same messages on the same broker, to the same nginx, in the same run: wrk posts as many bodies as it can
over the same number of connections; a bare consumer receives and acknowledges as many messages as it can; the
shard does both. They take turns, so that a slow moment of the machine meets all of them.

- healthy: every group is delivered at once. `failing`: some groups are refused for as long as the turn lasts;
  what counts is what the healthy ones still get.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import statistics
import sys
import time
import uuid
from dataclasses import replace

import pulsar
import uvloop

from bench.endpoint import ensure_programs, nginx, wrk
from millrace.client import Connection, Producer
from millrace.consuming.settings import Answered, Parcel, Settings, Timing, Topics
from millrace.consuming.terms import Clients, Term
from millrace.core.backoff import Backoff
from millrace.core.descriptor import initial
from millrace.core.outcomes import Retryable
from millrace.core.routing import Routing
from millrace.core.shardconfig import DeliveryConfig
from millrace.pulsar import descriptors
from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import connect
from millrace.pulsar.credentials import from_environment
from millrace.pulsar.statetables import ensure_state_topic
from millrace.shard.deliveries import HttpDeliverer

GOAL = 0.5
PARTITIONS = 4
OWNER = {"millrace.dev/name": "bench"}


class Subscription:
    """A main topic with messages in it, its queues and its state table."""

    def __init__(self, name: str) -> None:
        self.name = f"bench/{name}"
        self._local = f"persistent://public/default/bench.{name}"

    @property
    def main_topic(self) -> str:
        """The storage topic of the main topic."""
        return f"{self._local}-0"

    def topics(self) -> Topics:
        """As a shard needs them."""
        where = [f"{self._local}{suffix}-descriptor" for suffix in ("", "_rq", "_dlq")]
        return Topics("shard", where[0], where[1], where[2], f"{self._local}_state-0-0")

    async def create(self, admin: Admin, client: pulsar.Client) -> None:
        """As the operator would."""
        topics = self.topics()
        for suffix, where in (("", topics.main), ("_rq", topics.retry), ("_dlq", topics.dead_letter)):
            storage = f"{self._local}{suffix}-0"
            await admin.create_partitioned_topic(storage, PARTITIONS, OWNER)
            for subscription in ("shard", "bare"):
                await admin.create_subscription(storage, subscription, "earliest")
            await descriptors.ensure_descriptor_topic(admin, where, OWNER)
            first = initial(self.name + suffix, Routing.SHARD_CONSISTENT, [(storage, PARTITIONS, False)])
            await descriptors.publish(client, where, first, expected_generation=0)
        await ensure_state_topic(admin, topics.state, OWNER)

    async def fill(self, connection: Connection, messages: int, groups: int, size: int) -> None:
        """Messages of many groups, one after the other."""
        payload = b"x" * size
        async with await Producer.open(connection, self.name) as producer:
            for number in range(messages):
                await producer.submit(f"customer-{number % groups}", payload)
            await producer.flush()

    async def remove(self, admin: Admin) -> None:
        """Everything of it."""
        topics = self.topics()
        for suffix in ("", "_rq", "_dlq"):
            await admin.delete_partitioned_topic(f"{self._local}{suffix}-0", force=True)
        for topic in (topics.main, topics.retry, topics.dead_letter, topics.state):
            await admin.delete_topic(topic, force=True)


class FailingGroups:
    """Refuses some groups by itself, so that the endpoint's own time is the same for all turns."""

    def __init__(self, inner: HttpDeliverer, share: float) -> None:
        self._inner = inner
        self._modulus = 0 if share == 0 else round(1 / share)
        self.healthy = 0

    def deliver(self, parcel: Parcel, answered: Answered) -> None:
        """Deliver, or say that it failed."""
        if self._modulus and int(parcel.group.rpartition("-")[2]) % self._modulus == 0:
            asyncio.get_running_loop().call_later(0.001, answered, parcel, Retryable("bench"))
        else:
            self._inner.deliver(parcel, answered)

    async def close(self, seconds: float) -> None:
        """As the endpoint's."""
        await self._inner.close(seconds)


def bare(topic: str, messages: int) -> float:
    """Receive and acknowledge, and nothing else. Messages per second."""
    client = connect(from_environment())
    consumer = client.subscribe(topic, "bare", consumer_type=pulsar.ConsumerType.Failover)
    receive, acknowledge = consumer._consumer.receive, consumer._consumer.acknowledge_async
    first = receive(30_000)
    acknowledge(first.message_id(), lambda _: None)
    begin = time.perf_counter()
    for _ in range(messages - 1):
        message = receive(30_000)
        message.data()
        acknowledge(message.message_id(), lambda _: None)
    seconds = time.perf_counter() - begin
    client.close()
    return (messages - 1) / seconds


async def shard(url: str, topics: Topics, expected: int, args: argparse.Namespace, failing: float) -> float:
    """One shard until it has delivered so many. Messages per second from the first to the last."""
    delivery = DeliveryConfig(url, max_in_flight=args.connections)
    settings = Settings(
        topics,
        0,
        1,
        max_in_flight=args.connections,
        backoff=Backoff(initial_seconds=30.0, max_seconds=60.0),
        error_rate_threshold=1.0,
        timing=Timing(request=5.0, drain=1.0),
    )
    credentials = from_environment()
    clients = Clients(connect(credentials), connect(credentials))
    deliverer = FailingGroups(HttpDeliverer(delivery, "bench/topic", 1, ()), failing)
    term = Term(clients, replace(settings), 1, deliverer)
    stopping = asyncio.Event()
    running = asyncio.ensure_future(term.run(stopping))
    try:
        while not term.delivering:
            await asyncio.sleep(0.001)
            if running.done():
                running.result()
        assert term.flow is not None
        begin = time.perf_counter()
        while term.flow.counts["delivered"] < expected:
            await asyncio.sleep(0.005)
            if running.done():
                running.result()
        return expected / (time.perf_counter() - begin)
    finally:
        stopping.set()
        await running
        for client in (clients.reading, clients.writing):
            client.close()


async def prepared(args: argparse.Namespace) -> Subscription:
    """A subscription with a backlog."""
    subscription = Subscription(uuid.uuid4().hex[:8])
    credentials = from_environment()
    client = connect(credentials)
    async with Admin(credentials) as admin, Connection.from_environment(os.environ) as connection:
        await subscription.create(admin, client)
        await subscription.fill(connection, args.messages, args.groups, args.size)
    client.close()
    return subscription


async def removed(subscription: Subscription) -> None:
    """Without a trace."""
    async with Admin(from_environment()) as admin:
        await subscription.remove(admin)


def turn(url: str, args: argparse.Namespace, failing: float) -> tuple[float, float]:
    """The shard's rate and the bare client's, over the same messages."""
    subscription = asyncio.run(prepared(args))
    try:
        loose = bare(subscription.main_topic, args.messages)
        modulus = 0 if failing == 0 else round(1 / failing)
        out = len(range(0, args.groups, modulus)) if modulus else 0
        expected = args.messages * (args.groups - out) // args.groups
        return uvloop.run(shard(url, subscription.topics(), expected, args, failing)), loose
    finally:
        asyncio.run(removed(subscription))


def measure(args: argparse.Namespace) -> bool:
    """Take turns; whether the goals were reached."""
    ensure_programs()
    rates: dict[float, list[float]] = {0.0: [], 0.01: [], 0.2: []}
    beside: list[tuple[float, float]] = []
    with nginx() as url:
        head = b"POST /hook HTTP/1.1\r\nhost: x\r\n\r\n"
        for _ in range(args.rounds):
            wrk_rate = wrk(url, argparse.Namespace(**vars(args) | {"seconds": 3}), head).requests_per_second
            for failing, found in rates.items():
                delivered, loose = turn(url, args, failing)
                found.append(delivered)
                if failing == 0.0:
                    beside.append((wrk_rate, loose))
    healthy = statistics.median(rates[0.0])
    to_wrk = statistics.median(own / pair[0] for own, pair in zip(rates[0.0], beside, strict=True))
    to_bare = statistics.median(own / pair[1] for own, pair in zip(rates[0.0], beside, strict=True))
    _print(
        "delivery",
        messages_per_second=round(healthy),
        wrk_requests_per_second=round(statistics.median(pair[0] for pair in beside)),
        bare_messages_per_second=round(statistics.median(pair[1] for pair in beside)),
        ratio_to_wrk=round(to_wrk, 2),
        ratio_to_bare=round(to_bare, 2),
        goal=GOAL,
        connections=args.connections,
        peak_mebibytes=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    )
    kept = {
        share: statistics.median(own / base for own, base in zip(rates[share], rates[0.0], strict=True))
        for share in (0.01, 0.2)
    }
    for share, goal in ((0.01, 0.9), (0.2, 0.6)):
        _print("delivery while groups fail", share_of_groups=share, kept=round(kept[share], 2), goal=goal)
    return to_wrk >= GOAL and to_bare >= GOAL and kept[0.01] >= 0.9 and kept[0.2] >= 0.6


def _print(measurement: str, **values: object) -> None:
    print(json.dumps({"measurement": measurement, **values}), flush=True)


def main() -> int:
    """Exit code 1 when a goal was missed."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--groups", type=int, default=5_000)
    parser.add_argument("--size", type=int, default=1024, help="bytes of a payload")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    return 0 if measure(parser.parse_args()) else 1
