"""The objects as the watch last showed them, and which of its events are news.

Every write of a status comes back as an event of the watch. Reconciling because of one's own words would
never end, so an event is news only if something changed that is not the operator's own doing. No I/O here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, str, str]
"""Plural, namespace, name."""

Body = Mapping[str, Any]


def key_of(plural: str, body: Body) -> Key:
    """The key of an object."""
    return plural, body["metadata"]["namespace"], body["metadata"]["name"]


@dataclass(slots=True)
class Inventory:
    """The newest body of each object, and the status that the operator has last meant to write."""

    _bodies: dict[Key, Body] = field(default_factory=dict)
    _written: dict[Key, Mapping[str, Any]] = field(default_factory=dict)

    def __contains__(self, key: Key) -> bool:
        return key in self._bodies

    def get(self, key: Key) -> Body | None:
        """The object, or None if it is gone."""
        return self._bodies.get(key)

    def keys(self, plural: str, namespace: str | None = None) -> Iterator[Key]:
        """All keys of a kind, in one namespace or in all."""
        for key in list(self._bodies):
            if key[0] == plural and namespace in (None, key[1]):
                yield key

    def seen(self, key: Key, body: Body) -> bool:
        """The watch shows this body; whether that is news."""
        before = self._bodies.get(key)
        self._bodies[key] = body
        if before is None or _asked(before) != _asked(body):
            return True
        status = body.get("status") or {}
        # Somebody else's hand in the status (a restore, a careless edit) is news: it is written again.
        return status not in (before.get("status") or {}, self._written.get(key))

    def gone(self, key: Key) -> None:
        """The watch shows that the object is deleted."""
        self._bodies.pop(key, None)
        self._written.pop(key, None)

    def about_to_write(self, key: Key, status: Mapping[str, Any]) -> None:
        """Called before the request, because the watch may be faster than the answer."""
        self._written[key] = status

    def wrote(self, key: Key, body: Body) -> None:
        """The API server's answer to a write of ours."""
        if key in self._bodies:
            self._bodies[key] = body


def _asked(body: Body) -> tuple[Any, ...]:
    """What people and other controllers say, as against what the operator says."""
    metadata = body["metadata"]
    return (
        metadata.get("uid"),
        metadata.get("generation"),
        metadata.get("annotations"),
        metadata.get("finalizers"),
        metadata.get("deletionTimestamp"),
    )
