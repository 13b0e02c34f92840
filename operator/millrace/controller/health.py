"""Whether this replica is alive and ready, and its metrics: one small HTTP server.

Alive means that the watch streams live, which no probe of a task can prove. So an audit lists every kind
now and then and compares: a change that the listing shows and that the watch has not delivered within its
grace is a stream that is dead while its connection looks well. Then the replica reports itself dead and is
restarted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import generate_latest

from millrace.controller import metrics

logger = logging.getLogger(__name__)

Key = tuple[str, str, str]
"""Kind, namespace, name."""


@dataclass(slots=True)
class WatchAudit:
    """What the watch has delivered, against what listings show. No I/O, no clock of its own."""

    grace: float = 60.0
    _seen: dict[Key, str] = field(default_factory=dict)
    _overdue_since: dict[Key, float] = field(default_factory=dict)
    _listed_at: dict[str, float] = field(default_factory=dict)

    def delivered(self, key: Key, version: str | None) -> None:
        """The watch brought this version; None when the object is gone."""
        if version is None:
            self._seen.pop(key, None)
        else:
            self._seen[key] = version
        self._overdue_since.pop(key, None)

    def listed(self, kind: str, versions: dict[Key, str], now: float) -> None:
        """A listing of a kind shows these versions."""
        expected = {key for key, version in versions.items() if self._seen.get(key) != version}
        gone = {key for key in self._seen if key[0] == kind and key not in versions}
        late = expected | gone
        kept = {key: at for key, at in self._overdue_since.items() if key[0] != kind or key in late}
        # From the first listing on, whichever version it showed: an object that keeps changing is owed, too.
        self._overdue_since = dict.fromkeys(late, now) | kept
        self._listed_at[kind] = now

    @property
    def complete(self) -> bool:
        """Whether the watch has delivered all that listings showed."""
        return not self._overdue_since

    def missed(self) -> list[Key]:
        """Objects whose change the watch owes, by listings that are further apart than the grace.

        One listing proves nothing: the watch may have brought something newer while it was under way.
        """
        return sorted(
            key for key, since in self._overdue_since.items() if self._listed_at[key[0]] - since > self.grace
        )


@dataclass(slots=True)
class Health:
    """What the probes ask. `alive` answers with a reason against it, or None."""

    clock: Callable[[], float] = time.monotonic
    audit: WatchAudit = field(default_factory=WatchAudit)
    leading: bool = False
    listed: bool = False
    """Whether the first listing of a leader was taken in; a standby is ready without."""
    loop_lag: float = 0.0
    loop_beat: float = field(default_factory=time.monotonic)
    longest_beat: float = 60.0
    failure: str | None = None

    def not_alive(self) -> str | None:
        """Why this replica should be restarted, if it should."""
        if self.failure:
            return self.failure
        if self.clock() - self.loop_beat > self.longest_beat:
            return f"the event loop has not turned for {self.clock() - self.loop_beat:.0f} s"
        missed = self.audit.missed()
        if self.leading and missed:
            kind, namespace, name = missed[0]
            return f"the watch has not shown a change of {kind} {namespace}/{name} ({len(missed)} in all)"
        return None

    def not_ready(self) -> str | None:
        """Why this replica is not ready, if it is not."""
        if self.leading and not self.listed:
            return "leading, and the first listing is not read yet"
        return self.not_alive()


async def serve(health: Health, port: int) -> web.AppRunner:
    """Start the server on all addresses; the caller cleans the runner up."""

    def answer(reason: str | None) -> web.Response:
        if reason is None:
            return web.Response(text="ok\n")
        logger.warning("probe failed: %s", reason)
        return web.Response(status=503, text=f"{reason}\n")

    async def healthz(_: web.Request) -> web.Response:
        return answer(health.not_alive())

    async def readyz(_: web.Request) -> web.Response:
        return answer(health.not_ready())

    async def prometheus(_: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(metrics.REGISTRY),
            headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
        )

    application = web.Application()
    application.add_routes(
        [web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", prometheus)]
    )
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=port).start()
    return runner
