"""What can be read out of the native client's message ids."""

from __future__ import annotations

from typing import Any

import pulsar

from millrace.core.positions import EMPTY, EntryId


def batch_size(message_id: Any) -> int:
    """How many messages the entry holds, which only the serialised id tells (field 6 of MessageIdData)."""
    data, at = message_id.serialize(), 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag >> 3 == 6:
            return value
    return 0


def has_passed(end: EntryId, last: Any) -> bool:
    """Whether nothing up to a sealed end comes after `last`, the id that was read last (None: none was)."""
    if end == EMPTY:
        return True
    if last is None:
        return False
    entry, index = EntryId(last.ledger_id(), last.entry_id()), last.batch_index()
    return entry > end or (entry == end and (index < 0 or index + 1 >= batch_size(last)))


def whole_entry(ledger: int, entry: int) -> Any:
    """The native id of an entry with all messages in it."""
    return pulsar.MessageId(-1, ledger, entry, -1)._msg_id


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
