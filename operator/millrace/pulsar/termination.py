"""Sealing a partition, and finding where it truly ends.

The answer of `terminate` is not the end: after an unload or a broker restart the newest ledger is empty, and
the answer names that ledger with entry -1 although older ledgers hold messages. `lastConfirmedEntry` says the
same. So the end is taken from the list of ledgers. What the broker shows (4.0):

| the topic | ledgers (id: entries) | lastConfirmedEntry | the end |
|---|---|---|---|
| 3 sent, terminated | 14: 0 (the open ledger's entries are not counted here) | 14:2 | 14:2 |
| the same, unloaded | 14: 3 | 14:2 | 14:2 |
| 5 sent, unloaded, terminated | 12: 5, 13: 0 | 13:-1 | 12:4 |
| the same, unloaded again | 12: 5 | 13:-1 | 12:4 |
| never written | 18: 0, later none | 18:-1 | empty |
| all consumed and trimmed | none, or an empty one | a ledger that is gone, or -1 | empty |

The last row is a choice: entries that were trimmed cannot be read by anybody, so an end that names one would
be waited for in vain. The end is the last entry that is *there*.

After it is terminated a partition is unloaded, always. Writes that are in flight at that moment are neither
completed nor failed by the broker (apache/pulsar#26678); the next write then fences the topic until they are
done, which is never: nobody could read it again. Loading it afresh ends that, and makes waiting producers
learn that it is terminated. From then on no producer is let in, so nothing can fence it any more.
"""

from __future__ import annotations

from millrace.core.positions import EMPTY, EntryId
from millrace.pulsar.admin import Admin, InternalStats
from millrace.pulsar.errors import Conflict


async def seal_partition(admin: Admin, partition_topic: str) -> EntryId:
    """Terminate (again, if need be: it is idempotent and cannot be undone) and find the end."""
    await admin.terminate(partition_topic)
    await admin.unload(partition_topic)
    end = await sealed_end(admin, partition_topic)
    if end is None:
        # Only a topic that was deleted and created again in between can be open now.
        raise Conflict(f"{partition_topic} was terminated but is open; something re-creates it: look again")
    return end


async def sealed_end(admin: Admin, partition_topic: str) -> EntryId | None:
    """Where a terminated partition ends, EMPTY if it holds nothing; None while it is not terminated."""
    stats = await admin.internal_stats(partition_topic)
    return last_entry(stats) if stats.terminated else None


def last_entry(stats: InternalStats) -> EntryId:
    """The last entry that is there; of a terminated topic this is the sealed end."""
    ends = [EntryId(info.ledger, info.entries - 1) for info in stats.ledgers if info.entries > 0]
    confirmed = stats.last_confirmed
    if confirmed.entry >= 0 and any(info.ledger == confirmed.ledger for info in stats.ledgers):
        ends.append(confirmed)
    return max(ends, default=EMPTY)
