"""Parked copies: what a message carries while it waits in the retry or the dead-letter queue.

A copy is the original message (payload, group id, id, properties) with a few properties of ours beside them.
Properties of the original that are called like ours are kept under another name, so that the
endpoint gets exactly what the producer sent, however often the message was parked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from millrace.core.errors import DomainError
from millrace.core.positions import Position

MAIN = "mr-main"
ATTEMPTS = "mr-attempts"
FIRST_FAILED = "mr-first-failed"
ERROR = "mr-error"
PUBLISHED = "mr-published"
OURS = frozenset({MAIN, ATTEMPTS, FIRST_FAILED, ERROR, PUBLISHED})

MAX_ERROR = 512
"""Characters of the error that a copy carries."""

_RESERVED = "mr-"
_KEPT = "mr-x-"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)


class UnreadableCopy(DomainError):  # noqa: N818
    """A message in a retry or dead-letter queue that was not put there by a shard."""


@dataclass(frozen=True, slots=True)
class ParkedCopy:
    """Why and since when a message is parked, and where it comes from."""

    main: Position
    """Where the original is in the main topic; the order of a group's copies is the order of these."""
    attempts: int
    """How often delivery was tried; 0 for a message that only follows its group."""
    first_failed_ms: int | None
    """When it failed for the first time (since 1970); None if it was never tried."""
    error: str
    published_ms: int | None = None
    """When the original was published: the copy has a time of its own."""


def properties_of(copy: ParkedCopy, original: Mapping[str, str]) -> dict[str, str]:
    """The properties to publish the copy with; `original` are those that the producer gave."""
    properties = {
        _KEPT + name if name.startswith(_RESERVED) else name: value for name, value in original.items()
    }
    properties[MAIN] = str(copy.main)
    properties[ATTEMPTS] = str(copy.attempts)
    if copy.first_failed_ms is not None:
        properties[FIRST_FAILED] = str(copy.first_failed_ms)
    if copy.error:
        properties[ERROR] = copy.error[:MAX_ERROR].encode("utf-8", "replace").decode()
    if copy.published_ms is not None:
        properties[PUBLISHED] = str(copy.published_ms)
    return properties


def parse(properties: Mapping[str, str]) -> ParkedCopy:
    """Read what `properties_of` wrote."""
    main = properties.get(MAIN)
    if main is None:
        raise UnreadableCopy(
            f"a message without the property {MAIN!r} is no parked copy; only shards write to these queues"
        )
    try:
        position = Position.parse(main)
    except ValueError as error:
        raise UnreadableCopy(f"the property {MAIN!r} of a parked copy is wrong: {error}") from None
    attempts = _number(properties, ATTEMPTS)
    if attempts is None:
        raise UnreadableCopy(f"the parked copy of {main} lacks the property {ATTEMPTS!r}")
    return ParkedCopy(
        position,
        attempts,
        _number(properties, FIRST_FAILED),
        properties.get(ERROR, ""),
        _number(properties, PUBLISHED),
    )


def original_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that the producer gave, from those of a copy."""
    return {
        name.removeprefix(_KEPT): value
        for name, value in properties.items()
        if name not in OURS and (name.startswith(_KEPT) or not name.startswith(_RESERVED))
    }


def _number(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise UnreadableCopy(f"the property {name!r} of a parked copy is {text[:32]!r}, which is no number")
    return int(text)
