"""What a failure at the edge to Pulsar means for an object: the condition it gets, and when to try again."""

from __future__ import annotations

from millrace.api.reasons import Reason
from millrace.controller.connections import NoConnection
from millrace.core.conditions import Verdict
from millrace.pulsar.errors import (
    Forbidden,
    Misconfigured,
    NotFound,
    PreconditionFailed,
    PulsarError,
    Rejected,
    Unauthorized,
    UnreadableDescriptor,
)

_REASONS: tuple[tuple[type[PulsarError], Reason], ...] = (
    (Unauthorized, Reason.UNAUTHORIZED),
    (Forbidden, Reason.FORBIDDEN),
    (NotFound, Reason.NAMESPACE_NOT_FOUND),
    (UnreadableDescriptor, Reason.DESCRIPTOR_UNREADABLE),
    (PreconditionFailed, Reason.INVALID_SPEC),
    (Rejected, Reason.INVALID_SPEC),
    (Misconfigured, Reason.INVALID_SPEC),
)


def verdict_on(error: PulsarError | NoConnection) -> Verdict:
    """The condition. What is not known to need a person is waited for."""
    if isinstance(error, NoConnection):
        return Verdict(error.reason, str(error))
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return Verdict(reason, str(error))
    return Verdict(Reason.WAITING_FOR_PULSAR, str(error))
