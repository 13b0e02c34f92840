"""Group ids: what may be one.

A group id is the Pulsar partition key. Its limits are checked before anything is sent: a key that was
refused half way, or cut short, would be another group.
"""

from __future__ import annotations

from millrace.core.errors import InvalidGroupId

MAX_GROUP_ID_BYTES = 1024
"""In UTF-8. Group ids are kept with every parked message and in every group's state: they must stay small."""


def validate_group_id(group_id: str) -> None:
    """Raise InvalidGroupId unless this can be the id of a group."""
    if not isinstance(group_id, str):
        raise InvalidGroupId(f"a group id is a string, not {type(group_id).__name__}")
    if not group_id:
        raise InvalidGroupId("the group id is empty; messages without a group have no order to keep")
    try:
        size = len(group_id.encode())
    except UnicodeEncodeError as error:
        raise InvalidGroupId(
            f"the group id has a lone surrogate at index {error.start} and cannot be written as UTF-8"
        ) from None
    if size > MAX_GROUP_ID_BYTES:
        raise InvalidGroupId(
            f"the group id has {size} bytes in UTF-8, more than {MAX_GROUP_ID_BYTES}; "
            f"send a digest of it instead (it begins with {group_id[:32]!r})"
        )
