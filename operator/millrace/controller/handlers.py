"""The kopf handlers: each hands what the watch shows to the operator, and is done.

Only `on.event`, which is level-triggered and leaves no mark on objects: no annotation, no finalizer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kopf

from millrace.api import GROUP, VERSION
from millrace.controller import compositetopics, pulsarconnections, subscriptions
from millrace.controller.inventory import Body
from millrace.core.subscriptionobjects import MANAGED_BY

Seen = Callable[[str, Body, bool], None]
"""Told of a plural, a body, and whether the object is gone."""

DEPLOYMENTS = "deployments"

WATCH_SECONDS = 240
"""The server ends a watch after this long and kopf begins another: no stream lives for ever unseen."""


def registry(seen: Seen) -> kopf.OperatorRegistry:
    """The handlers of one operator."""
    handlers = kopf.OperatorRegistry()
    for plural in (pulsarconnections.PLURAL, compositetopics.PLURAL, subscriptions.PLURAL):
        _watch(handlers, plural, seen)

    # What others do to the pods is corrected, and how the pods are is told.
    @kopf.on.event("apps", "v1", DEPLOYMENTS, id=DEPLOYMENTS, labels=MANAGED_BY, registry=handlers)
    async def deployment(event: kopf.RawEvent, **_: Any) -> None:
        seen(DEPLOYMENTS, event["object"], event["type"] == "DELETED")

    @kopf.on.login(registry=handlers)
    def login(**arguments: Any) -> kopf.ConnectionInfo | None:
        return kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)

    return handlers


def _watch(handlers: kopf.OperatorRegistry, plural: str, seen: Seen) -> None:
    @kopf.on.event(GROUP, VERSION, plural, id=plural, registry=handlers)
    async def event(event: kopf.RawEvent, **_: Any) -> None:
        seen(plural, event["object"], event["type"] == "DELETED")


def settings() -> kopf.OperatorSettings:
    """Nothing of kopf's own persistence, and time-outs that a person on call can live with."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.networking.request_timeout = 30
    chosen.networking.connect_timeout = 10
    chosen.watching.server_timeout = WATCH_SECONDS
    chosen.watching.client_timeout = WATCH_SECONDS + 30
    chosen.watching.connect_timeout = 10
    # Scanning would need the right to list CRDs and namespaces of the whole cluster.
    chosen.scanning.disabled = True
    return chosen
