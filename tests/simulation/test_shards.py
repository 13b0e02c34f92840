"""Owners of a shard over a simulated broker and endpoint, through crashes, lost answers and lost acks.

Replay one seed:    MILLRACE_SIM_SEED=17 pytest tests/simulation/test_shards.py -k every_seed
Run other ones:     MILLRACE_SIM_FIRST=5000 MILLRACE_SIM_SEEDS=20000 pytest tests/simulation/test_shards.py
"""

from __future__ import annotations

import functools
import os
from collections import Counter

import pytest

from millrace.core.groupstate import GroupState, Queue, QueueState
from millrace.core.positions import Position
from millrace.core.shardeffects import Ack, Group, Item, Lane, Park, Persist, Step, Way
from millrace.core.shards import Shard
from tests.simulation.shardworld import BrokenPromiseError, Letter, run

SEEDS = int(os.environ.get("MILLRACE_SIM_SEEDS", "2000"))
FIRST = int(os.environ.get("MILLRACE_SIM_FIRST", "0"))


def test_every_seed_keeps_the_promise() -> None:
    chosen = os.environ.get("MILLRACE_SIM_SEED")
    for seed in [int(chosen)] if chosen else range(FIRST, FIRST + SEEDS):
        try:
            run(seed)
        except (BrokenPromiseError, AssertionError) as error:
            pytest.fail(
                f"seed {seed}: {error}\nreplay it: MILLRACE_SIM_SEED={seed} "
                "pytest tests/simulation/test_shards.py -k every_seed"
            )


def test_the_simulation_reaches_what_it_is_for() -> None:
    reached: Counter[str] = Counter()
    for seed in range(200):
        reached.update(run(seed).reached)
    for what in ("die", "forget", "copied", "fetches", "written", "pass"):
        assert reached[what] > 100, f"{what}: {reached[what]}"


# It has teeth: each of these breaks one rule, and must be found.


class _Reordered(Shard[Letter]):
    """Parks with another order of writes than intent, copy, acknowledgement; one message at a time."""

    order: tuple[str, ...] = ()

    def _park(self, group: Group[Letter], items: list[Item[Letter]], queue: Queue) -> None:
        group.main.extendleft(reversed(items[1:]))
        super()._park(group, items[:1], queue)
        self.effects.pop()  # the intent
        self._go_on(group, 0, 0.0)

    def _go_on(self, group: Group[Letter], step: int, now: float) -> None:
        group.timed = None
        item = group.parking[0]
        for number in range(step, len(self.order)):
            match self.order[number]:
                case "persist":
                    self.effects.append(Persist(group, Lane.PARKING, group.state))
                    return
                case "produce":
                    self.effects.append(Park(group.target, item, Lane.PARKING))
                    return
                case "ack":
                    self.effects.append(Ack(item))
        group.parking.popleft()
        group.writing = Step.IDLE
        self._advance(group, now)

    def persisted(self, group: Group[Letter], lane: Lane, now: float) -> None:
        if lane is Lane.DELIVERY:
            super().persisted(group, lane, now)
        else:
            self._go_on(group, self.order.index("persist") + 1, now)

    def produced(self, item: Item[Letter], lane: Lane, internal: Position, now: float) -> None:
        if lane is Lane.DELIVERY:
            super().produced(item, lane, internal, now)
        else:
            assert item.lives_in is not None
            self._go_on(item.lives_in, self.order.index("produce") + 1, now)


class KeepsTheOrder(_Reordered):
    """No defect: shows that the defects below are found for what they are."""

    order = ("persist", "produce", "ack")


class ProducesBeforeItPersists(_Reordered):
    order = ("produce", "persist", "ack")


class PersistsLast(_Reordered):
    order = ("produce", "ack", "persist")


class AcknowledgesFirst(_Reordered):
    order = ("ack", "produce", "persist")


class OpensBeforeItPersists(Shard[Letter]):
    """Goes on with the group while `c` is on its way."""

    def delivered(self, item: Item[Letter], now: float) -> None:
        super().delivered(item, now)
        if item.parked is not None:
            group = item.lives_in
            assert group is not None
            group.not_before = now
            self.consumed.setdefault(group.id, []).append(item)
            self._rest(group, now)

    @functools.cached_property
    def consumed(self) -> dict[str, list[Item[Letter]]]:
        return {}

    def persisted(self, group: Group[Letter], lane: Lane, now: float) -> None:
        if lane is Lane.DELIVERY and self.consumed.get(group.id):
            self.effects.append(Ack(self.consumed[group.id].pop(0)))
        else:
            super().persisted(group, lane, now)


class ForgetsWhatItConsumed(Shard[Letter]):
    """Delivers copies that come again."""

    def received_copy(self, item: Item[Letter], now: float) -> None:
        group = self._groups.get(item.group)
        if group is not None and group.state.retry.has_consumed(item.main):
            group.state = GroupState(QueueState(p=group.state.retry.p), group.state.dead_letter)
        super().received_copy(item, now)


class LetsFollowersPass(Shard[Letter]):
    """Delivers the main topic though the group has lag."""

    def _way(self, group: Group[Letter], item: Item[Letter]) -> Way:
        way = super()._way(group, item)
        return Way.DELIVER if way is Way.RETRY else way


def test_the_planted_defects_are_the_order_alone() -> None:
    for seed in range(300):
        run(seed, KeepsTheOrder)


@pytest.mark.parametrize(
    "defective",
    [
        ProducesBeforeItPersists,
        PersistsLast,
        AcknowledgesFirst,
        OpensBeforeItPersists,
        ForgetsWhatItConsumed,
        LetsFollowersPass,
    ],
)
def test_a_planted_defect_is_found(defective: type[Shard[Letter]]) -> None:
    for seed in range(3000):
        try:
            run(seed, defective)
        except (BrokenPromiseError, AssertionError) as error:
            print(f"seed {seed}: {error}")
            return
    pytest.fail(f"{defective.__name__} was not found in 3000 seeds")
