"""Where a message is: positions within a composite topic, and the sealed ends of terminated partitions.

A position is comparable only within one group (a group lives in exactly one partition of each
storage topic) or within one partition. The Pulsar partition index is deliberately absent: the
client reports it as -1 from `send()` and as 0 elsewhere, so it must never take part in a comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class EntryId(NamedTuple):
    """One entry of a managed ledger; a batch of messages is one entry."""

    ledger: int
    entry: int

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}"

    @classmethod
    def parse(cls, text: str) -> EntryId:
        """Read what `str()` wrote."""
        ledger, _, entry = text.partition(":")
        try:
            return cls(int(ledger), int(entry))
        except ValueError:
            raise ValueError(f"{text!r} is not an entry id: expected LEDGER:ENTRY") from None


EMPTY = EntryId(-1, -1)
"""The sealed end of a partition that never held a message (everything is after it, so nothing is missing)."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A message of a composite topic. `batch` is -1 for a message that was not sent in a batch."""

    storage_topic: int
    ledger: int
    entry: int
    batch: int = -1

    @property
    def entry_id(self) -> EntryId:
        """The entry that holds the message; what a sealed end is compared with."""
        return EntryId(self.ledger, self.entry)

    def __str__(self) -> str:
        return f"{self.storage_topic}:{self.ledger}:{self.entry}:{self.batch}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read what `str()` wrote."""
        parts = text.split(":")
        try:
            storage_topic, ledger, entry, batch = (int(part) for part in parts)
        except ValueError:
            raise ValueError(f"{text!r} is not a position: expected TOPIC_INDEX:LEDGER:ENTRY:BATCH") from None
        return cls(storage_topic, ledger, entry, batch)
