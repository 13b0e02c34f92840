"""What a producer of a composite topic does next: events in, effects out, with no I/O and no clock.

The producer writes each group to one partition of the storage topic that the produce pointer names. When the
pointer moves while sends are in flight, each of them may or may not have been stored; guessing would lose,
repeat or reorder messages. The rules, all of them about that moment:

- A refusal with "terminated" says nothing about what was stored before (the refusal may answer a repeated
  attempt). So it only stops the link: its sends stay, new ones of its groups wait behind them.
- The next topic is never guessed. Only the descriptor says that every partition of the old topic is closed.
- When it does, a link with sends in flight is *recovered*: its partition, now closed for good, is read from
  the last acknowledged entry to the sealed end. What is found there is done; the rest goes to the new topic,
  in order, before anything newer of the same groups. This needs no answer from the old connection, which may
  never come: a client that reconnects to a terminated topic tries for ever.
- A send of a group whose older sends are unresolved waits behind them, whatever the pointer says.
- A client that reconnects repeats what was in flight, and the broker recognises what it has stored already.
  Then it does not say where: such a send is *located* by reading the partition. Until it is found, a recovery
  must not begin behind it, so what is acknowledged meanwhile does not move the link's mark. And only what was
  found counts as stored: a client that counts wrongly makes the broker take new messages for old ones.

Other partitions of a topic stay open while one is closed, and sends to them go on.
The same code runs under the asyncio producer and in the seeded simulation
(`tests/simulation/test_producer.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from millrace.core.descriptor import Descriptor
from millrace.core.positions import EntryId, Position
from millrace.core.routing import Layout, partition_of_hash


class Send:
    """One message on its way. Callers derive from it to carry what they need; the core reads these two."""

    __slots__ = ("hash", "sequence")

    def __init__(self, sequence: int, hash: int) -> None:  # noqa: A002
        self.sequence = sequence
        """Grows with every send of one producer; with the producer's id it names the message for good."""
        self.hash = hash
        """Of the group id."""


S = TypeVar("S", bound=Send)


class LinkState(Enum):
    """Where a link is in its life; it only ever moves downwards."""

    OPENING = "opening"
    OPEN = "open"
    TERMINATED = "terminated"
    """Closed by the broker; what comes next is not known yet."""
    RECOVERING = "recovering"
    """The pointer has moved on; what the closed partition holds is being read."""
    GONE = "gone"


@dataclass(slots=True, eq=False)
class Link(Generic[S]):
    """One partition of one storage topic, as this producer sees it."""

    storage_topic: int
    partition: int
    topic: str
    state: LinkState = LinkState.OPENING
    in_flight: dict[int, S] = field(default_factory=dict)
    """Handed to the client and not settled, by sequence, in the order in which they were handed over."""
    held: list[S] = field(default_factory=list)
    """Never handed to the client. All of them come after everything in flight."""
    acknowledged: Position | None = None
    """The newest message that was acknowledged here: nothing in flight is in an entry before its own."""
    unplaced: set[int] = field(default_factory=set)
    """Of those in flight: stored, but it is not known where."""
    seen: dict[int, Position] = field(default_factory=dict)
    """Of the others in flight: found while the unplaced were looked for."""
    behind: Position | None = None
    """Acknowledged after everything unplaced was stored: whoever has read that far has passed them."""

    @property
    def searching(self) -> bool:
        """Whether the unplaced are to be located; a recovery finds them by itself."""
        return bool(self.unplaced) and self.state in (LinkState.OPEN, LinkState.TERMINATED)


@dataclass(frozen=True, slots=True)
class Open(Generic[S]):
    """Connect a link, then report `opened` or `terminated`."""

    link: Link[S]


@dataclass(frozen=True, slots=True)
class Transmit(Generic[S]):
    """Hand these to the link's client in this order, after everything handed to it before."""

    link: Link[S]
    sends: Sequence[S]


@dataclass(frozen=True, slots=True)
class Recover(Generic[S]):
    """Read the closed partition from the entry `start` (the beginning if None) to `end`, both included."""

    link: Link[S]
    start: EntryId | None
    end: EntryId


@dataclass(frozen=True, slots=True)
class Locate(Generic[S]):
    """Read the partition from the entry `start` on; report `located` while the link has unplaced sends."""

    link: Link[S]
    start: EntryId | None


@dataclass(frozen=True, slots=True)
class Complete(Generic[S]):
    """The message is stored here: tell the sender."""

    send: S
    position: Position


@dataclass(frozen=True, slots=True)
class Close(Generic[S]):
    """The link is not needed any more; answers that still come from it do not matter."""

    link: Link[S]


@dataclass(frozen=True, slots=True)
class Missing(Generic[S]):
    """What the broker took for repetitions is not there, and what came after it may be: order is lost."""

    link: Link[S]


Effect = Open[S] | Transmit[S] | Recover[S] | Locate[S] | Complete[S] | Close[S] | Missing[S]


class Sending(Generic[S]):
    """The sends of one producer, from `submit` until each is acknowledged, found, rejected or abandoned."""

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor = descriptor
        self._layout: Layout = descriptor.produce_topic.layout
        self._links: dict[int, Link[S]] = {}
        """The links into the produce topic, by partition."""
        self._older: list[Link[S]] = []
        """Links into topics before it that are not settled, oldest topic first. Nearly always empty."""

    @property
    def descriptor(self) -> Descriptor:
        """The newest one that this producer knows."""
        return self._descriptor

    def links(self) -> Iterator[Link[S]]:
        """Every link that is not gone, oldest topic first."""
        yield from self._older
        yield from self._links.values()

    def unsettled(self) -> Iterator[S]:
        """Every send that was neither completed nor rejected; in order within each group."""
        for link in self.links():
            yield from link.in_flight.values()
            yield from link.held

    def submit(self, send: S) -> Transmit[S] | Open[S] | None:
        """A new send, or one that goes to another topic. (One effect and no list: this is the busy path.)"""
        link = self._route(send.hash)
        if link.state is LinkState.OPEN:
            link.in_flight[send.sequence] = send
            return Transmit(link, (send,))
        link.held.append(send)
        return Open(link) if link.state is LinkState.OPENING and len(link.held) == 1 else None

    def opened(self, link: Link[S]) -> Sequence[Effect[S]]:
        """The link is connected. It may have become useless meanwhile."""
        if link.state is LinkState.GONE:
            return (Close(link),)
        if link.state is not LinkState.OPENING:
            return ()
        link.state = LinkState.OPEN
        sends, link.held = link.held, []
        link.in_flight.update((send.sequence, send) for send in sends)
        return (Transmit(link, sends),)

    def acknowledged(self, link: Link[S], sequence: int, position: Position) -> S | None:
        """Stored. Returns the send if this settles it, None if it is settled already."""
        send = link.in_flight.pop(sequence, None)
        if send is not None:
            if not link.unplaced:
                link.acknowledged = position
            else:
                link.seen.pop(sequence, None)
                link.behind = link.behind or position
        return send

    def stored(self, link: Link[S], sequence: int) -> Sequence[Effect[S]]:
        """Stored before, the broker says of a repetition, and not where."""
        if sequence not in link.in_flight or sequence in link.unplaced:
            return ()
        if sequence in link.seen:
            return (Complete(link.in_flight.pop(sequence), link.seen.pop(sequence)),)
        searching = link.searching
        link.unplaced.add(sequence)
        link.behind = None
        return (Locate(link, self._mark(link)),) if link.searching and not searching else ()

    def located(
        self, link: Link[S], found: Mapping[int, Position], reached: Position, *, whole: bool
    ) -> Sequence[Effect[S]]:
        """The next messages of ours in the partition, which was read up to `reached`.

        `whole` says that it could be read from the link's mark on: nothing since then was trimmed.
        """
        if not link.searching:
            return ()
        effects: list[Effect[S]] = []
        for sequence, position in found.items():
            if sequence in link.unplaced:
                link.unplaced.remove(sequence)
                effects.append(Complete(link.in_flight.pop(sequence), position))
                if not link.unplaced:
                    link.acknowledged = position
            elif sequence in link.in_flight:
                link.seen[sequence] = position
        if link.behind is not None and reached >= link.behind:
            effects.extend(self._not_found(link, whole=whole))
        if not link.unplaced:
            link.seen, link.behind = {}, None
        return effects

    def exhausted(self, link: Link[S], *, whole: bool) -> Sequence[Effect[S]]:
        """The partition holds nothing more that could be located."""
        return list(self._not_found(link, whole=whole)) if link.searching else ()

    @staticmethod
    def _not_found(link: Link[S], *, whole: bool) -> Iterator[Effect[S]]:
        """Trimmed: stored it was, and nobody can tell where. Otherwise it never was."""
        if link.unplaced and whole:
            yield Missing(link)
            return
        lost = [sequence for sequence in link.in_flight if sequence in link.unplaced]
        link.unplaced.clear()
        link.seen, link.behind = {}, None
        nowhere = Position(link.storage_topic, -1, -1)
        for sequence in lost:
            yield Complete(link.in_flight.pop(sequence), nowhere)

    def rejected(self, link: Link[S], sequence: int) -> S | None:
        """Refused for what it is, not for where it goes, and surely not stored. Returns the send to fail."""
        return link.in_flight.pop(sequence, None)

    def terminated(self, link: Link[S]) -> None:
        """The partition is closed. What was in flight may be stored; only the sealed partition can tell."""
        if link.state in (LinkState.OPENING, LinkState.OPEN):
            link.state = LinkState.TERMINATED

    def advanced(self, descriptor: Descriptor) -> Sequence[Effect[S]]:
        """A descriptor was learnt; one that is not newer changes nothing."""
        if descriptor.generation <= self._descriptor.generation:
            return ()
        moved = descriptor.produce_pointer > self._descriptor.produce_pointer
        self._descriptor = descriptor
        if not moved:
            return ()
        left = list(self._links.values())
        self._older.extend(left)
        self._links = {}
        self._layout = descriptor.produce_topic.layout
        effects: list[Effect[S]] = []
        for link in left:
            if link.in_flight:
                link.state = LinkState.RECOVERING
                sealed = descriptor.storage_topics[link.storage_topic].sealed
                assert sealed is not None, "every storage topic before the pointer is sealed"
                effects.append(Recover(link, self._mark(link), sealed[link.partition]))
            else:
                effects.extend(self._settle(link))
        return effects

    def recovered(self, link: Link[S], found: Mapping[int, Position]) -> Sequence[Effect[S]]:
        """The closed partition was read to its end, and holds exactly these of the sends in flight."""
        if link.state is not LinkState.RECOVERING:
            return ()
        effects: list[Effect[S]] = []
        for sequence, position in found.items():
            send = link.in_flight.pop(sequence, None)
            if send is not None:
                link.unplaced.discard(sequence)
                effects.append(Complete(send, position))
        if link.unplaced:
            return [*effects, Missing(link)]
        effects.extend(self._settle(link))
        return effects

    def abandon(self) -> list[S]:
        """Give up every send: the outcome of each is unknown."""
        sends = list(self.unsettled())
        for link in self.links():
            link.state = LinkState.GONE
            link.in_flight, link.held = {}, []
            link.unplaced.clear()
        self._links, self._older = {}, []
        return sends

    @staticmethod
    def _mark(link: Link[S]) -> EntryId | None:
        """The first entry that may hold something in flight."""
        return link.acknowledged.entry_id if link.acknowledged is not None else None

    def _route(self, h: int) -> Link[S]:
        """The oldest unsettled link that may hold sends of the group, else one into the produce topic."""
        for link in self._older:
            layout = self._descriptor.storage_topics[link.storage_topic].layout
            if partition_of_hash(h, layout) == link.partition:
                return link
        partition = partition_of_hash(h, self._layout)
        current = self._links.get(partition)
        if current is None:
            pointer = self._descriptor.produce_pointer
            topic = self._descriptor.produce_topic.partition_topic(partition)
            current = self._links[partition] = Link(pointer, partition, topic)
        return current

    def _settle(self, link: Link[S]) -> Iterator[Effect[S]]:
        """What is left of a link goes on to where its groups live now, before anything newer can."""
        rest = [*link.in_flight.values(), *link.held]
        was_opening = link.state is LinkState.OPENING
        link.state = LinkState.GONE
        link.in_flight, link.held = {}, []
        self._older.remove(link)
        if not was_opening:  # else `opened` closes it
            yield Close(link)
        transmits: dict[Link[S], list[S]] = {}
        for send in rest:
            effect = self.submit(send)
            if isinstance(effect, Transmit):
                transmits.setdefault(effect.link, []).append(send)
            elif effect is not None:
                yield effect
        for target, sends in transmits.items():
            yield Transmit(target, sends)
