from __future__ import annotations

import pytest

from millrace.core.positions import EMPTY, EntryId
from millrace.pulsar.admin import InternalStats, LedgerInfo
from millrace.pulsar.termination import last_entry


@pytest.mark.parametrize(
    ("ledgers", "current_entries", "last_confirmed", "end"),
    [
        pytest.param([(14, 0)], 3, "14:2", EntryId(14, 2), id="terminated with an open ledger"),
        pytest.param([(14, 3)], 0, "14:2", EntryId(14, 2), id="and unloaded"),
        pytest.param([(12, 5), (13, 0)], 0, "13:-1", EntryId(12, 4), id="terminated after an unload"),
        pytest.param([(12, 5)], 0, "13:-1", EntryId(12, 4), id="and unloaded again"),
        pytest.param([(12, 5), (13, 0)], 2, "13:1", EntryId(13, 1), id="written to after an unload"),
        pytest.param([(8, 2), (12, 5), (13, 0), (15, 0)], 0, "15:-1", EntryId(12, 4), id="several unloads"),
        pytest.param([(18, 0)], 0, "18:-1", EMPTY, id="never written"),
        pytest.param([], 0, "18:-1", EMPTY, id="never written and unloaded"),
        pytest.param([], 0, "14:2", EMPTY, id="trimmed after termination"),
        pytest.param([(21, 0)], 0, "19:3", EMPTY, id="trimmed before termination"),
    ],
)
def test_the_sealed_end_is_the_last_entry_that_is_there(
    ledgers: list[tuple[int, int]], current_entries: int, last_confirmed: str, end: EntryId
) -> None:
    stats = InternalStats(
        state="Terminated",
        ledgers=tuple(LedgerInfo(*info) for info in ledgers),
        current_ledger_entries=current_entries,
        last_confirmed=EntryId.parse(last_confirmed),
        cursors=(),
        entries=0,
    )
    assert last_entry(stats) == end
