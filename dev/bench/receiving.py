"""Which way of taking messages from the native client into the event loop is the cheapest?

    python -m bench.receiving [--messages N] [--rounds N] [VARIANT ...]

Not part of `make bench`: it is here to repeat the choice that `millrace.pulsar.sources` rests on. Each
variant reads the same topic under a subscription of its own, makes of each message what a shard needs, and
acknowledges it. On a machine that others use compare the processor time, not the rate.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import pulsar
import uvloop

from millrace.pulsar.clients import blocking, connect
from millrace.pulsar.credentials import from_environment
from millrace.pulsar.fetching import fields_of
from millrace.pulsar.sources import Received, Source

NAMESPACE = os.environ.get("PULSAR_NAMESPACE", "public/default")
WINDOW = 1000
TURN = 256

Take = Callable[[list[Any]], None]


class Count:
    """Counts to the end, and says when."""

    def __init__(self, messages: int) -> None:
        self.left = messages
        self.turns = 0
        self.done = asyncio.get_running_loop().create_future()

    def took(self, messages: int) -> None:
        """Some more."""
        self.left -= messages
        self.turns += 1
        if self.left <= 0 and not self.done.done():
            self.done.set_result(None)


def subscribe(client: pulsar.Client, topic: str, **options: Any) -> pulsar.Consumer:
    """A subscription of its own, from the beginning."""
    return client.subscribe(
        topic,
        uuid.uuid4().hex,
        initial_position=pulsar.InitialPosition.Earliest,
        receiver_queue_size=WINDOW,
        batch_index_ack_enabled=True,
        **options,
    )


async def bare(client: pulsar.Client, topic: str, count: Count) -> None:
    """The loop that anybody would write: no event loop, nothing made of the message."""
    consumer = await blocking(subscribe, client, topic)

    def run() -> None:
        for _ in range(count.left):
            consumer.acknowledge(consumer.receive())

    await blocking(run)
    count.took(count.left)
    await blocking(consumer.close)


def taker(consumer: pulsar.Consumer, count: Count) -> Take:
    """What becomes of native messages in the event loop, one acknowledgement each."""
    acknowledge = consumer._consumer.acknowledge_async

    def take(messages: list[Any]) -> None:
        for raw in messages:
            fields_of(raw)
            acknowledge(raw.message_id(), lambda _: None)
        count.took(len(messages))

    return take


async def batch_receive(client: pulsar.Client, topic: str, count: Count) -> None:
    """A thread that waits in `batch_receive`."""
    loop, room = asyncio.get_running_loop(), threading.Semaphore(4)
    policy = pulsar.ConsumerBatchReceivePolicy(TURN, -1, 5)
    consumer = await blocking(subscribe, client, topic, batch_receive_policy=policy)
    take = taker(consumer, count)

    def hand_over(messages: list[Any]) -> None:
        take(messages)
        room.release()

    def run() -> None:
        while count.left > 0:
            if messages := consumer._consumer.batch_receive():
                room.acquire()
                loop.call_soon_threadsafe(hand_over, messages)

    running = asyncio.ensure_future(blocking(run))
    await count.done
    await running
    await blocking(consumer.close)


async def listener(client: pulsar.Client, topic: str, count: Count) -> None:
    """The client's own thread calls once a message; the event loop is woken for what has gathered."""
    loop, gathered, awake, takes = asyncio.get_running_loop(), deque[Any](), [False], list[Take]()

    def drain() -> None:
        awake[0] = False
        takes[0]([gathered.popleft() for _ in range(len(gathered))])

    def hear(consumer: pulsar.Consumer, message: pulsar.Message) -> None:
        if not takes:
            takes.append(taker(consumer, count))
        gathered.append(message._message)
        if not awake[0]:
            awake[0] = True
            loop.call_soon_threadsafe(drain)

    consumer = await blocking(subscribe, client, topic, message_listener=hear)
    await count.done
    await blocking(consumer.close)


async def receive_async(client: pulsar.Client, topic: str, count: Count) -> None:
    """One asynchronous receive stands; its answer takes along what else the client holds."""
    loop = asyncio.get_running_loop()
    consumer = await blocking(subscribe, client, topic)
    native, take = consumer._consumer, taker(consumer, count)

    def receive(first: Any = None) -> None:
        messages = [] if first is None else [first]
        with contextlib.suppress(pulsar.Timeout):
            while len(messages) < TURN:
                messages.append(native.receive(0))
        take(messages)
        if count.left <= 0:
            return
        if len(messages) < TURN:
            native.receive_async(lambda _, raw: loop.call_soon_threadsafe(receive, raw))
        else:
            loop.call_soon(receive)

    receive()
    await count.done
    await blocking(consumer.close)


async def source(client: pulsar.Client, topic: str, count: Count) -> None:
    """What shards do: the same, with whole entries acknowledged."""

    def take(messages: list[Received]) -> None:
        for message in messages:
            reading.ack(message)
        count.took(len(messages))

    reading = Source(client, topic, uuid.uuid4().hex, take, storage_topic=0, partition=0, window=WINDOW)
    await reading.open()
    reading.resume()
    await count.done
    await reading.close()


VARIANTS: dict[str, Callable[[pulsar.Client, str, Count], Awaitable[None]]] = {
    each.__name__: each for each in (bare, batch_receive, listener, receive_async, source)
}


def fill(client: pulsar.Client, topic: str, messages: int) -> None:
    """Write what all variants read; a subscription of its own keeps it there."""
    subscribe(client, topic).close()
    producer = client.create_producer(
        topic, block_if_queue_full=True, batching_enabled=True, batching_max_publish_delay_ms=5
    )
    payload = bytes(1024)
    for number in range(messages):
        producer.send_async(
            payload, None, partition_key=f"g{number % 1000}", properties={"mr": f"bench:{number}"}
        )
    producer.flush()
    producer.close()


async def run(arguments: argparse.Namespace) -> None:
    """Take turns, so that a slow moment of the machine meets all."""
    client = connect(from_environment())
    topic = f"persistent://{NAMESPACE}/bench-receiving-{uuid.uuid4().hex[:8]}"
    await blocking(fill, client, topic, arguments.messages)
    for _ in range(arguments.rounds):
        for name in arguments.variants or VARIANTS:
            count = Count(arguments.messages)
            began, used = time.perf_counter(), time.process_time()
            await VARIANTS[name](client, topic, count)
            seconds, used = time.perf_counter() - began, time.process_time() - used
            line = {
                "variant": name,
                "messages_per_second": round(arguments.messages / seconds),
                "cpu_us_per_message": round(used / arguments.messages * 1e6, 1),
                "messages_per_turn": round(arguments.messages / count.turns),
            }
            print(json.dumps(line), flush=True)
    await blocking(client.close)


def main() -> int:
    """Print one JSON line a variant and round."""
    parser = argparse.ArgumentParser(prog="python -m bench.receiving", description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("variants", nargs="*", metavar="VARIANT")
    uvloop.run(run(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
