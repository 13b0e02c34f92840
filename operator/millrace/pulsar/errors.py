"""What can go wrong between us and Pulsar, in one family.

Each error says what was attempted, where, what the other side answered and what to do, because its text
ends up in a condition or in a terminal. `retryable` means that the same call may succeed later without
anybody changing anything; `retry_after` is the wait in seconds that the other side asked for, and `said` its
own words, without ours.
"""

# ruff: noqa: N818 - the names are what happened

from __future__ import annotations

from typing import ClassVar

import pulsar


class PulsarError(Exception):
    """Any failure at the edge to Pulsar."""

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after: float | None = None, said: str = "") -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.said = said


class Unavailable(PulsarError):
    """No answer, a late answer, a server-side failure, or a request to slow down: wait and try again."""

    retryable = True


class Unauthorized(PulsarError):
    """The credentials were refused. Retryable, because a Secret may rotate at any time."""

    retryable = True


class Forbidden(PulsarError):
    """The role is known but lacks a permission. Retryable, because somebody may grant it."""

    retryable = True


class NotFound(PulsarError):
    """The tenant, namespace, topic or subscription does not exist."""


class Conflict(PulsarError):
    """The thing exists already, is in use, or was changed by somebody else at the same time."""

    retryable = True


class NotOurs(Conflict):
    """A topic of this name exists, and is somebody else's or nobody's. It was not touched."""


class PreconditionFailed(PulsarError):
    """The broker refuses the request in the present state (a limit is reached, a name is not allowed)."""


class Rejected(PulsarError):
    """The broker does not accept this request at all (malformed, not supported, or switched off)."""


class Misconfigured(PulsarError):
    """The credentials or addresses that were given to us cannot be used."""


class Fenced(PulsarError):
    """A newer exclusive producer took the topic over. Read again before trying to write again."""

    retryable = True


class TopicTerminated(PulsarError):
    """The topic is sealed: nothing can be written to it any more."""


class StaleDescriptor(PulsarError):
    """Somebody published another generation since we read: read again, decide again."""

    retryable = True

    def __init__(self, message: str, *, found: int, expected: int) -> None:
        super().__init__(message)
        self.found = found
        self.expected = expected


class UnreadableDescriptor(PulsarError):
    """The newest descriptor is not one, or is in a format of a newer version of this program."""


class UnreadableTable(PulsarError):
    """The owner record of a state table is not one."""


_BY_STATUS: dict[int, tuple[type[PulsarError], str]] = {
    401: (Unauthorized, "check the token or certificate of the connection; it is read again at each attempt"),
    403: (Forbidden, "grant the role of this connection the permission on the namespace or topic"),
    404: (NotFound, "check that the tenant, namespace and topic exist"),
    409: (Conflict, "it exists already or is being changed; look again before the next attempt"),
    412: (PreconditionFailed, "check the broker's limits and the name"),
    429: (Unavailable, "the broker asks to slow down; it will be tried again"),
}


def from_status(
    status: int, attempt: str, where: str, reason: str, *, retry_after: float | None = None
) -> PulsarError:
    """The error for an HTTP answer that is not a success."""
    kind, advice = _BY_STATUS.get(
        status,
        (Unavailable, "the broker failed; it will be tried again")
        if status >= 500
        else (Rejected, "the broker does not accept this; check its version and configuration"),
    )
    said = f" ({reason})" if reason else ""
    message = f"cannot {attempt}: {where} answered {status}{said}; {advice}"
    return kind(message, retry_after=retry_after, said=reason)


_BY_EXCEPTION: tuple[tuple[tuple[type[Exception], ...], type[PulsarError], str], ...] = (
    ((pulsar.ProducerFenced,), Fenced, "a newer writer took over; read again first"),
    ((pulsar.TopicTerminated,), TopicTerminated, "the topic is sealed"),
    ((pulsar.TopicNotFound, pulsar.SubscriptionNotFound), NotFound, "check that the topic exists"),
    ((pulsar.AuthorizationError,), Forbidden, "grant the role of this connection produce and consume on it"),
    (
        (pulsar.AuthenticationError, pulsar.ErrorGettingAuthenticationData),
        Unauthorized,
        "check the token or certificate of the connection; it is read again at each attempt",
    ),
    (
        (pulsar.InvalidTopicName, pulsar.InvalidConfiguration, pulsar.InvalidUrl),
        Misconfigured,
        "check the service URL and the topic's name",
    ),
    (
        (
            pulsar.MessageTooBig,
            pulsar.NotAllowedError,
            pulsar.OperationNotSupported,
            pulsar.IncompatibleSchema,
        ),
        Rejected,
        "the broker does not accept this",
    ),
    ((pulsar.ProducerBusy, pulsar.ConsumerBusy), Conflict, "another client holds it exclusively"),
)


def from_client(error: Exception, attempt: str) -> PulsarError:
    """The error for an exception of the native client; what is not known to be permanent is worth a retry."""
    if isinstance(error, PulsarError):
        return error
    said = f"{type(error).__name__}: {error}".removesuffix(": ")
    for exceptions, kind, advice in _BY_EXCEPTION:
        if isinstance(error, exceptions):
            return kind(f"cannot {attempt}: {said}; {advice}")
    # The client answers a refused token with a time-out as well, after trying in vain for as long as it may.
    return Unavailable(
        f"cannot {attempt}: {said}; check that the brokers can be reached and accept our credentials, "
        "it will be tried again"
    )
