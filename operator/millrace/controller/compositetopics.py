"""One CompositeTopic: observe, plan, act, until the plan is settled; then say so in the status.

Everything that decides is in `millrace.core.compositetopics`. What is here: which connection, which
credentials, what to write into the status meanwhile, and how the finalizer comes and goes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from millrace.api import FINALIZER
from millrace.api.compositetopic import CompositeTopic, CompositeTopicStatus, DeletionPolicy
from millrace.api.meta import Condition, InvalidResourceError, ObjectMeta
from millrace.api.reasons import ConditionType, Reason
from millrace.controller.connections import Connections, NoConnection, Session
from millrace.controller.failures import verdict_on
from millrace.controller.finalizers import set_finalizer
from millrace.controller.inventory import Inventory, Key
from millrace.controller.kube import Kube, KubeError
from millrace.controller.performing import Performer
from millrace.controller.queue import Done, Outcome, Retry
from millrace.controller.riskregister import RiskRegister
from millrace.controller.statuses import StatusWriter
from millrace.core import compositetopicstatus, names
from millrace.core.compositetopicactions import DeleteTopic, Knowledge, Wanted, WantedTopic
from millrace.core.compositetopicdeletions import plan_deletion
from millrace.core.compositetopics import Act, Settled, plan
from millrace.core.conditions import Risk, Verdict, conditions, worth_saying
from millrace.core.errors import InvalidName
from millrace.core.ownership import Owner
from millrace.core.routing import Routing
from millrace.pulsar.errors import PulsarError, Unauthorized

logger = logging.getLogger(__name__)

PLURAL = "compositetopics"
KIND = "CompositeTopic"
STALLED_AGAIN_AFTER = 60.0
"""What only a person can mend is looked at again now and then: nobody tells us when it is mended."""
PROGRESS_EVERY = 1.0
MOST_ROUNDS = 1000
"""Far above what any plan needs (64 storage topics, six rounds a switch): beyond it there is a bug."""


@dataclass(frozen=True, slots=True)
class Context:
    """What every reconciliation needs."""

    kube: Kube
    inventory: Inventory
    connections: Connections
    risks: RiskRegister
    statuses: StatusWriter
    cluster_id: str
    resync: float


class Reconciler:
    """Reconciles the object behind a key; knows nothing between two calls."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def reconcile(self, key: Key) -> Outcome:
        """Bring Pulsar to what the object says, or say in its status what stands in the way."""
        body = self._context.inventory.get(key)
        if body is None:
            return Done()
        try:
            topic = CompositeTopic.parse(body)
        except InvalidResourceError as error:
            return await self._unreadable(key, body, error)
        try:
            return await _Reconciliation(self._context, key, topic).run()
        except KubeError as error:
            if error.not_found:
                return Done()  # it was deleted meanwhile, and the watch will say so
            if error.conflict:
                # The watch brings the newer version, and with it the key.
                return Retry("the object changed meanwhile")
            return Retry(str(error))

    async def _unreadable(self, key: Key, body: Mapping[str, object], error: InvalidResourceError) -> Outcome:
        metadata = ObjectMeta.model_validate(body["metadata"])
        verdict = Verdict(Reason.INVALID_SPEC, f"this version cannot read the object: {error}")
        raw = body.get("status")
        before = CompositeTopicStatus.model_validate(raw) if isinstance(raw, dict) else CompositeTopicStatus()
        made = conditions(verdict, before.conditions, generation=metadata.generation, now=datetime.now(UTC))
        status = before.model_copy(update={"conditions": made, "observed_generation": metadata.generation})
        try:
            await self._context.statuses.write(key, KIND, metadata, before.conditions, status)
        except KubeError as failure:
            return Retry(str(failure))
        return Done(STALLED_AGAIN_AFTER)


class _Reconciliation:
    """One run over one object."""

    def __init__(self, context: Context, key: Key, topic: CompositeTopic) -> None:
        self._context = context
        self._key = key
        self._topic = topic
        self._metadata = topic.metadata
        self._wanted: Wanted | None = None
        self._known = Knowledge()
        self._risks: tuple[Risk, ...] | None = None
        self._conditions = topic.status.conditions
        self._sealed: dict[int, int] = {}
        self._told_progress = 0.0
        self._writing = asyncio.Lock()
        self._sealing: Verdict | None = None

    async def run(self) -> Outcome:
        """The whole of it."""
        meta = self._metadata
        if meta.deletion_timestamp is not None and FINALIZER not in meta.finalizers:
            return Done()
        if meta.paused:
            await self._say(Verdict(Reason.PAUSED, "remove the annotation millrace.dev/paused to go on"))
            return Done()
        deletes = self._topic.spec.deletion_policy is DeletionPolicy.DELETE
        if not deletes and FINALIZER in meta.finalizers:
            await self._set_finalizer(present=False)
            return Done(0.0)
        if meta.deletion_timestamp is not None:
            return await self._guarded(delete=True)
        if deletes and FINALIZER not in meta.finalizers:
            # Before anything is created: what is created must not be forgotten by a deletion.
            await self._set_finalizer(present=True)
            return Done(0.0)
        return await self._guarded(delete=False)

    async def _guarded(self, *, delete: bool) -> Outcome:
        """Failures become conditions; a refused token is read again once, for it may have rotated."""
        for afresh in (False, True):
            try:
                session = await self._open(afresh=afresh)
                return await (self._delete(session) if delete else self._converge(session))
            except InvalidName as error:
                await self._say(Verdict(Reason.INVALID_SPEC, str(error)))
                return Done(STALLED_AGAIN_AFTER)
            except Unauthorized as error:
                if afresh:
                    await self._say(verdict_on(error))
                    return Retry(str(error), error.retry_after or 0.0)
                self._known = Knowledge()
            except (PulsarError, NoConnection) as error:
                await self._say(verdict_on(error))
                return Retry(str(error), getattr(error, "retry_after", None) or 0.0)
        raise AssertionError("the second round returns or raises")

    async def _open(self, *, afresh: bool) -> Session:
        spec = self._topic.spec
        self._wanted = wanted_of(self._topic, self._context.cluster_id)
        connection = self._context.connections.resolve(self._metadata.namespace, spec.connection_ref)
        if not connection.spec.permits(spec.pulsar_namespace):
            allowed = ", ".join(connection.spec.pulsar_namespaces)
            raise NoConnection(
                Reason.NAMESPACE_NOT_ALLOWED,
                f"the PulsarConnection {connection.metadata.name} does not list {spec.pulsar_namespace}, "
                f"only {allowed}",
            )
        return await self._context.connections.session(connection, afresh=afresh)

    async def _converge(self, session: Session) -> Outcome:
        assert self._wanted is not None
        performer = Performer(session, self._wanted.owner, self._topic.spec.retention, self._progress)
        for _ in range(MOST_ROUNDS):
            step = plan(self._wanted, self._known)
            if isinstance(step, Settled):
                self._risks = await self._context.risks.of(session, self._topic.spec.pulsar_namespace)
                await self._say(step.verdict)
                stalled = step.verdict.condition is ConditionType.STALLED
                return Done(STALLED_AGAIN_AFTER if stalled else self._context.resync)
            await self._say_meanwhile(step.verdict)
            await self._act(performer, step)
        raise AssertionError(f"no end after {MOST_ROUNDS} rounds")

    async def _delete(self, session: Session) -> Outcome:
        assert self._wanted is not None
        performer = Performer(session, self._wanted.owner, None, self._progress)
        step = plan_deletion(self._wanted, self._known)
        await self._say_meanwhile(Verdict(Reason.DELETING, "looking for topics to delete"))
        for _ in range(MOST_ROUNDS):
            if step is None:
                await self._set_finalizer(present=False)
                return Done()
            deleting = any(isinstance(action, DeleteTopic) for action in step.actions)
            if deleting:
                await self._say(step.verdict)
            await self._act(performer, step)
            if deleting:
                # What is left is found out anew, so that nothing is believed to be gone that is not.
                self._known = replace(self._known, topics={}, descriptor_topic=None)
            step = plan_deletion(self._wanted, self._known)
        raise AssertionError(f"no end after {MOST_ROUNDS} rounds")

    async def _act(self, performer: Performer, step: Act) -> None:
        self._sealing = step.verdict
        for action in step.actions:
            self._known = await performer.perform(self._known, action)
            logger.debug("%s: %s", type(action).__name__, step.verdict.message)

    async def _say_meanwhile(self, verdict: Verdict) -> None:
        status = self._topic.status
        if verdict.reason is Reason.CREATING and status.descriptor_generation:
            verdict = Verdict(Reason.UPDATING, verdict.message)
        said = next((each.reason for each in self._conditions if each.type == ConditionType.READY), None)
        afresh = (
            status.observed_generation != self._metadata.generation and self._conditions is status.conditions
        )
        if worth_saying(verdict, None if said is None else Reason(said), afresh=afresh):
            await self._say(verdict)

    async def _progress(self, index: int, sealed: int) -> None:
        self._sealed[index] = sealed
        if time.monotonic() - self._told_progress >= PROGRESS_EVERY and self._sealing is not None:
            self._told_progress = time.monotonic()
            await self._say(self._sealing)

    async def _say(self, verdict: Verdict) -> None:
        async with self._writing:
            before = self._conditions
            generation = self._metadata.generation
            made = conditions(
                verdict, before, generation=generation, now=datetime.now(UTC), risks=self._risks
            )
            status = self._status(made)
            await self._context.statuses.write(self._key, KIND, self._metadata, before, status)
            self._conditions = made

    def _status(self, made: tuple[Condition, ...]) -> CompositeTopicStatus:
        wanted, descriptor, generation = self._wanted, self._known.descriptor, self._metadata.generation
        before = self._topic.status
        if wanted is None or (descriptor is None and before.storage_topics):
            # Nothing new is known of the descriptor: what was said of it stays.
            return before.model_copy(update={"conditions": made, "observed_generation": generation})
        return compositetopicstatus.status(
            wanted, descriptor, made, generation=generation, sealed_so_far=self._sealed
        )

    async def _set_finalizer(self, *, present: bool) -> None:
        context = self._context
        await set_finalizer(context.kube, context.inventory, self._key, self._metadata, present=present)


def wanted_of(topic: CompositeTopic, cluster_id: str) -> Wanted:
    """The spec under full names; raises InvalidName where no topic can be called so."""
    meta, spec = topic.metadata, topic.spec
    topics = tuple(
        WantedTopic(
            index=index,
            topic=(
                names.full_name(spec.pulsar_namespace, entry.topic_name)
                if entry.topic_name
                else names.storage_topic_name(spec.pulsar_namespace, meta.namespace, meta.name, index)
            ),
            partitions=entry.partitions,
            adopt=entry.adopt,
        )
        for index, entry in enumerate(spec.storage_topics)
    )
    return Wanted(
        owner=Owner(cluster_id, meta.namespace, meta.name, meta.uid),
        descriptor_topic=names.descriptor_topic_name(spec.pulsar_namespace, meta.namespace, meta.name),
        routing=Routing(spec.routing.value),
        topics=topics,
        produce_pointer=spec.produce_pointer,
        published_generation=topic.status.descriptor_generation or 0,
    )
