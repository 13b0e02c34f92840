"""Writing an object's status: only when it says something new, only over the version it was made from."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Protocol

from millrace.api.meta import Condition, ObjectMeta
from millrace.controller.events import Events
from millrace.controller.inventory import Inventory, Key
from millrace.controller.kube import Kube
from millrace.core.conditions import transitions

logger = logging.getLogger(__name__)


class _Status(Protocol):
    @property
    def conditions(self) -> tuple[Condition, ...]: ...

    def to_wire(self) -> dict[str, Any]: ...


class StatusWriter:
    """Writes statuses and posts the events that follow from them."""

    def __init__(self, kube: Kube, inventory: Inventory, events: Events) -> None:
        self._kube = kube
        self._inventory = inventory
        self._events = events

    async def write(
        self, key: Key, kind: str, metadata: ObjectMeta, previous: Iterable[Condition], status: _Status
    ) -> None:
        """Write the status if it differs from what is there; raises a conflict if the object moved on.

        Dies after the write: the events of this transition are lost, the conditions are not.
        """
        plural, namespace, name = key
        body = self._inventory.get(key)
        if body is None or body["metadata"].get("uid") != metadata.uid:
            return  # deleted, or replaced by another of the same name
        before = dict(body.get("status") or {})
        following = status.to_wire()
        if following == before:
            return
        self._inventory.about_to_write(key, following)
        # A merge patch keeps what it does not name, so what is no longer said is removed by name.
        patch = {field: None for field in before if field not in following} | following
        version = str(body["metadata"]["resourceVersion"])
        answer = await self._kube.patch_status(plural, namespace, name, version, patch)
        self._inventory.wrote(key, answer)
        changes = transitions(previous, status.conditions)
        for change in changes:
            logger.log(
                logging.WARNING if change.warning else logging.INFO, "%s: %s", change.reason, change.message
            )
        await self._events.post(kind, metadata, changes)
