"""The order of what the native client hands out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import _pulsar

from millrace.pulsar.sources import in_order


@dataclass
class Native:
    ledger: int
    entry: int
    index: int = -1

    def message_id(self) -> Any:
        return _pulsar.MessageId(0, self.ledger, self.entry, self.index)


def test_what_a_standing_receive_brought_may_be_newer_than_what_is_queued() -> None:
    stranded, brought = Native(7, 3, 0), Native(7, 3, 1)
    assert in_order(brought, stranded) == (stranded, brought)


def test_usually_it_is_the_older_one() -> None:
    for older, newer in (
        (Native(7, 3), Native(7, 4)),
        (Native(7, 9, 5), Native(8, 0, 0)),
        (Native(7, 3, 0), Native(7, 3, 1)),
    ):
        assert in_order(older, newer) == (older, newer)
