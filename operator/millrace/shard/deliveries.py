"""Messages to an HTTP endpoint, one a request or several: what `millrace.consuming` calls a deliverer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from functools import partial
from pathlib import Path

from prometheus_client import Histogram

from millrace.consuming.settings import Answered, Parcel
from millrace.core.cloudevents import Event, Undeliverable
from millrace.core.endpointurls import EndpointUrl
from millrace.core.outcomes import SUCCESS, HardFailure, Outcome, classify, parse_retry_after, unanswered
from millrace.core.shardconfig import BatchConfig, DeliveryConfig
from millrace.shard.answers import Answer
from millrace.shard.certificates import TlsFiles
from millrace.shard.endpoint import Endpoint
from millrace.shard.requests import Requests

LATENCY = Histogram(
    "millrace_shard_delivery_seconds",
    "From the request to its answer, or to giving it up.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)


class HttpDeliverer:
    """Delivers to one endpoint with the epoch of one term. To be made and used in one event loop."""

    def __init__(self, delivery: DeliveryConfig, topic: str, epoch: int, hard_codes: tuple[int, ...]) -> None:
        """Raises OSError or DomainError for files or settings that cannot be used."""
        self._requests = Requests(delivery, topic)
        self._epoch = epoch
        self._hard_codes = frozenset(hard_codes)
        self._loop = asyncio.get_running_loop()
        self._endpoint = Endpoint(
            EndpointUrl.parse(delivery.url),
            max_connections=delivery.max_in_flight,
            timeout=delivery.timeout_seconds,
            tls=TlsFiles(
                _path(delivery.ca_file), _path(delivery.certificate_file), _path(delivery.private_key_file)
            ),
        )
        self._batch = delivery.batch
        self._gathered: list[tuple[Parcel, Answered]] = []
        self._sending: asyncio.TimerHandle | None = None

    def deliver(self, parcel: Parcel, answered: Answered) -> None:
        """One request, or a part of the next one."""
        if self._batch is not None:
            self._gather(self._batch, parcel, answered)
        else:
            self._deliver_one(parcel, answered)

    def _deliver_one(self, parcel: Parcel, answered: Answered) -> None:
        event = _event(parcel)
        now = time.time()
        try:
            head = self._requests.head(event, epoch=self._epoch, attempt=parcel.attempts + 1, now=now)
        except Undeliverable as error:
            self._loop.call_soon(answered, parcel, HardFailure(str(error)))
            return
        self._endpoint.post(head, event.payload, partial(self._came, self._loop.time(), parcel, answered))

    async def close(self, seconds: float) -> None:
        """Let requests that are under way end, for so many seconds; then end them."""
        if self._gathered:
            self._send_batch()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._endpoint.close()
        self._endpoint.abort()

    def _came(self, since: float, parcel: Parcel, answered: Answered, answer: Answer) -> None:
        LATENCY.observe(self._loop.time() - since)
        answered(parcel, self._outcome(answer))

    def _outcome(self, answer: Answer) -> Outcome:
        status = answer.status
        if 200 <= status <= 299:
            return SUCCESS
        if not status:
            return unanswered(answer.error)
        wish = None if answer.retry_after is None else parse_retry_after(answer.retry_after, time.time())
        return classify(status, wish, self._hard_codes, answer.said)

    # Several messages in one request: each of another group, for a group has one in flight at a time

    def _gather(self, batch: BatchConfig, parcel: Parcel, answered: Answered) -> None:
        self._gathered.append((parcel, answered))
        if len(self._gathered) >= batch.max_messages:
            self._send_batch()
        elif self._sending is None:
            self._sending = self._loop.call_later(batch.max_delay_seconds, self._send_batch)

    def _send_batch(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        gathered, self._gathered = self._gathered, []
        if not gathered:
            return
        events = [(_event(parcel), parcel.attempts + 1) for parcel, _ in gathered]
        head, body = self._requests.batch(events, epoch=self._epoch, now=time.time())
        self._endpoint.post(head, body, partial(self._batch_came, self._loop.time(), gathered))

    def _batch_came(self, since: float, gathered: list[tuple[Parcel, Answered]], answer: Answer) -> None:
        """A batch is taken as a whole. If it is refused, one message may be at fault: they go one by one."""
        LATENCY.observe(self._loop.time() - since)
        outcome = self._outcome(answer)
        at_fault = answer.status and not getattr(outcome, "throttled", False) and outcome is not SUCCESS
        for parcel, answered in gathered:
            if at_fault and len(gathered) > 1:
                self._deliver_one(parcel, answered)
            else:
                answered(parcel, outcome)


def _event(parcel: Parcel) -> Event:
    message = parcel.message
    assert message is not None
    return Event(parcel.group, parcel.main, message.publish_time, message.properties, message.payload)


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)
