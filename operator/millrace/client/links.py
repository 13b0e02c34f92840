"""The native producers behind a producer's links: opened with patience, closed without fuss."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import Any

import pulsar

from millrace.pulsar.clients import blocking
from millrace.pulsar.errors import (
    Forbidden,
    NotFound,
    PulsarError,
    TopicTerminated,
    Unauthorized,
    from_client,
)

LOGGER = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
REFUSAL_PATIENCE = 30.0
"""Seconds for which a refusal may be a secret that rotates or a topic that is just being created."""

_LATE: set[asyncio.Future[None]] = set()
"""Being closed, with nobody else to hold on to them."""


async def open_producer(
    client: pulsar.Client, topic: str, *, max_pending_messages: int, batch_delay: float
) -> pulsar.Producer:
    """A native producer of one partition. Raises TopicTerminated, or what does not go away by itself."""
    loop = asyncio.get_running_loop()
    patient_until = loop.time() + REFUSAL_PATIENCE
    pause = FIRST_PAUSE
    while True:
        try:
            return await _create_producer(
                client,
                topic,
                send_timeout_millis=0,  # a time-out would leave open whether the message is stored
                # Without one the client, if it reconnects before its first answer, begins to count anew: the
                # broker takes what it sends then for repetitions, and says that it has them (3.13). Not 0,
                # which passes for none.
                initial_sequence_id=1,
                block_if_queue_full=False,
                max_pending_messages=max_pending_messages + 1,  # never full: our own permits are fewer
                batching_enabled=True,
                batching_max_messages=1000,
                batching_max_publish_delay_ms=max(1, round(batch_delay * 1000)),
            )
        except pulsar.PulsarException as exception:
            error = from_client(exception, f"produce to {topic}")
            if not _is_worth_waiting(error, patient=loop.time() < patient_until):
                raise error from exception
            LOGGER.warning("%s; next attempt in %.1f s", error, pause)
        await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
        pause = min(pause * 2, LONGEST_PAUSE)


async def _create_producer(client: pulsar.Client, topic: str, **options: Any) -> pulsar.Producer:
    """Connect. If we are cancelled meanwhile, nothing stays connected behind us."""
    creating = asyncio.ensure_future(blocking(client.create_producer, topic, **options))
    try:
        return await asyncio.shield(creating)
    except asyncio.CancelledError:
        # A connection that is being made cannot be called back: it is ended as soon as it is there.
        creating.add_done_callback(_close_late)
        raise


def _close_late(creating: asyncio.Future[pulsar.Producer]) -> None:
    if not creating.cancelled() and creating.exception() is None:
        closing = asyncio.ensure_future(close_producer(creating.result()))
        _LATE.add(closing)
        closing.add_done_callback(_LATE.discard)


def _is_worth_waiting(error: PulsarError, *, patient: bool) -> bool:
    match error:
        case TopicTerminated():
            return False
        case Unauthorized() | Forbidden() | NotFound():
            return patient
        case _:
            return error.retryable


async def close_producer(producer: pulsar.Producer) -> None:
    """Disconnect. Whatever is still unanswered there does not matter any more."""
    with contextlib.suppress(pulsar.PulsarException):  # a terminated topic has closed it already
        await blocking(producer.close)
