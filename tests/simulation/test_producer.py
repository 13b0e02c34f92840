"""Many producers over a simulated broker, through every kind of switch: order, loss and repetition.

One seed is one run. The broker stores what arrives, in order, until a partition is terminated; connections
break, and what is sent again is recognised (broker deduplication), but then the answer does not say where it
is; answers are delayed, lost, or turn into refusals although the message is stored; descriptors are learnt
late, and by each producer at another time. After every step each producer's messages of each group must stand
in order, once, in (storage topic, offset). In the end all must be there.

Replay one seed:    MILLRACE_SIM_SEED=17 pytest tests/simulation/test_producer.py -k every_seed
Run other ones:     MILLRACE_SIM_FIRST=5000 MILLRACE_SIM_SEEDS=20000 pytest tests/simulation/test_producer.py
"""

from __future__ import annotations

import os
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_changes

import pytest

from millrace.core.descriptor import Descriptor, begin_switch, complete_step, initial
from millrace.core.positions import EMPTY, EntryId, Position
from millrace.core.routing import Routing, group_hash
from millrace.core.sending import (
    Close,
    Complete,
    Effect,
    Link,
    LinkState,
    Locate,
    Missing,
    Open,
    Recover,
    Send,
    Sending,
    Transmit,
)

SEEDS = int(os.environ.get("MILLRACE_SIM_SEEDS", "2000"))
FIRST = int(os.environ.get("MILLRACE_SIM_FIRST", "0"))
GROUPS = [(name, group_hash(name)) for name in ("a", "b", "c", "d", "e", "f", "g")]


class BrokenPromiseError(Exception):
    """What the checker found."""


REPEATED = -1
"""The answer to what was stored before."""


class Letter(Send):
    __slots__ = ("group",)

    def __init__(self, sequence: int, group: str, h: int) -> None:
        super().__init__(sequence, h)
        self.group = group


SimLink = Link[Letter]
SimEffect = Effect[Letter]


@dataclass
class Stored:
    producer: int
    sequence: int
    group: str
    link: SimLink
    """Whose connection it came over: what makes deduplication possible."""


@dataclass
class Partition:
    log: list[Stored] = field(default_factory=list)
    terminated: bool = False

    @property
    def end(self) -> EntryId:
        return EntryId(0, len(self.log) - 1) if self.log else EMPTY


@dataclass
class Wire:
    """One producer's connection to one partition, as a good client keeps it: first in, first out."""

    link: SimLink
    partition: Partition
    unsent: deque[Letter] = field(default_factory=deque)
    unanswered: deque[tuple[Letter, int | None]] = field(default_factory=deque)
    """Reached the broker: with an offset if stored, REPEATED if it was before, else refused as terminated."""
    stored: set[int] = field(default_factory=set)
    mute: bool = False
    """Reconnecting to a terminated topic, for ever: no answer comes any more."""


@dataclass
class Host:
    """A producer process: the core under test, its wires, and what it still has to learn or to do."""

    number: int
    core: Sending[Letter]
    wires: dict[SimLink, Wire] = field(default_factory=dict)
    news: deque[Descriptor] = field(default_factory=deque)
    opening: list[SimLink] = field(default_factory=list)
    recovering: list[Recover[Letter]] = field(default_factory=list)
    locating: dict[SimLink, int] = field(default_factory=dict)
    """How far each has been read."""
    submitted: int = 0
    done: dict[int, Position] = field(default_factory=dict)


class World:
    def __init__(self, seed: int, core: type[Sending[Letter]] = Sending) -> None:
        self.random = r = random.Random(seed)
        counts = r.choices((1, 2, 3, 4, 6), k=r.randint(2, 4))
        routing = r.choice((Routing.SHARD_CONSISTENT, Routing.RANGE))
        self.descriptor = initial("sim", routing, [(f"t{i}", n, False) for i, n in enumerate(counts)])
        self.topics = [[Partition() for _ in range(n)] for n in counts]
        self.hosts = [Host(i, core(self.descriptor)) for i in range(r.randint(1, 3))]
        self.to_send = r.randint(10, 60)
        self.stored_now: list[tuple[int, int, Stored]] = []
        self.newest: dict[tuple[int, str], tuple[int, int, int]] = {}
        self.seen: set[tuple[int, int]] = set()

    # What can happen next. Each step is one action of one party, chosen at random.

    def step(self) -> bool:
        """Do one thing that can be done; False when nothing is left to do."""
        actions = list(self._possible())
        if not actions:
            return False
        action, argument = self.random.choices(actions, [self._weight(name) for name, _ in actions])[0]
        getattr(self, f"_{action}")(argument)
        self._check_what_was_stored()
        return True

    @staticmethod
    def _weight(action: str) -> int:
        return {"submit": 6, "arrive": 5, "answer": 4, "terminate": 1, "disconnect": 1}.get(action, 3)

    def _possible(self) -> Iterator[tuple[str, object]]:
        for host in self.hosts:
            if self.to_send:
                yield "submit", host
            if host.news:
                yield "learn", host
            if host.opening:
                yield "open", host
            if host.recovering:
                yield "recover", host
            for link, offset in host.locating.items():
                if offset < len(self.topics[link.storage_topic][link.partition].log):
                    yield "locate", (host, link)
            for wire in host.wires.values():
                if wire.unsent and not wire.mute:
                    yield "arrive", (host, wire)
                if wire.unanswered and not wire.mute:
                    yield "answer", (host, wire)
                    yield "disconnect", (host, wire)
        pointer = self.descriptor.produce_pointer
        if pointer + 1 < len(self.topics):
            yield "terminate", pointer

    def _submit(self, host: Host) -> None:
        self.to_send -= 1
        group, h = self.random.choice(GROUPS)
        letter = Letter(host.submitted, group, h)
        host.submitted += 1
        effect = host.core.submit(letter)
        self._carry_out(host, [] if effect is None else [effect])

    def _learn(self, host: Host) -> None:
        # A compacted topic may show the newest one only.
        if self.random.random() < 0.3:
            host.news = deque([host.news[-1]])
        self._carry_out(host, host.core.advanced(host.news.popleft()))

    def _open(self, host: Host) -> None:
        link = host.opening.pop(self.random.randrange(len(host.opening)))
        partition = self.topics[link.storage_topic][link.partition]
        if partition.terminated:
            host.core.terminated(link)
            return
        host.wires[link] = Wire(link, partition)
        self._carry_out(host, host.core.opened(link))

    def _arrive(self, where: tuple[Host, Wire]) -> None:
        host, wire = where
        letter = wire.unsent.popleft()
        offset: int | None = None
        if not wire.partition.terminated:
            log = wire.partition.log
            if letter.sequence in wire.stored:
                offset = REPEATED
            else:
                offset = len(log)
                wire.stored.add(letter.sequence)
                stored = Stored(host.number, letter.sequence, letter.group, wire.link)
                log.append(stored)
                self.stored_now.append((wire.link.storage_topic, offset, stored))
        wire.unanswered.append((letter, offset))

    def _answer(self, where: tuple[Host, Wire]) -> None:
        host, wire = where
        letter, offset = wire.unanswered.popleft()
        if offset is None:
            host.core.terminated(wire.link)
            return
        if offset == REPEATED:
            self._carry_out(host, host.core.stored(wire.link, letter.sequence))
            return
        position = Position(wire.link.storage_topic, 0, offset)
        send = host.core.acknowledged(wire.link, letter.sequence, position)
        if send is not None:
            self._complete(host, send, position)

    def _disconnect(self, where: tuple[Host, Wire]) -> None:
        _, wire = where
        wire.unsent.extendleft(letter for letter, _ in reversed(wire.unanswered))
        wire.unanswered.clear()
        wire.mute = wire.partition.terminated and self.random.random() < 0.5

    def _recover(self, host: Host) -> None:
        recover = host.recovering.pop(self.random.randrange(len(host.recovering)))
        link = recover.link
        log = self.topics[link.storage_topic][link.partition].log
        assert recover.end == self.topics[link.storage_topic][link.partition].end
        first = recover.start.entry if recover.start else 0
        found = {
            stored.sequence: Position(link.storage_topic, 0, offset)
            for offset, stored in enumerate(log)
            if offset >= first and stored.producer == host.number
        }
        self._carry_out(host, host.core.recovered(link, found))

    def _locate(self, where: tuple[Host, SimLink]) -> None:
        host, link = where
        offset = host.locating[link]
        stored = self.topics[link.storage_topic][link.partition].log[offset]
        position = Position(link.storage_topic, 0, offset)
        found = {stored.sequence: position} if stored.producer == host.number else {}
        self._carry_out(host, host.core.located(link, found, position, whole=True))
        host.locating[link] = offset + 1
        if not link.searching:
            del host.locating[link]

    def _terminate(self, pointer: int) -> None:
        if self.descriptor.switching_to is None:
            target = self.random.randint(pointer + 1, len(self.topics) - 1)
            self._publish(begin_switch(self.descriptor, target))
        still_open = [partition for partition in self.topics[pointer] if not partition.terminated]
        if still_open:
            self.random.choice(still_open).terminated = True
        else:
            self._publish(complete_step(self.descriptor, [p.end for p in self.topics[pointer]]))

    def _publish(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        for host in self.hosts:
            host.news.append(descriptor)

    def _carry_out(self, host: Host, effects: Sequence[SimEffect]) -> None:
        for effect in effects:
            match effect:
                case Open(link):
                    host.opening.append(link)
                case Transmit(link, sends):
                    host.wires[link].unsent.extend(sends)
                case Recover():
                    host.recovering.append(effect)
                case Locate(link, start):
                    host.locating[link] = start.entry if start else 0
                case Missing(link):
                    raise BrokenPromiseError(f"{link.unplaced} are stored and were not found")
                case Complete(send, position):
                    self._complete(host, send, position)
                case Close(link):
                    # What it had not sent yet is gone with it; what it sent may still be answered.
                    if link in host.wires:
                        host.wires[link].unsent.clear()

    # What must hold.

    def _complete(self, host: Host, letter: Letter, position: Position) -> None:
        if letter.sequence in host.done:
            raise BrokenPromiseError(f"producer {host.number}: {letter.sequence} was completed twice")
        host.done[letter.sequence] = position

    def _check_what_was_stored(self) -> None:
        for topic, offset, stored in self.stored_now:
            if (stored.producer, stored.sequence) in self.seen:
                raise BrokenPromiseError(f"producer {stored.producer}: {stored.sequence} is stored twice")
            self.seen.add((stored.producer, stored.sequence))
            if topic > 0 and not all(partition.terminated for partition in self.topics[topic - 1]):
                raise BrokenPromiseError(f"topic {topic} was written to before topic {topic - 1} was closed")
            key = (stored.producer, stored.group)
            before = self.newest.get(key, (-1, -1, -1))
            if stored.sequence < before[0] or (topic, offset) < before[1:]:
                raise BrokenPromiseError(
                    f"producer {key[0]}, group {key[1]}: {stored.sequence} came after {before[0]}"
                )
            self.newest[key] = (stored.sequence, topic, offset)
        self.stored_now.clear()

    def check_the_end(self) -> None:
        for host in self.hosts:
            waiting = [letter.sequence for letter in host.core.unsettled()]
            if waiting or len(host.done) != host.submitted:
                raise BrokenPromiseError(f"producer {host.number}: {waiting} were never settled")
            for sequence, position in host.done.items():
                places = [
                    (topic, offset)
                    for topic, partitions in enumerate(self.topics)
                    for partition in partitions
                    for offset, s in enumerate(partition.log)
                    if (s.producer, s.sequence) == (host.number, sequence)
                ]
                if places != [(position.storage_topic, position.entry)]:
                    raise BrokenPromiseError(
                        f"producer {host.number}: {sequence} is at {places}, not at {position}"
                    )


def run(seed: int, core: type[Sending[Letter]] = Sending) -> World:
    world = World(seed, core)
    for _ in range(20_000):
        if not world.step():
            world.check_the_end()
            return world
    raise BrokenPromiseError("it never came to rest")


def test_every_seed_keeps_order_and_neither_loses_nor_repeats() -> None:
    only = os.environ.get("MILLRACE_SIM_SEED")
    for seed in [int(only)] if only else range(FIRST, FIRST + SEEDS):
        try:
            run(seed)
        except BrokenPromiseError as broken:
            pytest.fail(
                f"seed {seed}: {broken}\nreplay: MILLRACE_SIM_SEED={seed} pytest {__file__} -k every_seed"
            )


def test_the_simulation_reaches_what_it_is_for() -> None:
    """A simulation that never recovers anything would prove nothing."""
    recovered, found = [], []
    repeated: list[int] = []

    class Counting(Sending[Letter]):
        def located(
            self, link: SimLink, found_here: Mapping[int, Position], reached: Position, *, whole: bool
        ) -> Sequence[SimEffect]:
            repeated.extend(link.unplaced & found_here.keys())
            return super().located(link, found_here, reached, whole=whole)

        def recovered(self, link: SimLink, found_here: Mapping[int, Position]) -> Sequence[SimEffect]:
            known = set(link.in_flight) & set(found_here)
            recovered.append(len(link.in_flight) - len(known))
            found.append(len(known))
            return super().recovered(link, found_here)

    for seed in range(100):
        run(seed, Counting)
    assert sum(1 for count in recovered if count) > 50
    assert sum(1 for count in found if count) > 50
    assert len(repeated) > 50


class GuessesTheNextTopic(Sending[Letter]):
    """Moves on as soon as one partition is refused, without waiting for the descriptor."""

    def terminated(self, link: SimLink) -> None:
        super().terminated(link)
        following = link.storage_topic + 1
        if following < len(self.descriptor.storage_topics) and link.state is LinkState.TERMINATED:
            known = self._descriptor
            closed = [
                with_changes(topic, sealed=topic.sealed or (EMPTY,) * topic.layout.partitions)
                for topic in known.storage_topics[:following]
            ]
            guess = with_changes(
                known,
                storage_topics=(*closed, *known.storage_topics[following:]),
                produce_pointer=following,
                switching_to=None,
            )
            self._descriptor = guess
            self._links, self._layout = {}, guess.produce_topic.layout


class SendsAgainWhatIsThere(Sending[Letter]):
    """Trusts the refusal, and does not remove what the closed partition holds."""

    def recovered(self, link: SimLink, found: Mapping[int, Position]) -> Sequence[SimEffect]:
        return super().recovered(link, {})


class DropsWhatWasRefused(Sending[Letter]):
    """Takes everything in flight for stored."""

    def recovered(self, link: SimLink, found: Mapping[int, Position]) -> Sequence[SimEffect]:
        link.in_flight.clear()
        return super().recovered(link, found)


class SendsNewerFirst(Sending[Letter]):
    """Does not make a group's new sends wait for its older ones."""

    def _route(self, h: int) -> SimLink:
        older, self._older = self._older, []
        try:
            return super()._route(h)
        finally:
            self._older = older


class SendsHeldOnesFirst(Sending[Letter]):
    """Puts what was held before what was in flight."""

    def _settle(self, link: SimLink) -> Iterator[SimEffect]:
        rest = [*link.held, *link.in_flight.values()]
        link.in_flight, link.held = {}, rest
        return super()._settle(link)


class ReadsFromTheStartOfTheNextEntry(Sending[Letter]):
    """Skips one entry too many when it looks for what was stored."""

    def advanced(self, descriptor: Descriptor) -> Sequence[SimEffect]:
        return [
            with_changes(effect, start=EntryId(0, (effect.start.entry if effect.start else -1) + 2))
            if isinstance(effect, Recover)
            else effect
            for effect in super().advanced(descriptor)
        ]


class ForgetsWhatIsNotPlaced(Sending[Letter]):
    """Lets what is acknowledged later move the mark, behind which a recovery begins."""

    def acknowledged(self, link: SimLink, sequence: int, position: Position) -> Letter | None:
        send = super().acknowledged(link, sequence, position)
        link.acknowledged = position
        return send


class SaysAnyPlace(Sending[Letter]):
    """Takes the newest acknowledged place for that of a repetition."""

    def stored(self, link: SimLink, sequence: int) -> Sequence[SimEffect]:
        send = link.in_flight.pop(sequence, None)
        return [Complete(send, link.acknowledged or Position(link.storage_topic, 0, 0))] if send else []


class ForgetsHeldOnes(Sending[Letter]):
    """Loses what was waiting behind a refused send."""

    def _settle(self, link: SimLink) -> Iterator[SimEffect]:
        link.held.clear()
        return super()._settle(link)


@pytest.mark.parametrize(
    "defective",
    [
        GuessesTheNextTopic,
        SendsAgainWhatIsThere,
        DropsWhatWasRefused,
        SendsNewerFirst,
        SendsHeldOnesFirst,
        ReadsFromTheStartOfTheNextEntry,
        ForgetsWhatIsNotPlaced,
        SaysAnyPlace,
        ForgetsHeldOnes,
    ],
)
def test_a_planted_defect_is_found(defective: type[Sending[Letter]]) -> None:
    for seed in range(300):
        try:
            run(seed, defective)
        except BrokenPromiseError:
            return
    pytest.fail(f"{defective.__name__} went unnoticed")
