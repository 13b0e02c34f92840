"""An HTTP endpoint that remembers what it was sent, and fails as it is told to; runs as a pod, by itself.

| request | what it does |
|---|---|
| POST, PUT on any other path | is recorded, and answered as the rule for its group says |
| GET /records?from=N | what came since, with the number to ask for next time |
| POST /rules | replaces the rules: by the beginning of a group id (the longest one wins), how to answer |

A rule has a `status` (0: the connection is closed without an answer), a `delay` in seconds, and may have
`flap`: so many seconds it applies, so many it does not. Without a rule the answer is 200, at once.
It imports nothing of Millrace: whatever judges deliveries must not share mistakes with what made them.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

import httptools
import uvloop

PORT = 8080
LONGEST_BODY = 512
"""So much of a body that is no numbered message is kept, as Latin-1."""
PAGE = 20_000


class Memory:
    """Everything that came, in the order in which it came."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.rules: dict[str, dict[str, Any]] = {}
        self.in_flight: dict[str, int] = {}
        self.overlaps: list[str] = []
        """Groups of which a message came while another one had no answer yet."""

    def rule(self, group: str) -> dict[str, Any]:
        """How to answer a message of this group now."""
        matching = [prefix for prefix in self.rules if group.startswith(prefix)]
        rule = self.rules[max(matching, key=len)] if matching else {}
        flap = rule.get("flap")
        return {} if flap and time.monotonic() % (2 * flap) < flap else rule

    def record(self, headers: dict[str, str], body: bytes, status: int) -> None:
        """Note one request and what is answered."""
        known = {
            "group": unquote(headers.get("ce-partitionkey", "")),
            "epoch": int(headers.get("millrace-epoch", 0)),
            "attempt": int(headers.get("millrace-attempt", 0)),
            "status": status,
            "at": time.time(),
        }
        try:
            known["number"] = json.loads(body)["number"]
        except (ValueError, KeyError, TypeError):
            known |= {"headers": headers, "size": len(body), "body": body[:LONGEST_BODY].decode("latin-1")}
        self.records.append(known)

    def since(self, first: int) -> dict[str, Any]:
        """A page of what came."""
        page = self.records[first : first + PAGE]
        return {"next": first + len(page), "records": page, "overlaps": self.overlaps}


class Peer(asyncio.Protocol):
    """One connection."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.WriteTransport | None = None
        self._group: str | None = None
        self._answering: asyncio.TimerHandle | None = None
        self._begin()

    def _begin(self) -> None:
        self._url, self._headers, self._body = b"", dict[str, str](), bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It begins."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def connection_lost(self, _: Exception | None) -> None:
        """It ends; what was not answered never will be."""
        self._done()
        if self._answering is not None:
            self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._answer(400, str(error).encode())
            self._close()

    def on_url(self, url: bytes) -> None:
        """The parser has read a part of the path."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser has read a header."""
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        """The parser has read a part of the body."""
        self._body += body

    def on_message_complete(self) -> None:
        """The request is whole."""
        memory, url = self._memory, urlsplit(self._url.decode("latin-1"))
        headers, body = self._headers, bytes(self._body)
        self._begin()
        if url.path == "/records":
            first = int(parse_qs(url.query).get("from", ["0"])[0])
            self._answer(200, json.dumps(memory.since(first)).encode())
        elif url.path == "/rules":
            memory.rules = json.loads(body)
            self._answer(200, b"{}")
        else:
            self._take(headers, body)

    def _take(self, headers: dict[str, str], body: bytes) -> None:
        memory, group = self._memory, unquote(headers.get("ce-partitionkey", ""))
        rule = memory.rule(group)
        status, delay = rule.get("status", 200), rule.get("delay", 0.0)
        if memory.in_flight.get(group):
            memory.overlaps.append(group)
        memory.in_flight[group] = memory.in_flight.get(group, 0) + 1
        self._group = group
        memory.record(headers, body, status)
        if delay:
            self._answering = asyncio.get_running_loop().call_later(delay, self._conclude, status)
        else:
            self._conclude(status)

    def _conclude(self, status: int) -> None:
        self._done()
        if status:
            self._answer(status, b"")
        else:
            self._close()

    def _done(self) -> None:
        if self._group is not None:
            self._memory.in_flight[self._group] -= 1
            self._group = None

    def _answer(self, status: int, body: bytes) -> None:
        assert self._transport is not None
        head = f"HTTP/1.1 {status} .\r\ncontent-length: {len(body)}\r\ncontent-type: application/json\r\n\r\n"
        self._transport.write(head.encode() + body)

    def _close(self) -> None:
        assert self._transport is not None
        self._transport.close()


async def serve(port: int = PORT) -> None:
    """Until SIGTERM."""
    loop, stopping, memory = asyncio.get_running_loop(), asyncio.Event(), Memory()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    server = await loop.create_server(lambda: Peer(memory), port=port)
    await stopping.wait()
    server.close()


if __name__ == "__main__":
    uvloop.run(serve())
