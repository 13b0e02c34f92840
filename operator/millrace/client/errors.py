"""What a producer or consumer of a composite topic may raise.

Bad input is refused before anything is sent. Failures of Pulsar itself (no connection, no permission) are
raised as they are at the edge: `millrace.pulsar.errors.PulsarError`. A bad group id is the core's
`InvalidGroupId`.
"""

# ruff: noqa: N818 - the names are what is wrong

from __future__ import annotations

from millrace.core.errors import InvalidGroupId

__all__ = [
    "ClientError",
    "EndOfPartition",
    "InvalidGroupId",
    "InvalidMessage",
    "NoSuchPartition",
    "PayloadTooLarge",
    "ProducerClosed",
    "ProducerFailed",
    "QueueFull",
    "TopicNotFound",
    "TopicNotWritable",
]


class ClientError(Exception):
    """The family; catch this to catch all of them (and `InvalidGroupId`, which is a ValueError)."""


class TopicNotFound(ClientError):
    """There is no composite topic of that name: its descriptor topic holds nothing."""


class TopicNotWritable(ClientError):
    """The produce topic was adopted with data in it; its routing is unknown, so that order cannot be kept."""


class InvalidMessage(ClientError, ValueError):
    """A payload that is not bytes, or properties that are not strings or use a reserved name."""


class PayloadTooLarge(InvalidMessage):
    """The message is over the broker's limit."""


class QueueFull(ClientError):
    """`send_nowait` found no room: too much is unacknowledged. `send` and `submit` would have waited."""


class ProducerClosed(ClientError):
    """The producer was closed. A send that was under way then may or may not have been stored."""


class ProducerFailed(ClientError):
    """The producer cannot go on without risking the order. Sends under way may or may not be stored."""


class NoSuchPartition(ClientError, LookupError):
    """The composite topic has no such storage topic or partition."""


class EndOfPartition(ClientError, LookupError):
    """The partition is sealed, and the position is at or after its end."""
