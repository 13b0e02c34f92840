"""Carrying out what the plan of a CompositeTopic says, and what each action reveals.

`perform` takes the knowledge and an action, does it in Pulsar, and returns the knowledge with what was
learnt. It decides nothing: every condition here is about what Pulsar answered, not about what should be.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import assert_never

from millrace.api.compositetopic import Retention as WantedRetention
from millrace.controller.connections import Session
from millrace.core.compositetopicactions import (
    Action,
    AdoptTopic,
    ClaimDescriptorTopic,
    CopySubscriptions,
    CreateStorageTopic,
    DeleteTopic,
    InspectDescriptorTopic,
    InspectPartitions,
    InspectStorageTopic,
    Knowledge,
    PartitionFacts,
    PublishDescriptor,
    ReadDescriptor,
    RenewOwner,
    SealPartitions,
    SettlePolicies,
    SwitchFacts,
    TopicFacts,
)
from millrace.core.names import partition_topic_name
from millrace.core.ownership import Owner, Ownership, classify, owner_properties
from millrace.core.positions import EntryId
from millrace.pulsar import descriptors
from millrace.pulsar.admin import Admin, Retention
from millrace.pulsar.descriptors import COMPACTION_CURSOR, COMPACTION_THRESHOLD
from millrace.pulsar.errors import NotFound, NotOurs
from millrace.pulsar.termination import seal_partition

logger = logging.getLogger(__name__)

SEALED_AT_ONCE = 16
"""Partitions under termination at a time: a topic of a thousand must not flood the brokers."""

Progress = Callable[[int, int], Awaitable[None]]
"""Told of a storage topic's index and how many of its partitions are sealed so far."""


class Performer:
    """Acts on one CompositeTopic through one session."""

    def __init__(
        self, session: Session, owner: Owner, retention: WantedRetention | None, progress: Progress
    ) -> None:
        self._session = session
        self._admin: Admin = session.admin
        self._owner = owner
        self._retention = None if retention is None else _in_pulsar(retention)
        self._progress = progress

    async def perform(self, known: Knowledge, action: Action) -> Knowledge:  # noqa: PLR0911, PLR0912 - a table
        """Do one action; raises a PulsarError when Pulsar does not let us."""
        match action:
            case ClaimDescriptorTopic(topic):
                facts = await self._claim_descriptor_topic(topic)
                # What was created just now is empty: there is nothing to read, and publishing checks it
                # anyway.
                read = known.descriptor_read or facts.created
                return replace(known, descriptor_topic=facts, descriptor_read=read)
            case InspectDescriptorTopic(topic):
                return replace(known, descriptor_topic=await self._inspect_descriptor_topic(topic))
            case ReadDescriptor(topic):
                found = await descriptors.read(self._session.client(), topic)
                return replace(known, descriptor=found, descriptor_read=True)
            case CreateStorageTopic(index, topic, partitions):
                return _with_topic(known, index, await self._create(topic, partitions))
            case InspectStorageTopic(index, topic):
                return _with_topic(known, index, await self._inspect(topic))
            case InspectPartitions(index, topic, partitions):
                facts_of = await self._inspect_partitions(topic, partitions)
                return replace(known, partitions={**known.partitions, index: facts_of})
            case AdoptTopic(index, topic):
                properties = owner_properties(self._owner, adopted=True)
                return _with_topic(known, index, await self._mark(known.topics[index], topic, properties))
            case RenewOwner(index, topic):
                properties = owner_properties(self._owner)
                if index is not None:
                    return _with_topic(known, index, await self._mark(known.topics[index], topic, properties))
                assert known.descriptor_topic is not None
                return replace(
                    known, descriptor_topic=await self._mark(known.descriptor_topic, topic, properties)
                )
            case SettlePolicies(index, topic, fresh):
                await self._settle_policies(topic, fresh=fresh)
                return _with_topic(known, index, replace(known.topics[index], settled=True))
            case PublishDescriptor(topic, descriptor, expected):
                await descriptors.publish(
                    self._session.client(), topic, descriptor, expected_generation=expected
                )
                return replace(known, descriptor=descriptor, descriptor_read=True)
            case CopySubscriptions():
                return await self._copy_subscriptions(known, action)
            case SealPartitions(index, topic, partitions):
                sealed = await self._seal(index, topic, partitions)
                facts_so_far = known.switches.get(index, SwitchFacts())
                return _with_switch(known, index, replace(facts_so_far, sealed=sealed))
            case DeleteTopic(topic, partitioned, index):
                if partitioned:
                    await self._admin.delete_partitioned_topic(topic, force=True)
                else:
                    await self._admin.delete_topic(topic, force=True)
                gone = TopicFacts(exists=False)
                if index is None:
                    return replace(known, descriptor_topic=gone)
                return _with_topic(known, index, gone)
            case _:
                assert_never(action)

    async def _claim_descriptor_topic(self, topic: str) -> TopicFacts:
        ours = owner_properties(self._owner)
        found: dict[str, str] | None = None

        def may_use(properties: object) -> bool:
            nonlocal found
            found = dict(properties)  # type: ignore[call-overload]
            return classify(found, self._owner) in (Ownership.OURS, Ownership.OURS_OTHER_UID)

        try:
            await descriptors.ensure_descriptor_topic(self._admin, topic, ours, may_use=may_use)
        except NotOurs:
            # Somebody's, and left alone; the plan says whose.
            return TopicFacts(exists=True, properties=await self._admin.properties(topic))
        created = found is None
        unowned = found is not None and classify(found, self._owner) is Ownership.UNOWNED
        properties = ours if found is None or unowned else found
        return TopicFacts(exists=True, properties=properties, created=created, settled=True)

    async def _inspect_descriptor_topic(self, topic: str) -> TopicFacts:
        try:
            properties = await self._admin.properties(topic)
        except NotFound:
            return TopicFacts(exists=False)
        kept = await self._admin.inactive_policy(topic) is False
        compacted = await self._admin.compaction_threshold(topic) == COMPACTION_THRESHOLD
        held = COMPACTION_CURSOR in await self._admin.subscriptions(topic)
        return TopicFacts(exists=True, properties=properties, settled=kept and compacted and held)

    async def _create(self, topic: str, partitions: int) -> TopicFacts:
        properties = owner_properties(self._owner)
        if await self._admin.create_partitioned_topic(topic, partitions, properties):
            return TopicFacts(True, partitions, properties, created=True)
        facts = await self._inspect(topic)
        # There is a topic, and it is not partitioned.
        return facts if facts.exists else TopicFacts(exists=True, partitions=None)

    async def _inspect(self, topic: str) -> TopicFacts:
        try:
            there = await self._admin.partitioned_topic(topic)
        except NotFound:
            return TopicFacts(exists=False)
        return TopicFacts(True, there.partitions, there.properties)

    async def _inspect_partitions(self, topic: str, partitions: int) -> PartitionFacts:
        limit = asyncio.Semaphore(SEALED_AT_ONCE)

        async def look(partition: int) -> tuple[bool, bool]:
            async with limit:
                stats = await self._admin.internal_stats(partition_topic_name(topic, partition))
            return stats.entries > 0 or any(ledger.entries for ledger in stats.ledgers), stats.terminated

        found = await asyncio.gather(*(look(partition) for partition in range(partitions)))
        return PartitionFacts(
            holds_data=any(data for data, _ in found), terminated=sum(closed for _, closed in found)
        )

    async def _mark(self, facts: TopicFacts, topic: str, properties: dict[str, str]) -> TopicFacts:
        await self._admin.update_properties(topic, properties)
        return replace(facts, properties={**facts.properties, **properties})

    async def _settle_policies(self, topic: str, *, fresh: bool) -> None:
        if fresh or await self._admin.inactive_policy(topic) is not False:
            await self._admin.set_inactive_policy(topic, deletes=False)
        # A producer sends again what was in flight when its connection broke: stored once, or order is lost.
        if fresh or await self._admin.deduplication(topic) is not True:
            await self._admin.set_deduplication(topic, enabled=True)
        if self._retention is not None and (
            fresh or await self._admin.get_retention(topic) != self._retention
        ):
            await self._admin.set_retention(topic, self._retention)

    async def _copy_subscriptions(self, known: Knowledge, action: CopySubscriptions) -> Knowledge:
        names = await self._durable_subscriptions(action.source)
        for name in sorted(names):
            if await self._admin.create_subscription(action.target, name, "earliest"):
                logger.info("created the subscription %s on %s at its beginning", name, action.target)
        facts = known.switches.get(action.index, SwitchFacts())
        copied = (
            replace(facts, cursors_copied_again=True) if action.again else replace(facts, cursors_copied=True)
        )
        return _with_switch(known, action.index, copied)

    async def _durable_subscriptions(self, topic: str) -> set[str]:
        """Of any partition. A reader's subscription is not durable: it keeps its own place."""
        stats = await self._admin.partitioned_stats(topic)
        of_all = [stats, *stats.get("partitions", {}).values()]
        return {
            name
            for one in of_all
            for name, subscription in one.get("subscriptions", {}).items()
            if subscription.get("durable", True)
        }

    async def _seal(self, index: int, topic: str, partitions: int) -> tuple[EntryId, ...]:
        limit = asyncio.Semaphore(SEALED_AT_ONCE)
        done = 0

        async def seal(partition: int) -> EntryId:
            nonlocal done
            async with limit:
                end = await seal_partition(self._admin, partition_topic_name(topic, partition))
            done += 1
            await self._progress(index, done)
            return end

        # All are tried even if one fails: what is sealed stays sealed, and the rest is less work next time.
        ends = await asyncio.gather(*(seal(number) for number in range(partitions)), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return tuple(end for end in ends if isinstance(end, EntryId))


def _with_topic(known: Knowledge, index: int, facts: TopicFacts) -> Knowledge:
    return replace(known, topics={**known.topics, index: facts})


def _with_switch(known: Knowledge, index: int, facts: SwitchFacts) -> Knowledge:
    return replace(known, switches={**known.switches, index: facts})


def _in_pulsar(retention: WantedRetention) -> Retention:
    return Retention(minutes=retention.time.minutes, megabytes=retention.size.mebibytes)
