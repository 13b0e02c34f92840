"""Acknowledging the messages of one partition, an entry at a time where that is possible.

An acknowledgement through the native client costs more than receiving the message did. Producers send
batches, and a batch is one entry: so the messages of an entry are counted here, and the entry is acknowledged
as a whole when all of it is done. Where some of an entry stay open for longer than a moment, the others are
acknowledged one by one (batch-index acknowledgement), so that a crash repeats only what was in flight.

Cumulative acknowledgement would be cheaper still, and is not used: it would also take what the client has
read but not handed out, such as the first chunk of a large message.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from millrace.pulsar.messageids import batch_size, whole_entry


class Entry:
    """One entry of which messages are not acknowledged yet."""

    __slots__ = ("complete", "held", "key", "size", "waiting")

    def __init__(self, key: tuple[int, int], size: int) -> None:
        self.key = key
        self.size = size
        """Messages in it; 0 for a message that was not sent in a batch."""
        self.held: set[int] = set()
        """Batch indexes that were handed out and not acknowledged."""
        self.waiting: list[Any] = []
        """Ids that were acknowledged by the application, and not to the broker."""
        self.complete = False
        """Nothing more of it will come."""


class Acknowledgements:
    """What of a partition was received and not acknowledged. Pure: `acknowledge` does it, for one native id.

    `flush` is to be called from time to time, as long as `due`.
    """

    def __init__(self, acknowledge: Callable[[Any], None]) -> None:
        self._acknowledge = acknowledge
        self._entries: dict[tuple[int, int], Entry] = {}
        self._newest: Entry | None = None
        self._partial: dict[tuple[int, int], Entry] = {}
        self._partial_before: dict[tuple[int, int], Entry] = {}
        """Entries that were partly acknowledged before the last flush already."""

    @property
    def due(self) -> bool:
        """Whether acknowledgements are being held back."""
        return bool(self._partial or self._partial_before)

    @property
    def open_entries(self) -> int:
        """Entries of which something is not acknowledged yet."""
        return len(self._entries)

    def received(self, ledger: int, entry_number: int, index: int, message_id: Any) -> Entry:
        """A message that never came before. They have to come in order."""
        entry = self._newest
        key = (ledger, entry_number)
        if entry is None or entry.key != key:
            if entry is not None and not entry.complete:
                self._complete(entry)
            # An id that does not tell the size would make the first message look like the last one.
            entry = self._newest = Entry(key, 0 if index < 0 else batch_size(message_id) or sys.maxsize)
        if not entry.held:
            self._entries[key] = entry  # again, if all that came before was acknowledged one by one
        entry.held.add(index)
        if index + 1 >= entry.size:
            entry.complete = True
        return entry

    def ack(self, entry: Entry, index: int, message_id: Any) -> None:
        """The application is done with one message. Acknowledging it twice does nothing."""
        held = entry.held
        if index not in held:
            return
        held.discard(index)
        if index < 0:
            # By its own id: if it came in chunks, only that knows all of them.
            del self._entries[entry.key]
            self._acknowledge(message_id)
        elif not held and entry.complete:
            self._settle(entry)
        else:
            entry.waiting.append(message_id)
            if entry.key not in self._partial_before:
                self._partial[entry.key] = entry

    def is_held(self, ledger: int, entry_number: int, index: int) -> bool:
        """Whether the application has this message and is not done with it."""
        entry = self._entries.get((ledger, entry_number))
        return entry is not None and index in entry.held

    def flush(self, *, everything: bool = False) -> None:
        """Acknowledge one by one what has waited for the rest of its entry since before the last flush."""
        before, self._partial_before, self._partial = self._partial_before, self._partial, {}
        if everything:
            before, self._partial_before = before | self._partial_before, {}
        for entry in before.values():
            for message_id in entry.waiting:
                self._acknowledge(message_id)
            entry.waiting.clear()
            if not entry.held:
                self._forget(entry)

    def _complete(self, entry: Entry) -> None:
        entry.complete = True
        if not entry.held and entry.waiting:
            self._settle(entry)

    def _settle(self, entry: Entry) -> None:
        self._forget(entry)
        entry.waiting.clear()
        self._acknowledge(whole_entry(*entry.key))

    def _forget(self, entry: Entry) -> None:
        self._entries.pop(entry.key, None)
        self._partial.pop(entry.key, None)
        self._partial_before.pop(entry.key, None)
