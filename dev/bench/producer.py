"""The producer against the bare client: throughput and latency, on the same topic, in the same run.

The bare client sends with batching, keys and permits of its own, through one partitioned producer: what a
careful application would write without Millrace. Both get the same payload, window and batch delay. They
take turns, so that a slow moment of the machine meets both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pulsar

from millrace.client import Connection, Producer
from millrace.core.descriptor import initial
from millrace.core.positions import Position
from millrace.core.routing import Routing
from millrace.pulsar import descriptors
from millrace.pulsar.admin import Admin
from millrace.pulsar.clients import blocking
from millrace.pulsar.credentials import from_environment

GOAL = 0.8


@dataclass(frozen=True, slots=True)
class Load:
    """What both sides send."""

    messages: int
    payload: bytes
    groups: tuple[str, ...]
    window: int
    batch_delay: float
    rate: float
    latency_messages: int


@dataclass(frozen=True, slots=True)
class Result:
    """One turn of one side."""

    messages_per_second: float
    cpu_microseconds: float
    p50_ms: float
    p99_ms: float


def bare(client: pulsar.Client, topic: str, load: Load) -> Result:
    """The native client with nothing around it."""
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_messages=1000,
        batching_max_publish_delay_ms=round(load.batch_delay * 1000),
        max_pending_messages=load.window + 1,
        send_timeout_millis=0,
    )
    permits = threading.Semaphore(load.window)
    answered, all_answered = 0, threading.Event()

    def acknowledged(result: object, _: object) -> None:
        nonlocal answered
        if result == pulsar._pulsar.Result.Ok:
            answered += 1
        permits.release()
        if answered == load.messages:
            all_answered.set()

    for group in load.groups[:100]:  # connect before the clock starts
        producer.send(b"warm", partition_key=group)
    groups, payload = load.groups, load.payload
    begin, cpu = time.perf_counter(), time.process_time()
    for number in range(load.messages):
        permits.acquire()
        producer.send_async(payload, acknowledged, partition_key=groups[number % len(groups)])
    if not all_answered.wait(120):
        raise SystemExit("the bare client did not get its acknowledgements")
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu

    latencies: list[float] = []

    def timed(sent: float) -> Callable[[object, object], None]:
        return lambda _result, _id: latencies.append(time.perf_counter() - sent)

    due = time.perf_counter()
    for number in range(load.latency_messages):
        due += 1 / load.rate
        time.sleep(max(0.0, due - time.perf_counter()))
        producer.send_async(payload, timed(time.perf_counter()), partition_key=groups[number % len(groups)])
    producer.flush()
    producer.close()
    return _result(load, seconds, cpu, latencies)


async def ours(connection: Connection, descriptor_topic: str, load: Load) -> Result:
    """The same through `millrace.client.Producer`."""
    loop = asyncio.get_running_loop()
    async with await Producer.open(
        connection, descriptor_topic, max_pending_messages=load.window, batch_delay=load.batch_delay
    ) as producer:
        await asyncio.gather(*(producer.send(group, b"warm") for group in load.groups[:100]))
        groups, payload = load.groups, load.payload
        futures: deque[asyncio.Future[Position]] = deque()
        begin, cpu = time.perf_counter(), time.process_time()
        for number in range(load.messages):
            futures.append(await producer.submit(groups[number % len(groups)], payload))
            if len(futures) > load.window:
                await futures.popleft()
        while futures:
            await futures.popleft()
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu

        latencies: list[float] = []
        due = loop.time()
        for number in range(load.latency_messages):
            due += 1 / load.rate
            await asyncio.sleep(max(0.0, due - loop.time()))
            sent = time.perf_counter()
            future = await producer.submit(groups[number % len(groups)], payload)
            future.add_done_callback(_timed(latencies, sent))
        await producer.flush()
        await asyncio.sleep(0)
    return _result(load, seconds, cpu, latencies)


def _timed(latencies: list[float], sent: float) -> Callable[[object], None]:
    return lambda _: latencies.append(time.perf_counter() - sent)


def _result(load: Load, seconds: float, cpu: float, latencies: list[float]) -> Result:
    percentiles = statistics.quantiles(latencies, n=100)
    return Result(
        load.messages / seconds, cpu / load.messages * 1e6, percentiles[49] * 1000, percentiles[98] * 1000
    )


async def measure(options: argparse.Namespace) -> bool:
    """Set a topic up, let both sides take their turns, say who was how fast."""
    load = Load(
        messages=options.messages,
        payload=b"x" * options.size,
        groups=tuple(f"customer-{number:04d}" for number in range(options.groups)),
        window=options.window,
        batch_delay=options.batch_delay,
        rate=options.rate,
        latency_messages=round(options.rate * 3),
    )
    name = f"persistent://{options.pulsar_namespace}/bench-{uuid.uuid4().hex[:8]}"
    storage_topic, descriptor_topic = f"{name}-0", f"{name}-descriptor"
    credentials = from_environment()
    async with Admin(credentials) as admin, Connection.from_environment() as connection:
        await admin.create_partitioned_topic(storage_topic, options.partitions, {})
        await descriptors.ensure_descriptor_topic(admin, descriptor_topic, {})
        try:
            first = initial("bench", Routing.SHARD_CONSISTENT, [(storage_topic, options.partitions, False)])
            await descriptors.publish(connection.client, descriptor_topic, first, expected_generation=0)
            sides: dict[str, Callable[[], Awaitable[Result]]] = {
                "bare": lambda: blocking(bare, connection.client, storage_topic, load),
                "millrace": lambda: ours(connection, descriptor_topic, load),
            }
            results = await _take_turns(sides, options.rounds)
        finally:
            await admin.delete_partitioned_topic(storage_topic, force=True)
            await admin.delete_topic(descriptor_topic, force=True)
    return _compare(results)


async def _take_turns(
    sides: dict[str, Callable[[], Awaitable[Result]]], rounds: int
) -> dict[str, list[Result]]:
    results: dict[str, list[Result]] = {side: [] for side in sides}
    for turn in range(rounds):
        for side in sorted(sides, reverse=turn % 2 == 1):
            result = await sides[side]()
            results[side].append(result)
            _print(
                "producer",
                side=side,
                messages_per_second=round(result.messages_per_second),
                cpu_microseconds_per_message=round(result.cpu_microseconds, 1),
                p50_ms=round(result.p50_ms, 2),
                p99_ms=round(result.p99_ms, 2),
            )
    return results


def _compare(results: dict[str, list[Result]]) -> bool:
    rate = {side: statistics.median(r.messages_per_second for r in turns) for side, turns in results.items()}
    p99 = {side: statistics.median(r.p99_ms for r in turns) for side, turns in results.items()}
    ratio = rate["millrace"] / rate["bare"]
    _print(
        "producer-against-bare-client",
        throughput_ratio=round(ratio, 3),
        p99_ratio=round(p99["millrace"] / p99["bare"], 3),
        goal=GOAL,
        met=ratio >= GOAL,
    )
    return ratio >= GOAL


def _print(measurement: str, **values: object) -> None:
    print(json.dumps({"measurement": measurement, **values}), flush=True)


def main() -> int:
    """Exit code 1 when the goal was missed."""
    parser = argparse.ArgumentParser(prog=sys.argv[0], description=__doc__)
    parser.add_argument("--messages", type=int, default=60_000, help="messages per turn")
    parser.add_argument("--size", type=int, default=1024, help="bytes of payload")
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--window", type=int, default=5000, help="messages that may be unacknowledged")
    parser.add_argument("--batch-delay", type=float, default=0.005, help="seconds")
    parser.add_argument("--rate", type=float, default=1000, help="messages/s while latency is measured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pulsar-namespace", default="public/default")
    return 0 if asyncio.run(measure(parser.parse_args())) else 1
