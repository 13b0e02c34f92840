"""The status of a Subscription: a projection of descriptors, cursors and Leases, rebuilt when it is lost.

Numbers that move all the time are written at most once a minute, or when they have changed much: every write
of a status goes to everybody who watches the object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta

from millrace.api.meta import Condition
from millrace.api.reasons import Reason
from millrace.api.subscription import Lag, ShardAssignment, ShardStatus, SubscriptionStatus
from millrace.core.conditions import Adjustment
from millrace.core.descriptor import Descriptor
from millrace.core.routing import partitions_of_shard
from millrace.core.shardleases import ShardLease
from millrace.core.subscriptionactions import Knowledge, Queue, Wanted
from millrace.core.subscriptionobjects import selector_text
from millrace.core.subscriptions import running_count, shard_count, undrained

COUNTED_EVERY = timedelta(minutes=1)
MUCH = 1000
MAX_SHARDS_LENGTH = 24 * 1024
"""Status stays below 32 KiB; where the list of shards is longer than this, it says less of each."""


def status(
    wanted: Wanted,
    known: Knowledge,
    conditions: tuple[Condition, ...],
    before: SubscriptionStatus,
    *,
    generation: int,
    now: datetime,
) -> SubscriptionStatus:
    """What to write. What is not known in this reconciliation stays as it was."""
    blocked, dead = _groups(known, before)
    groups = ((before.blocked_groups or 0, blocked or 0), (before.dead_lettered_groups or 0, dead or 0))
    lag = counted(before.lag, lag_of(known), now, *groups)
    fresh = lag is not before.lag or before.lag is None
    count = running_count(known)
    effective = before.effective_shard_count
    if count is not None or known.tables:
        effective = 0 if wanted.shard_count == 0 else count
    leases = known.workload.leases if known.workload is not None else None
    shards = before.shards
    if leases is not None and count is not None:
        shards = listed(shards_of(known, count, leases))
    return SubscriptionStatus(
        observed_generation=generation,
        cluster_id=wanted.owner.cluster,
        connection=wanted.connection,
        pulsar_namespace=wanted.pulsar_namespace,
        subscription_name=wanted.cursor,
        effective_shard_count=effective,
        shard_generation=wanted.generation,
        replicas=effective,
        selector=selector_text(wanted.owner.name, wanted.generation),
        retry_descriptor_generation=_generation(known, Queue.RETRY, before.retry_descriptor_generation),
        dead_letter_descriptor_generation=_generation(
            known, Queue.DEAD_LETTER, before.dead_letter_descriptor_generation
        ),
        owned_shards=before.owned_shards
        if leases is None
        else sum(1 for lease in leases if lease.holder is not None),
        shards=shards,
        lag=lag,
        blocked_groups=blocked if fresh else before.blocked_groups,
        dead_lettered_groups=dead if fresh else before.dead_lettered_groups,
        conditions=conditions,
    )


def _groups(known: Knowledge, before: SubscriptionStatus) -> tuple[int | None, int | None]:
    """How many groups are blocked, and have dead letters, as their shards say."""
    if known.workload is None:
        return before.blocked_groups, before.dead_lettered_groups
    leases = known.workload.leases
    return sum(each.blocked_groups for each in leases), sum(each.dead_lettered_groups for each in leases)


def _generation(known: Knowledge, queue: Queue, before: int | None) -> int | None:
    inner = known.queues.get(queue)
    return before if inner is None or inner.descriptor is None else inner.descriptor.generation


def adjustment(wanted: Wanted, known: Knowledge) -> Adjustment | None:
    """What became of the shard count; None while that is not known."""
    if known.main is None or any(topic.topic not in known.cursors for topic in known.main.storage_topics):
        return None
    made, running = shard_count(wanted, known), running_count(known)
    if running is not None and made.effective not in (0, running):
        return Adjustment(
            Reason.RESHARD_PENDING,
            f"{made.effective} shards are asked for, and {running} run; they go on as they are",
        )
    return Adjustment(made.reason, made.message)


# Shards


def shards_of(known: Knowledge, count: int, leases: tuple[ShardLease, ...]) -> tuple[ShardStatus, ...]:
    """Each shard: who holds it, and what it owns of the storage topics that are not drained."""
    held: Mapping[int, ShardLease] = {lease.shard: lease for lease in leases}
    return tuple(
        ShardStatus(
            id=shard,
            owner=held[shard].holder if shard in held else None,
            epoch=held[shard].epoch if shard in held else 0,
            assignments=assignments(known.main, undrained(known), shard, count),
        )
        for shard in range(count)
    )


def assignments(
    main: Descriptor | None, indices: tuple[int, ...], shard: int, count: int
) -> tuple[ShardAssignment, ...]:
    """The partitions that a shard owns, per storage topic."""
    if main is None:
        return ()
    return tuple(
        ShardAssignment(
            topic_name=main.storage_topics[index].topic,
            storage_topic_index=index,
            partitions=as_range(
                partitions_of_shard(shard, main.storage_topics[index].layout.partitions, count)
            ),
        )
        for index in indices
    )


def as_range(partitions: range) -> str:
    """0-5, or 3 for a single one; empty for none."""
    if not partitions:
        return ""
    first, last = partitions[0], partitions[-1]
    return str(first) if first == last else f"{first}-{last}"


def listed(shards: tuple[ShardStatus, ...]) -> tuple[ShardStatus, ...]:
    """As much of the list as a status may hold: all, or without assignments, or the beginning of that."""
    if _length(shards) <= MAX_SHARDS_LENGTH:
        return shards
    bare = tuple(shard.model_copy(update={"assignments": ()}) for shard in shards)
    while _length(bare) > MAX_SHARDS_LENGTH:
        bare = bare[: len(bare) * MAX_SHARDS_LENGTH // _length(bare)]
    return bare


def _length(shards: tuple[ShardStatus, ...]) -> int:
    return len(json.dumps([shard.to_wire() for shard in shards]))


# Lag


def lag_of(known: Knowledge) -> Lag | None:
    """What waits, as far as it was counted in this reconciliation; None if it was not."""
    main = known.main
    if main is None or any(topic.topic not in known.cursors for topic in main.storage_topics):
        return None
    queues = {queue: known.queues.get(queue) for queue in Queue}

    def waiting(descriptor: Descriptor | None) -> int:
        topics = () if descriptor is None else descriptor.storage_topics
        return sum(known.cursors[topic.topic].backlog for topic in topics if topic.topic in known.cursors)

    retry, dead = queues[Queue.RETRY], queues[Queue.DEAD_LETTER]
    return Lag(
        main=waiting(main),
        retry=waiting(None if retry is None else retry.descriptor),
        dead_letter=waiting(None if dead is None else dead.descriptor),
    )


def counted(before: Lag | None, found: Lag | None, now: datetime, *groups: tuple[int, int]) -> Lag | None:
    """The lag to write: the one before, unless that is old or far from what was found.

    `groups` are further counts, as they were written and as they were found, that move together with it.
    """
    if found is None:
        return before
    fresh = found.model_copy(update={"observed_at": now.replace(microsecond=0)})
    if before is None or before.observed_at is None:
        return fresh
    pairs = (
        (before.main, found.main),
        (before.retry, found.retry),
        (before.dead_letter, found.dead_letter),
        *groups,
    )
    if all(old == new for old, new in pairs):
        return before
    # That something waits at all, or no longer does, is worth more than how much.
    much = any((old == 0) != (new == 0) or abs(old - new) > max(MUCH, old // 2) for old, new in pairs)
    return fresh if much or now - before.observed_at >= COUNTED_EVERY else before
