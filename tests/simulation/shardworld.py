"""A broker, a state table, an endpoint and the owners of one shard, in one thread and on one random source.

Each step is one action of one party: a message arrives, a request reaches the endpoint, an answer comes back
or gets lost, a write is stored, an acknowledgement is applied, time passes, an owner dies. Writes are stored
in the order in which they were sent, each on its own connection; an owner that dies leaves any number of the
writes that were on their way stored, and so is a zombie: what it had sent may land until its successor opens.

At every attempt the promise is judged. An attempt counts as a delivery, whatever became of it, so that groups
step back in order only (`millrace.core.promise`); and nothing may be attempted before everything older of its
group was accepted by the endpoint or is a dead letter.
"""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from millrace.core.groupstate import HEALTHY, GroupState, Queue
from millrace.core.positions import Position
from millrace.core.promise import PromiseChecker
from millrace.core.shardeffects import Ack, Deliver, Fetch, Group, Item, Lane, Park, Persist, Policy
from millrace.core.shards import Shard

PARTITIONS = 2
WINDOW = 8
GROUPS = [f"g{number}" for number in range(5)]


class BrokenPromiseError(Exception):
    """What the checker found."""


@dataclass(frozen=True)
class Letter:
    """A message as it lies in a log. `main` is set in copies."""

    group: str
    number: int
    main: Position | None = None
    attempts: int = 0


@dataclass
class Log:
    """One partition with one cursor: what is acknowledged, and what of that the broker could still forget."""

    letters: list[Letter] = field(default_factory=list)
    acked: set[int] = field(default_factory=set)
    recent: list[int] = field(default_factory=list)

    def ack(self, offset: int) -> None:
        if offset not in self.acked:
            self.acked.add(offset)
            self.recent.append(offset)

    def forget(self, count: int) -> list[int]:
        """The newest acknowledgements were not on disk yet."""
        lost = self.recent[-count:]
        del self.recent[-count:]
        self.acked.difference_update(lost)
        return lost


Sim = Item[Letter]


@dataclass(eq=False)
class Owner:
    """A process that owns the shard: the core under test, and everything that it has sent."""

    core: Shard[Letter]
    seen: dict[int, int] = field(default_factory=dict)
    """The next offset by log."""
    unsettled: dict[tuple[int, int], Sim] = field(default_factory=dict)
    requests: list[Sim] = field(default_factory=list)
    answers: list[tuple[Sim, str]] = field(default_factory=list)
    writes: deque[Persist[Letter]] = field(default_factory=deque)
    written: deque[tuple[Group[Letter], Lane]] = field(default_factory=deque)
    copies: dict[int, deque[Park[Letter]]] = field(default_factory=lambda: defaultdict(deque))
    copied: deque[tuple[Sim, Lane, Position]] = field(default_factory=deque)
    fetches: list[Sim] = field(default_factory=list)
    acks: dict[int, deque[int]] = field(default_factory=lambda: defaultdict(deque))


class World:
    """One run. `step` until it says that nothing is left to do, then `judge`."""

    def __init__(self, seed: int, core: type[Shard[Letter]] = Shard) -> None:
        self.random = r = random.Random(seed)
        self.policy = Policy(
            max_attempts=r.choice((1, 2, 3, 1000)),
            block_on_dead_letter=r.random() < 0.6,
            delay=lambda attempts: r.choice((0.0, 1.0, 3.0 * attempts)),
        )
        self.core = core
        self.now = 0.0
        self.logs = [Log() for _ in range(3 * PARTITIONS)]
        self.table: dict[str, GroupState] = {}
        self.to_send = r.randint(8, 40)
        self.groups = GROUPS[: r.randint(1, len(GROUPS))]
        # A slow sender finds groups that have just recovered; a slow table is where writes get lost.
        self.weights = {"send": r.choice((0.3, 4)), "writes": r.choice((0.5, 4)), "die": 1, "forget": 1}
        self.faults = r.randint(0, 6)
        self.checker = PromiseChecker()
        self.hopeless = {(group, r.randrange(12)) for group in GROUPS if r.random() < 0.3}
        self.failing = {group: r.randint(0, 6) for group in GROUPS if r.random() < 0.6}
        self.limit = r.choice((1, 2, 8))
        self.reached: dict[str, int] = defaultdict(int)
        self.accepted: dict[str, set[int]] = defaultdict(set)
        self.owner = self._new_owner()

    # Logs: 0.. are the main topic's, then the retry queue's, then the dead letters'.

    @staticmethod
    def log_of(group: str, queue: Queue | None = None) -> int:
        base = {None: 0, Queue.RETRY: PARTITIONS, Queue.DEAD_LETTER: 2 * PARTITIONS}[queue]
        return base + GROUPS.index(group) % PARTITIONS

    def _new_owner(self) -> Owner:
        return Owner(self.core(self.policy, dict(self.table), limit=self.limit))

    def step(self) -> bool:
        """Do one thing that can be done; False when nothing is left to do."""
        actions = list(self._possible())
        if not actions:
            return False
        weights = [self.weights.get(name, 4) for name, _ in actions]
        name, argument = self.random.choices(actions, weights)[0]
        self.reached[name] += 1
        getattr(self, f"_{name}")(argument)
        return True

    def _possible(self) -> Iterator[tuple[str, object]]:
        owner = self.owner
        if self.to_send:
            yield "send", None
        for index in range(2 * PARTITIONS):
            log = self.logs[index]
            waiting = len(owner.unsettled) < WINDOW or index >= PARTITIONS
            if waiting and owner.seen.get(index, 0) < len(log.letters):
                yield "receive", index
            if self.faults and log.recent:
                yield "forget", index
        for index, copies in owner.copies.items():
            if copies:
                yield "copy", index
        for index, acks in owner.acks.items():
            if acks:
                yield "ack", index
        for name in ("requests", "answers", "writes", "written", "copied", "fetches"):
            if getattr(owner, name):
                yield name, None
        due = owner.core.next_due()
        if due is not None:
            yield "pass", due
        if self.faults:
            yield "die", None

    def _send(self, _: object) -> None:
        self.to_send -= 1
        group = self.random.choice(self.groups)
        self.logs[self.log_of(group)].letters.append(Letter(group, self.checker.next_number(group)))

    def _receive(self, index: int) -> None:
        owner, log = self.owner, self.logs[index]
        offset = owner.seen.get(index, 0)
        owner.seen[index] = offset + 1
        if offset in log.acked:
            return
        letter = log.letters[offset]
        if index < PARTITIONS:
            item = Item(letter.group, Position(0, 0, offset), letter, (index, offset))
            owner.unsettled[index, offset] = item
            owner.core.received(item)
        else:
            assert letter.main is not None
            held = letter if self.random.random() < 0.7 else None
            item = Item(
                letter.group,
                letter.main,
                held,
                (index, offset),
                parked=Position(0, 0, offset),
                attempts=letter.attempts,
            )
            owner.unsettled[index, offset] = item
            owner.core.received_copy(item, self.now)
        self._carry_out()

    def _carry_out(self) -> None:
        owner = self.owner
        effects, owner.core.effects = owner.core.effects, []
        for effect in effects:
            match effect:
                case Deliver(item):
                    if any(each.group == item.group for each in owner.requests):
                        raise BrokenPromiseError(f"two messages of {item.group} are in flight")
                    owner.requests.append(item)
                case Persist():
                    owner.writes.append(effect)
                case Park(queue, item):
                    owner.copies[self.log_of(item.group, queue)].append(effect)
                case Ack(item):
                    index, offset = item.source  # type: ignore[misc]
                    owner.unsettled.pop((index, offset))
                    self._acknowledge(index, offset)
                case Fetch(item):
                    owner.fetches.append(item)

    def _acknowledge(self, index: int, offset: int) -> None:
        """The main topic up to the oldest message that is not settled, so that what comes again is always
        everything from some message on; a copy by itself, for `c` tells what comes again.
        """
        owner = self.owner
        if index >= PARTITIONS:
            owner.acks[index].append(offset)
            return
        open_ = [n for log, n in owner.unsettled if log == index]
        mark = min(open_, default=owner.seen[index]) - 1
        acks = owner.acks[index]
        if mark >= 0 and (not acks or acks[-1] < mark):
            acks.append(mark)

    # The endpoint

    def _requests(self, _: object) -> None:
        owner = self.owner
        item = owner.requests[self.random.randrange(len(owner.requests))]
        outcome = self._attempt(item)
        if self.random.random() < 0.1:
            outcome = "failed"  # the answer got lost: a time-out
        owner.requests.remove(item)
        owner.answers.append((item, outcome))

    def _attempt(self, item: Sim) -> str:
        letter = item.message
        assert letter is not None
        violation = self.checker.deliver(item.group, letter.number)
        if violation is not None:
            raise BrokenPromiseError(str(violation))
        done = self.accepted[item.group] | self._dead_letters()[item.group].keys()
        if overtaken := set(range(letter.number)) - done:
            raise BrokenPromiseError(f"{item.group}: {letter.number} overtook {sorted(overtaken)}")
        if (item.group, letter.number) in self.hopeless:
            return "refused"
        if self.failing.get(item.group, 0):
            self.failing[item.group] -= 1
            return "failed"
        self.accepted[item.group].add(letter.number)
        return "delivered"

    def _answers(self, _: object) -> None:
        owner = self.owner
        item, outcome = owner.answers.pop(self.random.randrange(len(owner.answers)))
        match outcome:
            case "delivered":
                owner.core.delivered(item, self.now)
            case "refused":
                owner.core.refused(item, "410", self.now)
            case _:
                owner.core.failed(item, "503", self.now, self.now, self.random.choice((0.0, 2.0)))
        self._carry_out()

    # The broker

    def _writes(self, _: object) -> None:
        self._store(self.owner)

    def _store(self, owner: Owner) -> None:
        write = owner.writes.popleft()
        before = self.table.get(write.group.id, HEALTHY)
        for queue in Queue:
            for old, new in zip(_marks(before, queue), _marks(write.state, queue), strict=True):
                if old is not None and (new is None or new < old):
                    raise BrokenPromiseError(f"{write.group.id}: {old} became {new} in {queue}")
        self.table[write.group.id] = GroupState.from_json(write.state.to_json())
        owner.written.append((write.group, write.lane))

    def _written(self, _: object) -> None:
        group, lane = self.owner.written.popleft()
        self.owner.core.persisted(group, lane, self.now)
        self._carry_out()

    def _copy(self, index: int) -> None:
        self._append(self.owner, index)

    def _append(self, owner: Owner, index: int) -> None:
        park = owner.copies[index].popleft()
        item = park.item
        letter = item.message
        assert letter is not None
        log = self.logs[index]
        log.letters.append(Letter(item.group, letter.number, item.main, item.attempts))
        owner.copied.append((item, park.lane, Position(0, 0, len(log.letters) - 1)))

    def _copied(self, _: object) -> None:
        item, lane, internal = self.owner.copied.popleft()
        self.owner.core.produced(item, lane, internal, self.now)
        self._carry_out()

    def _fetches(self, _: object) -> None:
        item = self.owner.fetches.pop()
        index, offset = item.source  # type: ignore[misc]
        self.owner.core.fetched(item, self.logs[index].letters[offset])
        self._carry_out()

    def _ack(self, index: int) -> None:
        self._apply_ack(self.owner, index)

    def _apply_ack(self, owner: Owner, index: int) -> None:
        newest = owner.acks[index].popleft()
        for offset in range(newest + 1) if index < PARTITIONS else (newest,):
            self.logs[index].ack(offset)

    def _pass(self, due: float) -> None:
        self.now = max(self.now, due)
        self.owner.core.time_passed(self.now)
        self._carry_out()

    # Faults

    def _forget(self, index: int) -> None:
        """The broker restarts. The client sends what is unacknowledged again, and the owner knows it."""
        self.faults -= 1
        owner, log = self.owner, self.logs[index]
        lost = log.forget(self.random.randint(1, len(log.recent)))
        again = [n for n in lost if n < owner.seen.get(index, 0) and (index, n) not in owner.unsettled]
        if index < PARTITIONS:
            again = again[-1:] if not owner.acks[index] else []
        owner.acks[index].extend(again)

    def _die(self, _: object) -> None:
        """And another takes over. What was on its way is stored up to some point, on each connection."""
        self.faults -= 1
        owner = self.owner
        for item in owner.requests:
            if self.random.random() < 0.5:
                self._attempt(item)
        for _ in range(self.random.randint(0, len(owner.writes))):
            self._store(owner)
        for index, copies in owner.copies.items():
            for _ in range(self.random.randint(0, len(copies))):
                self._append(owner, index)
        for index, acks in owner.acks.items():
            for _ in range(self.random.randint(0, len(acks))):
                self._apply_ack(owner, index)
        self.owner = self._new_owner()

    # The end

    def _dead_letters(self) -> dict[str, dict[int, None]]:
        """By group, in the order in which they first came."""
        found: dict[str, dict[int, None]] = defaultdict(dict)
        for log in self.logs[2 * PARTITIONS :]:
            for letter in log.letters:
                found[letter.group].setdefault(letter.number)
        return found

    def judge(self) -> None:
        """Everything was accepted or is a dead letter; those stand in order, and nothing is left in a log."""
        dead = self._dead_letters()
        for log in self.logs[:PARTITIONS]:
            for letter in log.letters:
                if letter.number not in self.accepted[letter.group] | dead[letter.group].keys():
                    raise BrokenPromiseError(f"{letter.group}: {letter.number} is lost")
        for group, numbers in dead.items():
            if any(a > b for a, b in pairwise(numbers)):
                raise BrokenPromiseError(f"{group}: dead letters out of order: {list(numbers)}")
            wrongly = numbers.keys() & self.accepted[group] if self.policy.max_attempts > 100 else set()
            if wrongly:
                raise BrokenPromiseError(f"{group}: accepted, and dead letters too: {sorted(wrongly)}")
        for index in range(2 * PARTITIONS):
            left = [n for n in range(len(self.logs[index].letters)) if n not in self.logs[index].acked]
            if left:
                raise BrokenPromiseError(f"log {index}: {left} were never acknowledged")


def _marks(state: GroupState, queue: Queue) -> list[Position | None]:
    return [None if mark is None else mark.main for mark in (state.of(queue).p, state.of(queue).c)]


def run(seed: int, core: type[Shard[Letter]] = Shard) -> World:
    """One seed, from the first step to the judgement."""
    world = World(seed, core)
    for _ in range(20_000):
        if not world.step():
            world.judge()
            return world
    raise BrokenPromiseError("it never comes to an end")
