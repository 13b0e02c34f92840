"""Carrying out what the plan of a Subscription says, and what each action reveals.

Like `performing`, which does the queues: it decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, assert_never

from millrace.controller.connections import Session
from millrace.controller.kube import Kube
from millrace.controller.performing import Performer as TopicPerformer
from millrace.core import compositetopicactions as topics
from millrace.core import shardleases
from millrace.core.names import partition_topic_name
from millrace.core.ownership import owner_properties
from millrace.core.subscriptionactions import (
    SHARD_COUNT,
    Action,
    ApplyWorkload,
    CreateCursors,
    CursorFacts,
    DeleteCursors,
    DeleteTable,
    EnsureTable,
    InspectCursors,
    InspectTable,
    Knowledge,
    LookAtQueue,
    OnQueue,
    ReadMain,
    RenewTable,
    Start,
    StopWorkload,
    TableFacts,
    Wanted,
    Workload,
)
from millrace.core.subscriptionobjects import (
    SHARD_GENERATION,
    SUBSCRIPTION,
    Manifest,
    deployment_name,
)
from millrace.pulsar import descriptors
from millrace.pulsar.errors import Conflict, NotFound
from millrace.pulsar.statetables import ensure_state_topic

AT_ONCE = 16
"""Requests under way for one Subscription."""

Objects = Callable[[ApplyWorkload], tuple[Manifest, ...]]


class StillRunning(Exception):  # noqa: N818 - it is what happened
    """The pods are not gone yet; the message says so."""


class Performer:
    """Acts on one Subscription through one session with Pulsar and one with Kubernetes."""

    def __init__(self, kube: Kube, session: Session, wanted: Wanted, objects: Objects) -> None:
        self._kube = kube
        self._session = session
        self._admin = session.admin
        self._wanted = wanted
        self._objects = objects
        self._topics = TopicPerformer(session, wanted.owner, None, _ignore)
        self._limit = asyncio.Semaphore(AT_ONCE)

    async def perform_all(self, known: Knowledge, actions: tuple[Action, ...]) -> Knowledge:
        """Do the actions of one plan. Looking at many topics is done at once, all else in turn."""
        looks = [action for action in actions if isinstance(action, InspectCursors | InspectTable)]
        if len(looks) == len(actions) > 1:
            found = await asyncio.gather(*(self._gently(known, action) for action in looks))
            for one in found:
                known = replace(
                    known, cursors={**known.cursors, **one.cursors}, tables={**known.tables, **one.tables}
                )
            return known
        for action in actions:
            known = await self.perform(known, action)
        return known

    async def _gently(self, known: Knowledge, action: Action) -> Knowledge:
        async with self._limit:
            return await self.perform(known, action)

    async def perform(self, known: Knowledge, action: Action) -> Knowledge:  # noqa: PLR0911, PLR0912 - a table
        """Do one action; raises a PulsarError or a KubeError when it is not let."""
        match action:
            case ReadMain(topic):
                exists = await self._exists(topic)
                found = await descriptors.read(self._session.client(), topic) if exists else None
                return replace(known, main=found, main_read=True)
            case InspectCursors(topic, partitions):
                return _with_cursors(known, topic, await self._inspect_cursors(topic, partitions))
            case CreateCursors(topic, partitions):
                await self._create_cursors(action)
                return _with_cursors(known, topic, await self._inspect_cursors(topic, partitions))
            case LookAtQueue(queue, topic):
                inner = await self._look_at_queue(topic, self._wanted.published.get(queue, 0))
                return replace(known, queues={**known.queues, queue: inner})
            case OnQueue(queue, inner_action):
                before = known.queues.get(queue, topics.Knowledge())
                after = await self._topics.perform(before, inner_action)
                return replace(known, queues={**known.queues, queue: after})
            case InspectTable(shard, topic):
                return _with_table(known, shard, await self._inspect_table(topic))
            case EnsureTable(shard, topic, count):
                return _with_table(known, shard, await self._ensure_table(topic, count))
            case RenewTable(shard, topic):
                properties = owner_properties(self._wanted.owner)
                await self._admin.update_properties(topic, properties)
                facts = known.tables[shard]
                renewed = replace(facts, properties={**facts.properties, **properties})
                return _with_table(known, shard, renewed)
            case ApplyWorkload():
                return replace(known, workload=await self._apply(action))
            case StopWorkload():
                await self._stop()
                return replace(known, workload=Workload())
            case DeleteCursors(topic):
                await self._delete_cursors(topic)
                return _with_cursors(known, topic, CursorFacts())
            case DeleteTable(shard, topic):
                await self._admin.delete_topic(topic, force=True)
                return _with_table(known, shard, TableFacts(exists=False))
            case _:
                assert_never(action)

    async def observe_workload(self) -> Workload:
        """The pods and Leases as they are; changes nothing."""
        meta = self._wanted.owner
        name = deployment_name(meta.name, self._wanted.generation)
        deployment = await self._kube.read_deployment(meta.namespace, name)
        return await self._workload(deployment or {})

    # Pulsar

    async def _exists(self, topic: str) -> bool:
        """Reading a topic that is not there would make the broker create it."""
        try:
            await self._admin.properties(topic)
        except NotFound:
            return False
        return True

    async def _inspect_cursors(self, topic: str, partitions: int) -> CursorFacts:
        stats = await self._admin.partitioned_stats(topic)
        found = {
            int(name.rpartition("-")[2]): one.get("subscriptions", {}).get(self._wanted.cursor)
            for name, one in stats.get("partitions", {}).items()
        }
        backlog = sum(int(cursor["msgBacklog"]) for cursor in found.values() if cursor is not None)
        missing = tuple(number for number in range(partitions) if found.get(number) is None)
        return CursorFacts(missing, backlog)

    async def _create_cursors(self, action: CreateCursors) -> None:
        position: Any = "latest" if action.start is Start.LATEST else "earliest"
        whole = len(action.missing) == action.partitions
        where = (
            [action.topic]
            if whole
            else [partition_topic_name(action.topic, number) for number in action.missing]
        )
        for topic in where:
            await self._admin.create_subscription(topic, self._wanted.cursor, position)
            if not isinstance(action.start, Start):
                await self._admin.reset_subscription(topic, self._wanted.cursor, action.start)

    async def _delete_cursors(self, topic: str) -> None:
        # Pulsar knows no deletion from what is not there: a topic that is gone took its cursors with it.
        await self._admin.delete_subscription(topic, self._wanted.cursor, force=True)

    async def _look_at_queue(self, topic: str, published: int) -> topics.Knowledge:
        known = await self._topics.perform(topics.Knowledge(), topics.InspectDescriptorTopic(topic))
        assert known.descriptor_topic is not None
        if known.descriptor_topic.exists:
            return await self._topics.perform(known, topics.ReadDescriptor(topic))
        # One that was never there is to be created; one that was is lost, and the plan says so.
        return known if published else topics.Knowledge()

    async def _inspect_table(self, topic: str) -> TableFacts:
        try:
            return TableFacts(exists=True, properties=await self._admin.properties(topic))
        except NotFound:
            return TableFacts(exists=False)

    async def _ensure_table(self, topic: str, count: int) -> TableFacts:
        properties = {**owner_properties(self._wanted.owner), SHARD_COUNT: str(count)}
        try:
            await ensure_state_topic(self._admin, topic, properties)
        except Conflict:
            return TableFacts(exists=True, refused=True)
        return TableFacts(exists=True, properties=properties, settled=True)

    # Kubernetes

    async def _apply(self, action: ApplyWorkload) -> Workload:
        document: dict[str, Any] = {}
        for manifest in self._objects(action):
            document = await self._kube.apply_object(manifest)
        return await self._workload(document)

    async def _workload(self, deployment: dict[str, Any]) -> Workload:
        owner = self._wanted.owner
        labels = {SUBSCRIPTION: owner.name, SHARD_GENERATION: str(self._wanted.generation)}
        leases = (shardleases.parse(item) for item in await self._kube.list_leases(owner.namespace, labels))
        return Workload(
            leases=tuple(sorted((each for each in leases if each is not None), key=lambda each: each.shard)),
            pods_wanted=int((deployment.get("spec") or {}).get("replicas", 0)),
            pods_available=int((deployment.get("status") or {}).get("availableReplicas", 0)),
        )

    async def _stop(self) -> None:
        owner = self._wanted.owner
        name = deployment_name(owner.name, self._wanted.generation)
        found = await self._kube.read_deployment(owner.namespace, name)
        if found is None:
            return
        if "deletionTimestamp" not in found["metadata"]:
            await self._kube.delete_deployment(owner.namespace, name)
        pods = int((found.get("status") or {}).get("replicas", 0))
        raise StillRunning(f"waiting for the {pods} pods of the Deployment {name} to stop")


async def _ignore(index: int, sealed: int) -> None:
    """A queue's storage topics are sealed by nobody here."""


def _with_cursors(known: Knowledge, topic: str, facts: CursorFacts) -> Knowledge:
    return replace(known, cursors={**known.cursors, topic: facts})


def _with_table(known: Knowledge, shard: int, facts: TableFacts) -> Knowledge:
    return replace(known, tables={**known.tables, shard: facts})
