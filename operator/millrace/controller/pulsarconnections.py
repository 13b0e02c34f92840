"""One PulsarConnection: whether it can be used, said in its status. It changes nothing in Pulsar."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from millrace.api.meta import InvalidResourceError, ObjectMeta
from millrace.api.pulsarconnection import PulsarConnection, PulsarConnectionStatus
from millrace.api.reasons import Reason
from millrace.controller.connections import Connections, NoConnection
from millrace.controller.failures import verdict_on
from millrace.controller.inventory import Inventory, Key
from millrace.controller.kube import KubeError
from millrace.controller.queue import Done, Outcome, Retry
from millrace.controller.statuses import StatusWriter
from millrace.core.conditions import Verdict, conditions, ready
from millrace.pulsar.errors import PulsarError, Unauthorized

PLURAL = "pulsarconnections"
KIND = "PulsarConnection"


@dataclass(frozen=True, slots=True)
class Reconciler:
    """Tries every connection now and then, so that its condition is not a memory."""

    inventory: Inventory
    connections: Connections
    statuses: StatusWriter
    resync: float

    async def reconcile(self, key: Key) -> Outcome:
        """Look whether Pulsar answers with these credentials, and say so."""
        body = self.inventory.get(key)
        if body is None:
            return Done()
        try:
            connection = PulsarConnection.parse(body)
        except InvalidResourceError as error:
            meta = ObjectMeta.model_validate(body["metadata"])
            verdict = Verdict(Reason.INVALID_SPEC, f"this version cannot read the object: {error}")
            return await self._say(key, meta, PulsarConnectionStatus(), verdict, Done(self.resync))
        meta = connection.metadata
        if meta.deletion_timestamp is not None:
            return Done()
        if meta.paused:
            verdict = Verdict(Reason.PAUSED, "remove the annotation millrace.dev/paused to go on")
            return await self._say(key, meta, connection.status, verdict, Done())
        verdict, outcome = await self._try(connection)
        return await self._say(key, meta, connection.status, verdict, outcome)

    async def _try(self, connection: PulsarConnection) -> tuple[Verdict, Outcome]:
        for afresh in (False, True):
            try:
                session = await self.connections.session(connection, afresh=afresh)
                clusters = await session.admin.clusters()
            except Unauthorized as error:
                if afresh:
                    return verdict_on(error), Retry(str(error))
            except (PulsarError, NoConnection) as error:
                return verdict_on(error), Retry(str(error), getattr(error, "retry_after", None) or 0.0)
            except KubeError as error:
                return Verdict(Reason.WAITING_FOR_CONNECTION, str(error)), Retry(str(error))
            else:
                return ready(f"Pulsar answers: cluster {', '.join(clusters) or 'unnamed'}"), Done(self.resync)
        raise AssertionError("the second round returns")

    async def _say(
        self, key: Key, meta: ObjectMeta, before: PulsarConnectionStatus, verdict: Verdict, outcome: Outcome
    ) -> Outcome:
        made = conditions(verdict, before.conditions, generation=meta.generation, now=datetime.now(UTC))
        status = PulsarConnectionStatus(observed_generation=meta.generation, conditions=made)
        try:
            await self.statuses.write(key, KIND, meta, before.conditions, status)
        except KubeError as error:
            return Done() if error.not_found else Retry(str(error))
        return outcome
