"""One Subscription: observe, plan, act, until the plan is settled; then say so in the status.

Everything that decides is in `millrace.core.subscriptions`. What is here: which topic, which connection,
whether the Secrets are there, and what to write meanwhile. Between two full reconciliations the pods, the
Leases and the backlog are looked at now and then; nothing else is, unless there is news.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from millrace.api import FINALIZER
from millrace.api.compositetopic import CompositeTopic, DeletionPolicy
from millrace.api.meta import InvalidResourceError, LocalRef, ObjectMeta
from millrace.api.pulsarconnection import PulsarConnection
from millrace.api.reasons import ConditionType, Reason
from millrace.api.subscription import StartType, Subscription, SubscriptionSpec, SubscriptionStatus
from millrace.controller import compositetopics
from millrace.controller.compositetopics import MOST_ROUNDS, STALLED_AGAIN_AFTER
from millrace.controller.connections import Connections, NoConnection, Session
from millrace.controller.failures import verdict_on
from millrace.controller.finalizers import set_finalizer
from millrace.controller.inventory import Inventory, Key
from millrace.controller.kube import Kube, KubeError
from millrace.controller.mountedsecrets import check_mounts
from millrace.controller.queue import Done, Outcome, Retry
from millrace.controller.riskregister import RiskRegister
from millrace.controller.statuses import StatusWriter
from millrace.controller.subscriptionperforming import Performer, StillRunning
from millrace.core import names, subscriptionstatus
from millrace.core.compositetopics import Settled
from millrace.core.conditions import Risk, Verdict, conditions
from millrace.core.errors import InvalidName
from millrace.core.ownership import Owner
from millrace.core.subscriptionactions import ApplyWorkload, Knowledge, Queue, Start, Wanted
from millrace.core.subscriptionconfigs import mounts, shard_config
from millrace.core.subscriptiondeletions import plan_deletion
from millrace.core.subscriptionobjects import Manifest, Platform, manifests
from millrace.core.subscriptions import plan, running_count
from millrace.pulsar.errors import PulsarError, Unauthorized

logger = logging.getLogger(__name__)

PLURAL = "subscriptions"
KIND = "Subscription"
LOOK_EVERY = 60.0
"""How often pods, Leases and backlog are looked at."""
LOOK_SOON = 5.0
"""The same while shards wait for a pod, or pods are to stop."""


@dataclass(frozen=True, slots=True)
class Context:
    """What every reconciliation needs."""

    kube: Kube
    inventory: Inventory
    connections: Connections
    risks: RiskRegister
    statuses: StatusWriter
    platform: Platform
    cluster_id: str
    resync: float


@dataclass(frozen=True, slots=True)
class Place:
    """What a Subscription is about, found and allowed."""

    connection: PulsarConnection
    wanted: Wanted
    topic: CompositeTopic | None
    """None when it is deleted after its topic was."""

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes all that was found out about it stale when it changes."""
        topic, connection = self.topic, self.connection.metadata
        about = () if topic is None else (topic.metadata.uid, topic.status.descriptor_generation)
        return (self.wanted, connection.uid, connection.generation, *about)


@dataclass(frozen=True, slots=True)
class Memory:
    """The end of the last full reconciliation."""

    generation: int
    identity: tuple[object, ...]
    known: Knowledge
    at: float


class Reconciler:
    """Reconciles the object behind a key. What it remembers only saves work: it is dropped with any news."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._memories: dict[Key, Memory] = {}
        self._running: set[Key] = set()
        """Being reconciled, with no news since that began."""

    def forget(self, key: Key) -> None:
        """There is news of the object, or of what belongs to it: everything is to be looked at."""
        self._memories.pop(key, None)
        self._running.discard(key)

    async def reconcile(self, key: Key) -> Outcome:
        """Bring Pulsar and Kubernetes to what the object says, or say what stands in the way."""
        body = self._context.inventory.get(key)
        if body is None:
            return Done()
        try:
            subscription = Subscription.parse(body)
        except InvalidResourceError as error:
            return await self._unreadable(key, body, error)
        self._running.add(key)
        run = _Reconciliation(self._context, key, subscription, self._memories.pop(key, None))
        try:
            outcome = await run.run()
            if run.memory is not None and key in self._running:
                self._memories[key] = run.memory
        except KubeError as error:
            if error.not_found and key not in self._context.inventory:
                return Done()
            return Retry("the object changed meanwhile" if error.conflict else str(error))
        finally:
            self._running.discard(key)
        return outcome

    async def _unreadable(self, key: Key, body: Mapping[str, object], error: InvalidResourceError) -> Outcome:
        metadata = ObjectMeta.model_validate(body["metadata"])
        verdict = Verdict(Reason.INVALID_SPEC, f"this version cannot read the object: {error}")
        raw = body.get("status")
        before = SubscriptionStatus.model_validate(raw) if isinstance(raw, dict) else SubscriptionStatus()
        made = conditions(verdict, before.conditions, generation=metadata.generation, now=datetime.now(UTC))
        status = before.model_copy(update={"conditions": made, "observed_generation": metadata.generation})
        try:
            await self._context.statuses.write(key, KIND, metadata, before.conditions, status)
        except KubeError as failure:
            return Retry(str(failure))
        return Done(STALLED_AGAIN_AFTER)


class _Reconciliation:
    """One run over one object."""

    def __init__(self, context: Context, key: Key, subscription: Subscription, memory: Memory | None) -> None:
        self._context = context
        self._key = key
        self._subscription = subscription
        self._metadata = subscription.metadata
        self._before = memory
        self.memory: Memory | None = None
        self._wanted: Wanted | None = None
        self._known = Knowledge()
        self._risks: tuple[Risk, ...] | None = None
        self._status = subscription.status

    async def run(self) -> Outcome:
        """The whole of it."""
        meta = self._metadata
        if meta.deletion_timestamp is not None and FINALIZER not in meta.finalizers:
            return Done()
        if meta.paused:
            await self._say(Verdict(Reason.PAUSED, "remove the annotation millrace.dev/paused to go on"))
            return Done()
        deletes = self._subscription.spec.deletion_policy is DeletionPolicy.DELETE
        if deletes != (FINALIZER in meta.finalizers) and (meta.deletion_timestamp is None or not deletes):
            # Before anything is created: what is created must not be forgotten by a deletion.
            await self._set_finalizer(present=deletes)
            return Done(0.0)
        return await self._guarded(delete=meta.deletion_timestamp is not None)

    async def _guarded(self, *, delete: bool) -> Outcome:  # noqa: PLR0911 - a table
        """Failures become conditions; a refused token is read again once, for it may have rotated."""
        for afresh in (False, True):
            try:
                place = self._find(delete=delete)
                if place is None:
                    await self._set_finalizer(present=False)
                    return Done()
                session = await self._context.connections.session(place.connection, afresh=afresh)
                if delete:
                    return await self._delete(session, place)
                return await self._converge(session, place)
            except InvalidName as error:
                await self._say(Verdict(Reason.INVALID_SPEC, str(error)))
                return Done(STALLED_AGAIN_AFTER)
            except StillRunning as waiting:
                await self._say(Verdict(Reason.DELETING, str(waiting)))
                return Done(LOOK_SOON)
            except Unauthorized as error:
                if afresh:
                    await self._say(verdict_on(error))
                    return Retry(str(error), error.retry_after or 0.0)
                self._known = Knowledge()
            except (PulsarError, NoConnection) as error:
                await self._say(verdict_on(error))
                return Retry(str(error), getattr(error, "retry_after", None) or 0.0)
        raise AssertionError("the second round returns or raises")

    def _find(self, *, delete: bool) -> Place | None:
        """The topic and the connection; None when there is nothing to delete."""
        meta, reference = self._metadata, self._subscription.spec.topic_ref
        namespace = reference.namespace or meta.namespace
        topic = self._topic(namespace, reference.name)
        if topic is not None and namespace != meta.namespace:
            allowed = meta.namespace in topic.spec.allowed_namespaces
            if not allowed and not delete:
                raise NoConnection(
                    Reason.TOPIC_NOT_ALLOWED,
                    f"the CompositeTopic {namespace}/{reference.name} does not list {meta.namespace} in its "
                    "allowedNamespaces",
                )
        connection = self._connection(topic, namespace, delete=delete)
        if connection is None:
            return None
        if topic is not None:
            pulsar_namespace = topic.spec.pulsar_namespace
        else:
            assert delete, "only a deletion goes on without its topic"
            pulsar_namespace = self._subscription.status.pulsar_namespace or ""
        if not connection.spec.permits(pulsar_namespace):
            raise NoConnection(
                Reason.NAMESPACE_NOT_ALLOWED,
                f"the PulsarConnection {connection.metadata.name} does not list {pulsar_namespace}, only "
                f"{', '.join(connection.spec.pulsar_namespaces)}",
            )
        self._wanted = wanted_of(
            self._subscription,
            pulsar_namespace,
            cluster_id=self._context.cluster_id,
            connection=connection.metadata.name,
        )
        return Place(connection, self._wanted, topic)

    def _topic(self, namespace: str, name: str) -> CompositeTopic | None:
        body = self._context.inventory.get((compositetopics.PLURAL, namespace, name))
        if body is None:
            return None
        try:
            return CompositeTopic.parse(body)
        except InvalidResourceError as error:
            raise NoConnection(
                Reason.WAITING_FOR_TOPIC, f"the CompositeTopic {namespace}/{name} cannot be read: {error}"
            ) from error

    def _connection(
        self, topic: CompositeTopic | None, namespace: str, *, delete: bool
    ) -> PulsarConnection | None:
        meta, status = self._metadata, self._subscription.status
        reference = None
        if delete:
            if status.connection is None:
                return None  # nothing was ever begun
            reference = LocalRef(name=status.connection)
        elif topic is None:
            name = self._subscription.spec.topic_ref.name
            raise NoConnection(
                Reason.TOPIC_NOT_FOUND,
                f"there is no CompositeTopic {name} in {namespace}, or it is not watched",
            )
        elif not topic.status.descriptor_generation:
            raise NoConnection(
                Reason.WAITING_FOR_TOPIC,
                f"the CompositeTopic {namespace}/{topic.metadata.name} has no descriptor yet",
            )
        elif namespace == meta.namespace:
            reference = topic.spec.connection_ref
        # The pods run here, and mount what is here: a topic elsewhere is read through our own connection.
        return self._context.connections.resolve(meta.namespace, reference)

    async def _converge(self, session: Session, place: Place) -> Outcome:
        performer = self._performer(session, place)
        before, now = self._before, time.monotonic()
        if (
            before is not None
            and before.generation == self._metadata.generation
            and before.identity == place.identity
            and now - before.at < self._context.resync
        ):
            workload = await performer.observe_workload()
            # A Lease that somebody deleted would leave its shard without an owner until the next resync.
            whole = len(workload.leases) >= (running_count(before.known) or 0)
            self._known = replace(before.known, cursors={}, workload=workload if whole else None)
            since = before.at
        else:
            await check_mounts(
                self._context.kube,
                self._metadata.namespace,
                place.connection,
                mounts(self._subscription, place.connection.spec),
            )
            since = now
        for _ in range(MOST_ROUNDS):
            step = plan(place.wanted, self._known)
            if isinstance(step, Settled):
                pulsar_namespace = place.wanted.pulsar_namespace
                self._risks = await self._context.risks.of(session, pulsar_namespace)
                await self._say(step.verdict)
                if step.verdict.condition is ConditionType.STALLED:
                    return Done(STALLED_AGAIN_AFTER)
                self.memory = Memory(self._metadata.generation, place.identity, self._known, since)
                soon = step.verdict.condition is ConditionType.RECONCILING
                return Done(LOOK_SOON if soon else min(LOOK_EVERY, self._context.resync))
            await self._say_meanwhile(step.verdict)
            self._known = await performer.perform_all(self._known, step.actions)
            logger.debug("%d actions: %s", len(step.actions), step.verdict.message)
        raise AssertionError(f"no end after {MOST_ROUNDS} rounds")

    async def _delete(self, session: Session, place: Place) -> Outcome:
        performer = self._performer(session, place)
        for _ in range(MOST_ROUNDS):
            step = plan_deletion(place.wanted, self._known)
            if step is None:
                await self._set_finalizer(present=False)
                return Done()
            await self._say_meanwhile(step.verdict)
            self._known = await performer.perform_all(self._known, step.actions)
        raise AssertionError(f"no end after {MOST_ROUNDS} rounds")

    def _performer(self, session: Session, place: Place) -> Performer:
        subscription, connection, platform = (
            self._subscription,
            place.connection.spec,
            self._context.platform,
        )

        def objects(action: ApplyWorkload) -> tuple[Manifest, ...]:
            config = shard_config(subscription, connection, place.wanted, action.shard_count)
            mounted = mounts(subscription, connection)
            return manifests(subscription, config, mounted, platform, suspended=action.suspended)

        return Performer(self._context.kube, session, place.wanted, objects)

    async def _say_meanwhile(self, verdict: Verdict) -> None:
        """A look at something that is in order is not worth a word; work on it is."""
        said = next((each for each in self._status.conditions if each.type == ConditionType.READY), None)
        current = self._status.observed_generation == self._metadata.generation
        if current and said is not None:
            if verdict.reason is Reason.CREATING and (
                said.status == "True" or said.reason in (Reason.STARTING_SHARDS, Reason.CREATING)
            ):
                return
            if said.reason == verdict.reason:
                return
        await self._say(verdict)

    async def _say(self, verdict: Verdict) -> None:
        generation, now = self._metadata.generation, datetime.now(UTC)
        before, wanted, known = self._status, self._wanted, self._known
        made = conditions(
            verdict,
            before.conditions,
            generation=generation,
            now=now,
            risks=self._risks,
            adjustment=None if wanted is None else subscriptionstatus.adjustment(wanted, known),
        )
        if wanted is None:
            status = before.model_copy(update={"conditions": made, "observed_generation": generation})
        else:
            status = subscriptionstatus.status(wanted, known, made, before, generation=generation, now=now)
        await self._context.statuses.write(self._key, KIND, self._metadata, before.conditions, status)
        self._status = status

    async def _set_finalizer(self, *, present: bool) -> None:
        context = self._context
        await set_finalizer(context.kube, context.inventory, self._key, self._metadata, present=present)


def wanted_of(
    subscription: Subscription, pulsar_namespace: str, *, cluster_id: str, connection: str
) -> Wanted:
    """The spec under full names; raises InvalidName where no topic can be called so."""
    meta, spec, status = subscription.metadata, subscription.spec, subscription.status
    namespace = spec.topic_ref.namespace or meta.namespace
    partitions = {Queue.RETRY: spec.retry_partitions, Queue.DEAD_LETTER: spec.dead_letter_partitions}
    published = {
        Queue.RETRY: status.retry_descriptor_generation,
        Queue.DEAD_LETTER: status.dead_letter_descriptor_generation,
    }
    return Wanted(
        owner=Owner(cluster_id, meta.namespace, meta.name, meta.uid, KIND),
        pulsar_namespace=pulsar_namespace,
        descriptor_topic=names.descriptor_topic_name(pulsar_namespace, namespace, spec.topic_ref.name),
        cursor=names.cursor_name(cluster_id, meta.namespace, meta.name),
        shard_count=spec.shard_count,
        connection=connection,
        allow_uneven=spec.allow_uneven,
        start=_start(spec),
        queue_partitions={queue: count for queue, count in partitions.items() if count is not None},
        published={queue: generation for queue, generation in published.items() if generation},
        begun=status.effective_shard_count is not None,
        generation=status.shard_generation,
    )


def _start(spec: SubscriptionSpec) -> Start | int:
    if spec.start_from.type is StartType.TIME and spec.start_from.time is not None:
        return int(spec.start_from.time.timestamp() * 1000)
    return Start.LATEST if spec.start_from.type is StartType.LATEST else Start.EARLIEST
