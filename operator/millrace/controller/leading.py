"""What the leading replica does: watch, keep an inventory, reconcile from a queue, audit the watch."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

import kopf

from millrace.api.meta import InvalidResourceError
from millrace.api.pulsarconnection import PulsarConnection
from millrace.controller import (
    compositetopics,
    defaultconnections,
    handlers,
    metrics,
    pulsarconnections,
    riskregister,
    subscriptions,
)
from millrace.controller.connections import Connections
from millrace.controller.dependencies import Dependencies
from millrace.controller.events import Events
from millrace.controller.health import Health
from millrace.controller.inventory import Body, Inventory, Key, key_of
from millrace.controller.kube import Kube, KubeError
from millrace.controller.queue import Done, Outcome, WorkQueue
from millrace.controller.riskregister import RiskRegister
from millrace.controller.settings import Settings
from millrace.controller.statuses import StatusWriter
from millrace.core.subscriptionobjects import Platform
from millrace.logs import OBJECT

logger = logging.getLogger(__name__)

KINDS = {
    pulsarconnections.PLURAL: pulsarconnections.KIND,
    compositetopics.PLURAL: compositetopics.KIND,
    subscriptions.PLURAL: subscriptions.KIND,
}
FIRST_AUDITS_EVERY = 0.5
CONNECTION_RESYNC = 60.0


@dataclass(frozen=True, slots=True)
class _Measurements:
    def waited(self, key: Key, seconds: float) -> None:
        metrics.QUEUE_WAIT_SECONDS.labels(KINDS[key[0]]).observe(seconds)

    def worked(self, key: Key, seconds: float, outcome: str) -> None:
        metrics.RECONCILES.labels(KINDS[key[0]], outcome).inc()
        metrics.RECONCILE_SECONDS.labels(KINDS[key[0]]).observe(seconds)


class Leader:
    """One term of leadership, from the first listing to its end."""

    def __init__(self, settings: Settings, kube: Kube, health: Health, cluster_id: str) -> None:
        self._settings = settings
        self._kube = kube
        self._health = health
        self._inventory = Inventory()
        self._connections = Connections(kube)
        statuses = StatusWriter(kube, self._inventory, Events(kube, settings.identity))
        # Who compares more often wants to know more often.
        risks = RiskRegister(min(riskregister.GOOD_FOR, settings.resync_seconds))
        self._topics = compositetopics.Reconciler(
            compositetopics.Context(
                kube=kube,
                inventory=self._inventory,
                connections=self._connections,
                risks=risks,
                statuses=statuses,
                cluster_id=cluster_id,
                resync=settings.resync_seconds,
            )
        )
        self._subscriptions = subscriptions.Reconciler(
            subscriptions.Context(
                kube=kube,
                inventory=self._inventory,
                connections=self._connections,
                risks=risks,
                statuses=statuses,
                platform=Platform(
                    settings.image, settings.image_pull_policy, settings.log_format, settings.log_level
                ),
                cluster_id=cluster_id,
                resync=settings.resync_seconds,
            )
        )
        self._dependencies = Dependencies(self._inventory)
        self._pulsars = pulsarconnections.Reconciler(
            self._inventory, self._connections, statuses, CONNECTION_RESYNC
        )
        self._queue: WorkQueue[Key] = WorkQueue(self._work, _Measurements(), workers=settings.workers)
        metrics.QUEUE_DEPTH.set_function(self._queue.depth)
        metrics.WORKERS_BUSY.set_function(lambda: self._queue.active)
        self._listed = asyncio.Event()
        self._going: set[asyncio.Task[None]] = set()

    async def lead(self, ready: asyncio.Event) -> None:
        """Work until cancelled. `ready` is set once kopf has taken the signals for itself."""
        self._health.leading, self._health.listed = True, False
        metrics.LEADING.set(1)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch(ready), name="watch")
                group.create_task(self._audit(), name="audit")
                group.create_task(self._reconcile(), name="queue")
                wanted = defaultconnections.read(self._settings.connections_file)
                if wanted is not None:
                    group.create_task(defaultconnections.keep_applied(self._kube, wanted), name="default")
        finally:
            metrics.LEADING.set(0)
            self._health.leading = False
            await self._connections.close()

    async def _watch(self, ready: asyncio.Event) -> None:
        namespaces = self._settings.watch_namespaces
        await kopf.operator(
            registry=handlers.registry(self._seen),
            settings=handlers.settings(),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            ready_flag=ready,
        )
        raise RuntimeError("the watch ended by itself")

    def _seen(self, plural: str, body: Body, gone: bool) -> None:
        if plural == handlers.DEPLOYMENTS:
            for concerned, changed in self._dependencies.deployment(body, gone=gone):
                self._wake_subscription(concerned, afresh=changed)
            return
        key = key_of(plural, body)
        if plural == compositetopics.PLURAL:
            for concerned in self._dependencies.topic(key, body, gone=gone):
                self._wake_subscription(concerned)
        self._health.audit.delivered(key, None if gone else str(body["metadata"]["resourceVersion"]))
        if gone:
            self._inventory.gone(key)
            self._queue.forget(key)
            self._subscriptions.forget(key)
            if plural == pulsarconnections.PLURAL:
                task = asyncio.ensure_future(self._connections.gone(key[1], key[2]))
                self._going.add(task)
                task.add_done_callback(self._going.discard)
                self._wake_topics(key[1])
            return
        news = self._inventory.seen(key, body)
        if not news:
            return
        if plural == pulsarconnections.PLURAL:
            try:
                self._connections.seen(PulsarConnection.parse(body))
            except InvalidResourceError as error:
                logger.warning("PulsarConnection %s/%s cannot be read: %s", key[1], key[2], error)
            self._wake_topics(key[1])
        self._subscriptions.forget(key)
        self._queue.add(key)

    def _wake_topics(self, namespace: str) -> None:
        for key in self._inventory.keys(compositetopics.PLURAL, namespace):
            self._queue.add(key)
        for key in self._inventory.keys(subscriptions.PLURAL, namespace):
            self._wake_subscription(key)

    def _wake_subscription(self, key: Key, *, afresh: bool = True) -> None:
        if afresh:
            self._subscriptions.forget(key)
        if key in self._inventory:
            self._queue.add(key)

    async def _reconcile(self) -> None:
        # Not before all is seen: a topic must not be told that its connection does not exist.
        await self._listed.wait()
        await self._queue.run()

    async def _work(self, key: Key) -> Outcome:
        if key not in self._inventory:
            return Done()
        token = OBJECT.set(f"{KINDS[key[0]]} {key[1]}/{key[2]}")
        try:
            if key[0] == pulsarconnections.PLURAL:
                return await self._pulsars.reconcile(key)
            if key[0] == subscriptions.PLURAL:
                return await self._subscriptions.reconcile(key)
            return await self._topics.reconcile(key)
        finally:
            OBJECT.reset(token)

    async def _audit(self) -> None:
        """Compare listings with what the watch brought: often until the first is complete, then seldom."""
        while True:
            try:
                for plural in KINDS:
                    items = await self._kube.list_objects(plural, self._settings.watch_namespaces)
                    versions = {
                        key_of(plural, item): str(item["metadata"]["resourceVersion"]) for item in items
                    }
                    self._health.audit.listed(plural, versions, self._health.clock())
            except KubeError as error:
                logger.warning("the watch could not be audited: %s", error)
            else:
                for key in self._health.audit.missed():
                    metrics.WATCH_MISSED.labels(KINDS[key[0]]).inc()
                if self._health.audit.complete and not self._listed.is_set():
                    self._health.listed = True
                    self._listed.set()
                    logger.info("all objects are seen")
            every = self._settings.audit_seconds
            await asyncio.sleep(every if self._listed.is_set() else min(every, FIRST_AUDITS_EVERY))
