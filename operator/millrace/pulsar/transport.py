"""HTTP to the admin API: one session, bounded concurrency, patience with limits.

Every operation that goes through here may be repeated without harm (the broker's answer to a repeat, 404 or
409, is the operation's to interpret), so a call that failed on the way, or with 5xx or 429, is tried again
until a small deadline has passed; then the caller's own loop decides. Credentials are read for each
request, and once more after a 401, so that rotation needs no restart.
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp

from millrace.pulsar.credentials import Credentials, OAuth2
from millrace.pulsar.errors import Misconfigured, Unauthorized, Unavailable, from_status

Observer = Callable[[str, str, int, float], None]
"""Told of every request: method, operation, HTTP status (0 when there was no answer), seconds."""

MAX_REDIRECTS = 5
MAX_BACKOFF = 5.0
FAIR_CHANCE = 1.0
"""No attempt is begun with less time than this left (or a tenth of the deadline): it would be cut off, and
what the attempt before it was told be replaced by a time-out of our own making."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A success, or one of the statuses that the caller said it would interpret."""

    status: int
    text: str

    def json(self) -> Any:
        """The body as a JSON value; None for an empty body."""
        return json.loads(self.text) if self.text.strip() else None


@dataclass(frozen=True, slots=True)
class Request:
    """One call. `attempt` completes the sentence "cannot ..."; `operation` is a short name for metrics."""

    method: str
    path: str
    operation: str
    attempt: str
    body: Any = None
    content_type: str = "application/json"
    query: Mapping[str, str] | None = None
    accept: tuple[int, ...] = ()


class Transport:
    """The session. Use as an async context manager, or call `close`."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        timeout: float,
        deadline: float,
        concurrency: int,
        observer: Observer | None,
    ) -> None:
        self._credentials = credentials
        self._base = credentials.admin_url.rstrip("/")
        self._timeout = timeout
        self._deadline = deadline
        self._permits = asyncio.Semaphore(concurrency)
        self._concurrency = concurrency
        self._observer = observer
        self._session: aiohttp.ClientSession | None = None
        self._tls: ssl.SSLContext | None = None
        self._tls_fingerprint: object = None

    async def close(self) -> None:
        """Close the session; a later call opens another."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def call(self, request: Request) -> Answer:
        """Do it, again if that may help, and raise one of our errors if it does not."""
        give_up = time.monotonic() + self._deadline
        fair = min(FAIR_CHANCE, self._deadline / 10)
        tries = 0
        refused = False
        while True:
            tries += 1
            try:
                return await self._once(request, min(self._timeout, give_up - time.monotonic()))
            except Unauthorized:
                if refused:
                    raise
                # The Secret may have rotated between our reading it and the broker's looking at it.
                refused = True
                self._credentials.forget()
            except Unavailable as error:
                pause = random.uniform(0.5, 1.0) * min(0.1 * 2**tries, MAX_BACKOFF)  # noqa: S311 - jitter
                pause = max(pause, error.retry_after or 0.0)
                if time.monotonic() + pause + fair >= give_up:
                    raise Unavailable(
                        f"{error} (tried {tries} times)", retry_after=error.retry_after
                    ) from error
                await asyncio.sleep(pause)

    async def _once(self, request: Request, limit: float) -> Answer:
        async with self._permits:
            started = time.monotonic()
            status = 0
            try:
                async with asyncio.timeout(limit):
                    status, text, headers = await self._send(request)
            except TimeoutError as error:
                raise Unavailable(
                    f"cannot {request.attempt}: {self._base} did not answer within {limit:.0f} s; "
                    "check the load of the brokers, it will be tried again"
                ) from error
            except (aiohttp.ClientError, OSError) as error:
                raise Unavailable(
                    f"cannot {request.attempt}: no connection to {self._base} "
                    f"({str(error) or type(error).__name__}); check that the admin URL is right and can be "
                    "reached, it will be tried again"
                ) from error
            finally:
                if self._observer is not None:
                    self._observer(request.method, request.operation, status, time.monotonic() - started)
        if 200 <= status < 300 or status in request.accept:
            return Answer(status, text)
        raise from_status(
            status,
            request.attempt,
            self._base,
            _reason(text),
            retry_after=_retry_after(headers.get("Retry-After")),
        )

    async def _send(self, request: Request) -> tuple[int, str, Mapping[str, str]]:
        url = self._base + request.path
        headers = await self._headers()
        body = None
        if request.body is not None:
            headers["Content-Type"] = request.content_type
            body = json.dumps(request.body).encode()
        for _ in range(MAX_REDIRECTS + 1):
            async with self._open_session().request(
                request.method,
                url,
                params=request.query,
                data=body,
                headers=headers,
                ssl=self._tls_context() or True,
                # A broker redirects to the owner of the topic. The library would drop the
                # Authorization header on the way to another host, so this is done here.
                allow_redirects=False,
            ) as response:
                text = await response.text()
                location = response.headers.get("Location")
                if response.status not in (301, 302, 303, 307, 308) or not location:
                    return response.status, text, response.headers
                url = self._redirect(url, location)
                request = replace(request, query=None)
        raise Unavailable(
            f"cannot {request.attempt}: {self._base} redirected more than {MAX_REDIRECTS} times; "
            "check the brokers' advertised addresses"
        )

    def _redirect(self, url: str, location: str) -> str:
        target = urljoin(url, location)
        if urlsplit(url).scheme == "https" and urlsplit(target).scheme != "https":
            raise Misconfigured(
                f"{self._base} redirected to {target}, which is not encrypted; our credentials are not sent "
                "there: check the brokers' advertised addresses"
            )
        return target

    async def _headers(self) -> dict[str, str]:
        if isinstance(self._credentials.auth, OAuth2):
            token = await asyncio.to_thread(self._credentials.bearer)
        else:
            token = self._credentials.bearer()
        headers = {"Accept": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _tls_context(self) -> ssl.SSLContext | None:
        fingerprint = self._credentials.tls_fingerprint()
        if fingerprint != self._tls_fingerprint or self._tls_fingerprint is None:
            self._tls = self._credentials.tls_context()
            self._tls_fingerprint = fingerprint
        return self._tls

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._concurrency),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session


def _reason(text: str) -> str:
    """What the broker said, short enough for a condition."""
    try:
        document = json.loads(text)
        if isinstance(document, dict) and "reason" in document:
            text = str(document["reason"])
    except ValueError:
        if "<html" in text.lower():
            return ""
    said = " ".join(text.split())
    return said if len(said) <= 300 else said[:297] + "..."


def _retry_after(value: str | None) -> float | None:
    """Seconds, from either form of the header; None for what cannot be read."""
    if not value:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
