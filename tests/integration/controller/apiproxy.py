"""A proxy in front of the real API server whose watch streams can fall silent, as broken networks do it.

The operator is configured as these tests are, but for the address: that of the proxy, over plain HTTP.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import aiohttp
import yaml
from aiohttp import web
from kubernetes import client

_CARRIED = ("Authorization", "Content-Type", "Accept")


@dataclass(frozen=True, slots=True)
class Write:
    """A request that changed something, or was meant to, and the API server's answer."""

    method: str
    path: str
    status: int
    at: float


class ApiProxy:
    """Use as an async context manager; `kubeconfig` is what the operator is given."""

    def __init__(self, directory: Path, of: client.Configuration) -> None:
        self._target = str(of.host).rstrip("/")
        self._tls = ssl.create_default_context(cafile=of.ssl_ca_cert)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self.kubeconfig = directory / "kubeconfig"
        self.writes: list[Write] = []

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None))
        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._configure(self._runner.addresses[0][1])
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        assert self._session is not None
        await self._runner.cleanup()
        await self._session.close()

    def _configure(self, port: int) -> None:
        document = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
        for entry in document["clusters"]:
            entry["cluster"] = {"server": f"http://127.0.0.1:{port}"}
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(yaml.safe_dump(document))

    def silence_watches(self) -> None:
        """Connections stand, and nothing comes through them any more; other requests go on."""
        self._flowing.clear()

    def let_watches_flow(self) -> None:
        """As if nothing had been."""
        self._flowing.set()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        assert self._session is not None
        headers = {name: request.headers[name] for name in _CARRIED if name in request.headers}
        async with self._session.request(
            request.method,
            self._target + request.raw_path,
            data=await request.read() or None,
            headers=headers,
            ssl=self._tls,
        ) as answer:
            if request.method != "GET":
                self.writes.append(Write(request.method, request.path, answer.status, time.monotonic()))
            kind = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
            if request.query.get("watch") not in ("true", "1"):
                return web.Response(status=answer.status, body=await answer.read(), headers=kind)
            response = web.StreamResponse(status=answer.status, headers=kind)
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await self._flowing.wait()
                await response.write(chunk)
            return response
