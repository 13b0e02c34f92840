"""What is known of the dangers in each Pulsar namespace; asked once in a while, not once an object."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from millrace.api.reasons import Reason
from millrace.controller.connections import Session
from millrace.core.conditions import Risk
from millrace.pulsar import risks
from millrace.pulsar.errors import Forbidden, Unauthorized
from millrace.pulsar.risks import RiskKind

GOOD_FOR = 300.0

_REASONS: Mapping[RiskKind, Reason] = {
    RiskKind.MESSAGE_TTL: Reason.NAMESPACE_TTL,
    RiskKind.BACKLOG_EVICTION: Reason.BACKLOG_EVICTION,
    RiskKind.SUBSCRIPTION_EXPIRATION: Reason.SUBSCRIPTION_EXPIRATION,
    RiskKind.BATCH_INDEX_ACK_OFF: Reason.BATCH_INDEX_ACK_OFF,
}


class RiskRegister:
    """The risks per connection and Pulsar namespace, at most five minutes old, or as old as is said."""

    def __init__(self, good_for: float = GOOD_FOR, clock: Callable[[], float] = time.monotonic) -> None:
        self._good_for = good_for
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, tuple[Risk, ...]]] = {}
        self._asking = asyncio.Lock()

    async def of(self, session: Session, pulsar_namespace: str) -> tuple[Risk, ...] | None:
        """The risks; None where the operator may not look."""
        key = session.connection.metadata.uid, pulsar_namespace
        async with self._asking:
            found = self._known.get(key)
            if found is not None and self._clock() - found[0] < self._good_for:
                return found[1]
            try:
                raw = await risks.namespace_risks(session.admin, pulsar_namespace)
            except (Forbidden, Unauthorized):
                return None
            assessed = tuple(Risk(_REASONS[risk.kind], risk.message) for risk in raw)
            self._known[key] = self._clock(), assessed
            return assessed
