"""One shard of a subscription: which message is delivered when, and what is written before what.

Events are method calls, effects are appended to `effects`; no I/O, no clock, no randomness but what is passed
in. The same code runs in the pod, in the library and in the simulator, which checks these invariants:

1. At most one message of a group is being delivered, whatever queue it came from.
2. A message of the main topic is delivered only if its group has no lag in the retry queue and, unless dead
   letters are skipped, none in the dead-letter queue. Else it follows: to the retry queue if the group has
   lag there, else to the dead-letter queue. A parked copy whose group has dead-letter lag goes there too.
3. A message is acknowledged only after it was delivered, or its copy is stored.
4. **The order of writes.** To park: persist the intent (`p`), produce the copy, acknowledge. The next copy of
   the group is produced only after the one before is stored. After a delivery from the retry queue: persist
   `c`, acknowledge, and only then may anything newer of the group be delivered. From the retry to the
   dead-letter queue: persist `p` there, produce, persist `c` here, acknowledge.
5. What comes again because an acknowledgement was lost is recognised: at or before `c`, or before the newest
   chain of copies, it is dropped; from there to `p` it is parked again.
6. The shell acknowledges the main topic only up to the oldest message that is not settled. So what comes
   again is everything from some message on, and a group never steps back over a gap.

A group has two lanes that work side by side, so that a slow delivery from the retry queue does not hold up
the main topic: in the *delivery* lane is the one message that is being delivered (or moved to the dead-letter
queue), in the *parking* lane are messages of the main topic on their way to a queue.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping
from typing import Generic

from millrace.core.groupstate import HEALTHY, GroupState, Queue
from millrace.core.positions import Position
from millrace.core.shardeffects import (
    Ack,
    Deliver,
    Effect,
    Fetch,
    Group,
    Item,
    Lane,
    M,
    Park,
    Persist,
    Policy,
    Step,
    Way,
)


class Shard(Generic[M]):
    """The groups of one shard. After each event carry out `effects`, in order, and clear it."""

    def __init__(self, policy: Policy, table: Mapping[str, GroupState], *, limit: int) -> None:
        self._policy = policy
        self._groups: dict[str, Group[M]] = {name: Group(name, state) for name, state in table.items()}
        self._limit = limit
        self._in_flight = 0
        self._ready: deque[Group[M]] = deque()
        self._timers: list[tuple[float, int, Group[M], Item[M]]] = []
        self._timer_number = 0
        self.effects: list[Effect[M]] = []

    # What is known

    @property
    def in_flight(self) -> int:
        """Deliveries under way."""
        return self._in_flight

    @property
    def waiting(self) -> int:
        """Groups whose next message waits for a permit."""
        return len(self._ready)

    @property
    def groups(self) -> Mapping[str, Group[M]]:
        """Everything in hand, by group id."""
        return self._groups

    def next_due(self) -> float | None:
        """When `time_passed` has something to do."""
        return self._timers[0][0] if self._timers else None

    # Events

    def received(self, item: Item[M]) -> None:
        """A message of the main topic, in the order of its partition."""
        if self._policy.ordered:
            group = self._groups.get(item.group)
            if group is None:
                group = self._groups[item.group] = Group(item.group)
        else:
            group = Group(item.group)
        item.lives_in = group
        if group.state is HEALTHY and group.step is Step.IDLE and not group.parking and not group.main:
            group.item = item  # nearly always; the general way costs more
            self._want_delivery(group)
            return
        group.main.append(item)
        self._advance(group, 0.0)

    def received_copy(self, item: Item[M], now: float) -> None:
        """A copy from the retry queue, in the order of its partition."""
        assert item.parked is not None
        if self._policy.ordered:
            group = self._groups.get(item.group)
            if group is None:
                group = self._groups[item.group] = Group(item.group)
            # The intent was persisted before the copy; where the table was lost, the copy is what is left.
            if not group.state.retry.has_parked(item.main):
                group.state = group.state.parked(Queue.RETRY, item.main, item.parked)
        else:
            group = Group(item.group)
        item.lives_in = group
        item.due = max(now + self._policy.delay(item.attempts), group.not_before)
        group.retry.append(item)
        self._advance(group, now)

    def found(self, queue: Queue, group_id: str, main: Position, internal: Position) -> None:
        """A copy that nobody consumed, told before anything else when a lost table is built again."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id)
        group.state = group.state.parked(queue, main, internal)

    def delivered(self, item: Item[M], now: float) -> None:
        """The endpoint took it."""
        group = self._returned(item)
        if item.parked is None:
            self.effects.append(Ack(item))
            self._rest(group, now)
        elif self._policy.ordered:
            group.step = Step.CONSUMED
            group.state = group.state.consumed(Queue.RETRY, item.main, item.parked)
            self.effects.append(Persist(group, Lane.DELIVERY, group.state))
        else:
            self.effects.append(Ack(item))
        self._permit()

    def failed(self, item: Item[M], error: str, at: float, now: float, retry_after: float = 0.0) -> None:
        """It may work later. `at` is the time of day, for people; `now` the clock that decides."""
        group = self._returned(item)
        self._note_failure(item, error, at)
        group.not_before = now + retry_after
        if item.attempts >= self._policy.max_attempts:
            self._bury(group, item)
        elif item.parked is None:
            self._park(group, [item], Queue.RETRY)
            self._rest(group, now)
        else:
            item.due = now + max(retry_after, self._policy.delay(item.attempts))
            group.retry.appendleft(item)
            group.timed = None
            self._rest(group, now)
        self._permit()

    def refused(self, item: Item[M], error: str, at: float) -> None:
        """It will never work: a dead letter."""
        group = self._returned(item)
        self._note_failure(item, error, at)
        self._bury(group, item)
        self._permit()

    def persisted(self, group: Group[M], lane: Lane, now: float) -> None:
        """The record that this lane wrote is stored."""
        if lane is Lane.PARKING:
            group.writing = Step.PRODUCING
            self.effects.append(Park(group.target, group.parking[0], lane))
            return
        item = group.item
        assert item is not None
        if group.step is Step.INTENT:
            group.step = Step.PRODUCING
            self.effects.append(Park(Queue.DEAD_LETTER, item, lane))
            return
        self.effects.append(Ack(item))
        self._rest(group, now)

    def produced(self, item: Item[M], lane: Lane, internal: Position, now: float) -> None:
        """The copy is stored."""
        group = item.lives_in
        assert group is not None
        if lane is Lane.DELIVERY:
            self._moved(group, item, internal)
            if group.step is Step.IDLE:
                self._rest(group, now)
            return
        group.parking.popleft()
        if self._policy.ordered:
            group.state = group.state.parked(group.target, item.main, internal)
        self.effects.append(Ack(item))
        if group.parking:
            self.effects.append(Park(group.target, group.parking[0], lane))
            return
        group.writing = Step.IDLE
        self._advance(group, now)

    def fetched(self, item: Item[M], message: M) -> None:
        """The payload of a copy is here."""
        group = item.lives_in
        assert group is not None
        item.message = message
        if self._policy.ordered and self._must_move(group, item):
            self._move(group)
        else:
            self._want_delivery(group)

    def forget(self, group_id: str) -> bool:
        """Drop the record of a group of which nothing can come again; False if it is not idle."""
        group = self._groups.get(group_id)
        if group is None or group.step is not Step.IDLE or group.writing is not Step.IDLE:
            return False
        if group.main or group.retry or group.state.retry.has_lag or group.state.dead_letter.has_lag:
            return False
        del self._groups[group_id]
        return True

    def time_passed(self, now: float) -> None:
        """Whatever was due by now."""
        while self._timers and self._timers[0][0] <= now:
            due, _, group, item = heapq.heappop(self._timers)
            if group.timed is item and item.due == due:
                group.timed = None
                if group.step is Step.IDLE:
                    self._advance(group, now)

    def permit(self, limit: int) -> None:
        """So many deliveries may be under way from now on."""
        self._limit = limit
        self._permit()

    # The delivery lane

    def _want_delivery(self, group: Group[M]) -> None:
        item = group.item
        assert item is not None
        if item.message is None:
            group.step = Step.FETCHING
            self.effects.append(Fetch(item))
        elif self._in_flight < self._limit:
            self._in_flight += 1
            group.step = Step.DELIVERING
            self.effects.append(Deliver(item))
        else:
            group.step = Step.READY
            self._ready.append(group)

    def _permit(self) -> None:
        while self._ready and self._in_flight < self._limit:
            self._want_delivery(self._ready.popleft())

    def _returned(self, item: Item[M]) -> Group[M]:
        group = item.lives_in
        assert group is not None
        assert group.item is item, f"{item} was not being delivered"
        self._in_flight -= 1
        return group

    @staticmethod
    def _note_failure(item: Item[M], error: str, at: float) -> None:
        item.attempts += 1
        item.error = error
        if item.first_failed is None:
            item.first_failed = at

    def _rest(self, group: Group[M], now: float) -> None:
        """The delivery lane is free: go on with what is next."""
        group.item = None
        group.step = Step.IDLE
        self._advance(group, now)

    def _bury(self, group: Group[M], item: Item[M]) -> None:
        if item.parked is None:
            group.item, group.step = None, Step.IDLE
            self._park(group, [item], Queue.DEAD_LETTER)
        else:
            group.item = item
            self._move(group)

    def _move(self, group: Group[M]) -> None:
        """The copy in the delivery lane goes on to the dead-letter queue."""
        item = group.item
        assert item is not None
        if item.message is None:
            # Held nowhere: fetch it first; `fetched` comes back here.
            group.step = Step.FETCHING
            self.effects.append(Fetch(item))
            return
        if not self._policy.ordered:
            group.step = Step.PRODUCING
            self.effects.append(Park(Queue.DEAD_LETTER, item, Lane.DELIVERY))
            return
        group.step = Step.INTENT
        group.state = group.state.intends(Queue.DEAD_LETTER, item.main, item.main)
        self.effects.append(Persist(group, Lane.DELIVERY, group.state))

    def _moved(self, group: Group[M], item: Item[M], internal: Position) -> None:
        if not self._policy.ordered:
            self.effects.append(Ack(item))
            group.step = Step.IDLE
            return
        group.step = Step.MOVED
        state = group.state.parked(Queue.DEAD_LETTER, item.main, internal)
        group.state = state.consumed(Queue.RETRY, item.main, item.parked)
        self.effects.append(Persist(group, Lane.DELIVERY, group.state))

    # The parking lane

    def _park(self, group: Group[M], items: list[Item[M]], queue: Queue) -> None:
        """One intent for all of them: the newest. Then one copy after the other."""
        assert group.writing is Step.IDLE
        group.parking.extend(items)
        group.target = queue
        if not self._policy.ordered:
            group.writing = Step.PRODUCING
            self.effects.append(Park(queue, items[0], Lane.PARKING))
            return
        group.writing = Step.INTENT
        group.state = group.state.intends(queue, items[0].main, items[-1].main)
        self.effects.append(Persist(group, Lane.PARKING, group.state))

    # What is next

    def _advance(self, group: Group[M], now: float) -> None:
        if group.writing is Step.IDLE and group.main:
            self._follow(group)
        if group.step is Step.IDLE:
            self._next_delivery(group, now)
        if (
            group.step is Step.IDLE
            and group.writing is Step.IDLE
            and not group.main
            and not group.retry
            and group.state is HEALTHY
        ):
            self._groups.pop(group.id, None)

    def _follow(self, group: Group[M]) -> None:
        """Whatever of the main topic must not be delivered is dropped or parked, up to what may be."""
        followers: list[Item[M]] = []
        queue: Queue | None = None
        while group.main:
            way = self._way(group, group.main[0])
            if way is Way.DROP and not followers:
                self.effects.append(Ack(group.main.popleft()))
                continue
            if way not in (Way.RETRY, Way.DEAD_LETTER):
                break
            to = Queue.RETRY if way is Way.RETRY else Queue.DEAD_LETTER
            if queue is not None and to is not queue:
                break
            queue = to
            followers.append(group.main.popleft())
        if queue is not None:
            self._park(group, followers, queue)

    def _way(self, group: Group[M], item: Item[M]) -> Way:
        """Where a message of the main topic goes."""
        state = group.state
        if state.retry.has_dealt_with(item.main) or state.dead_letter.has_dealt_with(item.main):
            return Way.DROP
        if state.retry.has_lag:
            return Way.RETRY
        if state.dead_letter.has_parked(item.main):
            return Way.DEAD_LETTER
        if state.dead_letter.has_lag and self._policy.block_on_dead_letter:
            return Way.DEAD_LETTER
        return Way.DELIVER

    def _next_delivery(self, group: Group[M], now: float) -> None:
        while group.retry:
            item = group.retry[0]
            if self._policy.ordered and group.state.retry.has_consumed(item.main):
                group.retry.popleft()
                self.effects.append(Ack(item))
                continue
            if self._policy.ordered and self._must_move(group, item):
                group.item = group.retry.popleft()
                self._move(group)
            elif item.due <= now:
                group.item = group.retry.popleft()
                self._want_delivery(group)
            elif group.timed is not item:
                group.timed = item
                self._timer_number += 1
                heapq.heappush(self._timers, (item.due, self._timer_number, group, item))
            return
        if group.main and group.writing is Step.IDLE and self._way(group, group.main[0]) is Way.DELIVER:
            group.item = group.main.popleft()
            self._want_delivery(group)

    def _must_move(self, group: Group[M], item: Item[M]) -> bool:
        dead = group.state.dead_letter
        return dead.has_parked(item.main) or (dead.has_lag and self._policy.block_on_dead_letter)
