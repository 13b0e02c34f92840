"""Messages through the core and back: what the sources bring, what the core wants done, what became of it.

One event loop, no awaiting in the way of a message. The main topic is acknowledged up to the oldest message
that is not settled, and no further (invariant 6 of `core.shards`); copies are acknowledged one by one.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Concatenate, ParamSpec

from millrace.consuming.forgetting import Forgetting, is_settled
from millrace.consuming.lanes import MainLane, RetryLane
from millrace.consuming.settings import Deliverer, Parcel, Settings
from millrace.core import parkedcopies
from millrace.core.backoff import delay
from millrace.core.groupstate import GroupState, Queue
from millrace.core.outcomes import HardFailure, Outcome, Retryable
from millrace.core.parkedcopies import ParkedCopy, UnreadableCopy
from millrace.core.positions import Position
from millrace.core.shardeffects import Ack, Deliver, Group, Item, Lane, Park, Persist, Policy
from millrace.core.shards import Shard
from millrace.core.throttling import Throttle
from millrace.pulsar.errors import PulsarError
from millrace.pulsar.parkedqueues import ParkedQueue
from millrace.pulsar.sources import Received
from millrace.pulsar.statetables import StateTable

LOGGER = logging.getLogger(__name__)

P = ParamSpec("P")

HOLD = 0.05
"""Seconds until deliveries that may not begin now are looked at again, at the latest."""


def _or_end(event: Callable[Concatenate[Flow, P], None]) -> Callable[Concatenate[Flow, P], None]:
    """A bug ends the term: half of an event's effects is worse than beginning again."""

    @functools.wraps(event)
    def guarded(flow: Flow, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            event(flow, *args, **kwargs)
        except Exception as error:
            LOGGER.exception("an event could not be dealt with")
            flow._fail(f"{type(error).__name__}: {error}")

    return guarded


class Flow:
    """One shard at work. `fail` is told when it cannot go on; then nothing more is delivered."""

    def __init__(
        self,
        settings: Settings,
        table: StateTable,
        states: Mapping[str, GroupState],
        queue_of: Callable[[Queue, str], ParkedQueue],
        deliverer: Deliverer,
        *,
        lane_of: Callable[[str, Position], MainLane | None],
        retry_partition_of: Callable[[str], int],
        may_deliver: Callable[[], bool],
        fail: Callable[[str], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        """delivered, failed, refused, filtered, retried, dead_lettered: since the term began."""
        self._settings = settings
        self._table = table
        self._queue_of = queue_of
        self._lane_of = lane_of
        self._retry_partition_of = retry_partition_of
        self._deliverer = deliverer
        self._may_deliver = may_deliver
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._throttle = Throttle(
            max_in_flight=settings.max_in_flight,
            max_per_second=settings.max_per_second,
            error_rate_threshold=settings.error_rate_threshold,
        )
        policy = Policy(
            max_attempts=settings.max_attempts,
            block_on_dead_letter=settings.block_on_dead_letter,
            ordered=settings.ordered,
            delay=self._delay,
        )
        # Nothing is delivered before `start`.
        self.core: Shard[Received] = Shard(policy, states, limit=0)
        self._started = False
        self._stopping = False
        self._lanes: list[MainLane] = []
        self._retry_lanes: dict[int, RetryLane] = {}
        self._forgetting = Forgetting()
        self._in_hand = 0
        self._outbox: deque[Parcel] = deque()
        self._sent = 0
        self._held_bytes = 0
        self._waking: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self._fetching: set[asyncio.Task[None]] = set()

    # What the term tells

    @property
    def idle(self) -> bool:
        """Whether nothing is being delivered or written."""
        return not self._sent and not self._outbox and not self._table.pending

    def start(self) -> None:
        """Deliveries may begin."""
        self._started = True
        self.core.permit(self._throttle.limit)
        self._carry_out()

    def stop(self) -> None:
        """Begin nothing new; what is under way may end."""
        self._stopping = True
        for lane in self._lanes:
            lane.source.pause()
        self.core.permit(0)
        for handle in (self._waking, self._timer):
            if handle is not None:
                handle.cancel()
        # What was not sent stays unacknowledged, and is the next owner's.
        self._outbox.clear()

    def add_main(self, lane: MainLane) -> None:
        """A partition of the main topic has opened."""
        self._lanes.append(lane)
        if self._in_hand < self._settings.window:
            lane.source.resume()

    def add_retry(self, lane: RetryLane) -> None:
        """A partition of the retry queue has opened."""
        self._retry_lanes[lane.source.partition] = lane
        lane.source.resume()

    @_or_end
    def forget_recovered(self, *, disturbed: bool) -> None:
        """Remove the records of groups of which nothing can come again. To be called now and then."""

        def main_acked(group: str, main: Position) -> bool:
            # A lane that is gone was finished to its sealed end.
            lane = self._lane_of(group, main)
            return lane is None or (lane.acked is not None and lane.acked >= main)

        def retry_acked(group: str, internal: Position) -> bool:
            lane = self._retry_lanes.get(self._retry_partition_of(group))
            acked = None if lane is None else lane.progress.acked
            return acked is not None and acked >= internal

        settled = {
            group.id
            for group in self.core.groups.values()
            if is_settled(group.state, partial(main_acked, group.id), partial(retry_acked, group.id))
        }
        for group_id in self._forgetting.looked(settled, disturbed=disturbed):
            if self.core.forget(group_id):
                self._table.write(group_id, None, lambda: None)
                self.counts["forgotten"] += 1

    def remove_main(self, lane: MainLane) -> None:
        """A partition of the main topic is finished."""
        self._lanes.remove(lane)

    def blocked(self) -> tuple[int, int]:
        """How many groups have lag in the retry queue, and in the dead-letter queue."""
        states = [group.state for group in self.core.groups.values()]
        return sum(s.retry.has_lag for s in states), sum(s.dead_letter.has_lag for s in states)

    # What the sources bring

    @_or_end
    def take_main(self, lane: MainLane, messages: list[Received]) -> None:
        """New messages of the main topic."""
        core, wants, order = self.core, self._settings.wants, lane.order
        for message in messages:
            parcel: Parcel = Item(message.group, message.position, message, lane)
            order.append(parcel)
            if wants(message.properties):
                self._in_hand += 1
                core.received(parcel)
            else:
                self.counts["filtered"] += 1
                parcel.settled = True
        self._acknowledge_settled(lane)
        if self._in_hand >= self._settings.window:
            for each in self._lanes:
                each.source.pause()
        self._carry_out()

    @_or_end
    def take_copies(self, lane: RetryLane, messages: list[Received]) -> None:
        """New copies from the retry queue."""
        now, source = self._loop.time(), lane.source
        for message in messages:
            lane.entries[message.position] = lane.progress.received(message.position)
            try:
                copy = parkedcopies.parse(message.properties)
            except UnreadableCopy as error:
                # Nobody but a shard writes there: whatever this is, it is not dropped silently.
                self._fail(f"{source.topic}: {error}")
                return
            message.properties = parkedcopies.original_properties(message.properties)
            if copy.published_ms is not None:
                message.publish_time = copy.published_ms
            first = None if copy.first_failed_ms is None else copy.first_failed_ms / 1000
            parcel: Parcel = Item(
                message.group,
                copy.main,
                message,
                message,
                parked=message.position,
                attempts=copy.attempts,
                first_failed=first,
                error=copy.error,
            )
            size = len(message.payload)
            if self._held_bytes + size > self._settings.held_bytes:
                message.payload = b""
                parcel.message = None
            else:
                self._held_bytes += size
            self.core.received_copy(parcel, now)
        self._carry_out()

    # What the core wants

    def _carry_out(self) -> None:
        core, outbox = self.core, self._outbox
        while core.effects:
            effects, core.effects = core.effects, []
            for effect in effects:
                kind = type(effect)
                if kind is Deliver:
                    outbox.append(effect.item)  # type: ignore[union-attr]
                elif kind is Ack:
                    self._acknowledge(effect.item)  # type: ignore[union-attr]
                elif isinstance(effect, Persist):
                    done = partial(self._persisted, effect.group, effect.lane)
                    self._table.write(effect.group.id, effect.state.to_json(), done)
                elif isinstance(effect, Park):
                    self._park(effect.queue, effect.item, effect.lane)
                else:
                    self._fetch(effect.item)
        if outbox:
            self._send()
        self._set_timer()

    def _send(self) -> None:
        outbox, throttle = self._outbox, self._throttle
        if self._stopping:
            return
        if not self._may_deliver():
            self._send_later(HOLD)
            return
        now = self._loop.time()
        while outbox:
            if not throttle.admits(now, self._sent):
                self._send_later(max(0.001, throttle.wait(now)))
                return
            self._sent += 1
            self._deliverer.deliver(outbox.popleft(), self._answered)

    def _send_later(self, seconds: float) -> None:
        if self._waking is None:
            self._waking = self._loop.call_later(seconds, self._wake)

    @_or_end
    def _wake(self) -> None:
        self._waking = None
        self._send()

    def _acknowledge(self, parcel: Parcel) -> None:
        if parcel.parked is not None:
            message = parcel.source
            assert isinstance(message, Received)
            if parcel.message is not None:
                self._held_bytes -= len(message.payload)
            message.source.ack(message)
            lane = self._retry_lanes[message.source.partition]
            lane.progress.settled(lane.entries.pop(message.position))
            return
        self._in_hand -= 1
        parcel.settled = True
        main = parcel.source
        assert isinstance(main, MainLane)
        if main.order[0] is parcel:
            self._acknowledge_settled(main)
        if self._in_hand == self._settings.window // 2 and not self._stopping:
            for each in self._lanes:
                each.source.resume()

    @staticmethod
    def _acknowledge_settled(lane: MainLane) -> None:
        order = lane.order
        while order and order[0].settled:
            message = order.popleft().message
            assert message is not None
            lane.source.ack(message)
            lane.acked = message.position

    def _park(self, queue: Queue, parcel: Parcel, lane: Lane, *, bare: bool = False) -> None:
        message = parcel.message
        assert message is not None
        first = None if parcel.first_failed is None else int(parcel.first_failed * 1000)
        error = "" if bare else parcel.error
        copy = ParkedCopy(parcel.main, parcel.attempts, first, error, message.publish_time)
        properties = parkedcopies.properties_of(copy, message.properties)
        self._queue_of(queue, parcel.group).produce(
            message.payload, parcel.group, properties, partial(self._produced, queue, parcel, lane, bare)
        )

    def _fetch(self, parcel: Parcel) -> None:
        task = self._loop.create_task(self._fetch_payload(parcel))
        self._fetching.add(task)
        task.add_done_callback(self._fetching.discard)

    async def _fetch_payload(self, parcel: Parcel) -> None:
        message = parcel.source
        assert isinstance(message, Received)
        assert parcel.parked is not None
        try:
            fields = await message.source.fetch(parcel.parked)
        except PulsarError as error:
            self._fail(str(error))
            return
        if fields is None:
            self._fail(
                f"{message.source.topic}: the copy at {parcel.parked} is gone: it was trimmed or deleted"
            )
            return
        message.payload = fields.payload
        message.properties = parkedcopies.original_properties(fields.properties)
        self._held_bytes += len(message.payload)
        self.core.fetched(parcel, message)
        self._carry_out()

    # What became of it

    @_or_end
    def _answered(self, parcel: Parcel, outcome: Outcome) -> None:
        self._sent -= 1
        now = self._loop.time()
        throttle = self._throttle
        before = throttle.limit
        throttle.answered(outcome, now)
        if isinstance(outcome, Retryable):
            self.counts["failed"] += 1
            self.core.failed(parcel, outcome.reason, time.time(), now, outcome.retry_after or 0.0)
        elif isinstance(outcome, HardFailure):
            self.counts["refused"] += 1
            self.core.refused(parcel, outcome.reason, time.time())
        else:
            self.counts["delivered" if parcel.parked is None else "redelivered"] += 1
            self.core.delivered(parcel, now)
        if throttle.limit != before and self._started and not self._stopping:
            self.core.permit(throttle.limit)
        self._carry_out()

    @_or_end
    def _persisted(self, group: Group[Received], lane: Lane) -> None:
        self.core.persisted(group, lane, self._loop.time())
        self._carry_out()

    @_or_end
    def _produced(
        self, queue: Queue, parcel: Parcel, lane: Lane, bare: bool, position: Position | None
    ) -> None:
        if position is None:
            if bare:
                self._fail(f"the copy of {parcel.main} is larger than the broker takes; raise maxMessageSize")
            else:
                self._park(queue, parcel, lane, bare=True)
            return
        self.counts["retried" if queue is Queue.RETRY else "dead_lettered"] += 1
        self.core.produced(parcel, lane, position, self._loop.time())
        self._carry_out()

    # Time

    def _delay(self, attempts: int) -> float:
        if attempts < 1:
            return 0.0  # a follower: it waits for its turn only
        return delay(self._settings.backoff, attempts, random.random())  # noqa: S311 - jitter

    def _set_timer(self) -> None:
        due = self.core.next_due()
        if due is None or self._stopping or (self._timer is not None and self._timer_due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_at(due, self._time_passed)

    @_or_end
    def _time_passed(self) -> None:
        self._timer = None
        self.core.time_passed(self._loop.time())
        self._carry_out()
