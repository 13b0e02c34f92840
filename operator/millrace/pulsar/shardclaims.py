"""Claiming shards through Pulsar itself, for programs that run without Kubernetes.

Each shard has a claim topic, and whoever holds the one Exclusive producer of it holds the shard: Pulsar
refuses a second one for as long as the first is connected, and lets it in when the first is gone. (Not a
fencing one: that would take a shard away from whoever has it.) The epoch is written to that topic, and each
holder writes the next one before it begins.

A claim only says who should own a shard. A holder that was cut off may believe for a moment that it still is
one: what makes that harmless is the fence of the state table.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pulsar

from millrace.pulsar import tables
from millrace.pulsar.clients import blocking, blocking_whole
from millrace.pulsar.errors import Conflict, Fenced, PulsarError, Unavailable, UnreadableTable, from_client
from millrace.pulsar.fencedwriters import send_and_wait

LOGGER = logging.getLogger(__name__)

EPOCH_KEY, BARRIER_KEY, KEPT_KEY = "epoch", "barrier", "kept"


@dataclass(frozen=True, slots=True)
class PulsarClaim:
    """A shard that is ours as of this epoch."""

    shard: int
    epoch: int
    producer: pulsar.Producer = field(repr=False, compare=False)


class PulsarClaims:
    """Claims, keeps and releases shards for one process."""

    def __init__(self, client: pulsar.Client, topics: Sequence[str], *, renew_seconds: float = 3.0) -> None:
        """`topics` are the claim topics by shard, each made with `statetables.ensure_state_topic`."""
        self._client = client
        self._topics = topics
        self._renew_seconds = renew_seconds

    async def claim(self) -> PulsarClaim:
        """Wait until a shard is ours. Errors of Pulsar only make it wait longer."""
        told = ""
        while True:
            for shard in random.sample(range(len(self._topics)), len(self._topics)):
                try:
                    claim = await self._try(shard)
                except (Conflict, Fenced):
                    continue  # somebody has it
                except PulsarError as error:
                    if str(error) != told:
                        told = str(error)
                        LOGGER.warning("no shard can be claimed now: %s", error)
                else:
                    LOGGER.info("claimed shard %d, epoch %d", claim.shard, claim.epoch)
                    return claim
            await asyncio.sleep(self._renew_seconds / 2 * random.uniform(0.5, 1.0))  # noqa: S311 - jitter

    async def keep(self, claim: PulsarClaim) -> None:
        """Return when somebody else holds the shard for certain. While Pulsar is away nobody can."""
        topic = self._topics[claim.shard]
        while True:
            await asyncio.sleep(self._renew_seconds)
            try:
                await blocking(send_and_wait, claim.producer, topic, KEPT_KEY, str(claim.epoch).encode())
            except Unavailable as error:
                LOGGER.warning("the claim of shard %d was not renewed: %s", claim.shard, error)
            except PulsarError as error:
                LOGGER.warning("shard %d has another owner: %s", claim.shard, error)
                return

    async def release(self, claim: PulsarClaim) -> None:
        """Let it go, so that nobody has to wait."""
        with contextlib.suppress(pulsar.PulsarException):  # it was taken away already
            await blocking(claim.producer.close)

    async def _try(self, shard: int) -> PulsarClaim:
        return await blocking_whole(lambda: self._claim(shard), lambda claim: claim.producer.close())

    def _claim(self, shard: int) -> PulsarClaim:
        topic = self._topics[shard]
        try:
            producer = self._client.create_producer(
                topic,
                access_mode=pulsar.ProducerAccessMode.Exclusive,
                batching_enabled=False,
                send_timeout_millis=0,
            )
        except pulsar.PulsarException as error:
            raise from_client(error, f"claim {topic}") from error
        try:
            barrier = send_and_wait(producer, topic, BARRIER_KEY, b"-")
            found = tables.read_to_blocking(self._client, topic, tables.entry_of(barrier))
            epoch = _epoch(topic, found.get(EPOCH_KEY)) + 1
            send_and_wait(producer, topic, EPOCH_KEY, str(epoch).encode())
        except BaseException:
            with contextlib.suppress(pulsar.PulsarException):
                producer.close()
            raise
        return PulsarClaim(shard, epoch, producer)


def _epoch(topic: str, data: bytes | None) -> int:
    try:
        return int(data or b"0")
    except ValueError:
        raise UnreadableTable(f"{topic}: {data!r} is no epoch; remove the topic to begin anew") from None
