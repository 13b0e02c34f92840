"""A message on its way out: what may be one, and what it weighs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import lru_cache

from millrace.client.errors import InvalidMessage, PayloadTooLarge
from millrace.client.partitions import ID_PROPERTY
from millrace.core.groups import validate_group_id
from millrace.core.positions import Position
from millrace.core.routing import group_hash
from millrace.core.sending import Send

MAX_MESSAGE_SIZE = 5 * 1024 * 1024
"""The broker's `maxMessageSize` unless it was configured otherwise."""

OVERHEAD = 256
"""What frames a message: metadata, our own id, the batch around it."""


@lru_cache(maxsize=1 << 16)
def _hash_of_valid(group_id: str) -> int:
    validate_group_id(group_id)
    return group_hash(group_id)


def checked_hash(group_id: str) -> int:
    """The hash of a group id that may be sent. Groups come again and again: both are remembered."""
    if type(group_id) is not str:
        validate_group_id(group_id)
    return _hash_of_valid(group_id)


class Outgoing(Send):
    """One message, from `send` to its acknowledgement. Its sequence is given to it when it is let out."""

    __slots__ = ("future", "group_id", "payload", "properties", "size")

    def __init__(
        self,
        group_id: str,
        payload: bytes,
        properties: Mapping[str, str] | None,
        max_message_size: int,
        future: asyncio.Future[Position],
    ) -> None:
        self.sequence = -1
        self.hash = checked_hash(group_id)
        self.group_id = group_id
        self.payload = payload
        # A copy: the message may wait, and callers fill one dictionary again and again.
        self.properties = _copied(properties) if properties else None
        self.size = checked_size(group_id, payload, self.properties, max_message_size)
        self.future = future


def checked_size(
    group_id: str, payload: bytes, properties: Mapping[str, str] | None, max_message_size: int
) -> int:
    """The size as the broker counts it, rounded up. Raises for what could not be sent."""
    if not isinstance(payload, bytes):
        raise InvalidMessage(f"the payload is {type(payload).__name__}, not bytes; encode it first")
    size = len(payload) + 4 * len(group_id)
    if properties:
        size += _checked_properties(properties)
    if size + OVERHEAD > max_message_size:
        raise PayloadTooLarge(
            f"the message has {size} bytes and {OVERHEAD} around it, more than the broker's limit of "
            f"{max_message_size}; send less, or a reference to where the data is"
        )
    return size


def _copied(properties: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(properties, Mapping):
        raise InvalidMessage(f"the properties are {type(properties).__name__}, not a mapping of strings")
    return dict(properties)


def _checked_properties(properties: Mapping[str, str]) -> int:
    size = 0
    for name, value in properties.items():
        if {type(name), type(value)} != {str}:
            raise InvalidMessage(f"the property {name!r} and its value have to be strings")
        if name == ID_PROPERTY:
            raise InvalidMessage(f"the property {ID_PROPERTY!r} is reserved for the producer's own id")
        try:
            size += len(name.encode()) + len(value.encode()) + 8
        except UnicodeEncodeError:
            raise InvalidMessage(f"the property {name!r} cannot be written as UTF-8") from None
    return size
