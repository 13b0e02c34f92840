"""Kubernetes events about an object: one for every transition of its conditions, and never a payload."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from millrace.api import API_VERSION
from millrace.api.meta import ObjectMeta
from millrace.controller.kube import Kube, KubeError
from millrace.core.conditions import Transition

logger = logging.getLogger(__name__)

MAX_MESSAGE = 1024
COMPONENT = "millrace"


def build(
    kind: str, about: ObjectMeta, transition: Transition, *, reporter: str, now: datetime
) -> dict[str, Any]:
    """A core/v1 Event that `kubectl describe` shows below the object."""
    moment = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{about.name[:200]}.{uuid.uuid4().hex[:16]}",
            "namespace": about.namespace,
        },
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
            "resourceVersion": about.resource_version or "",
        },
        "type": "Warning" if transition.warning else "Normal",
        "reason": transition.reason,
        "message": transition.message[:MAX_MESSAGE],
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": reporter[:128],
    }


class Events:
    """Posts events. One that cannot be posted is logged and forgotten: the conditions have the same words."""

    def __init__(self, kube: Kube, reporter: str) -> None:
        self._kube = kube
        self._reporter = reporter

    async def post(self, kind: str, about: ObjectMeta, transitions: Iterable[Transition]) -> None:
        """Post one event a transition."""
        for transition in transitions:
            event = build(kind, about, transition, reporter=self._reporter, now=datetime.now(UTC))
            try:
                await self._kube.create_event(about.namespace, event)
            except KubeError as error:
                logger.warning("the event %s was not posted: %s", transition.reason, error)
