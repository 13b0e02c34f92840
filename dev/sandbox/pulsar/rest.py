"""Requests to the broker's REST interface from outside its network namespace, without a program for each.

A socket stays in the namespace in which it was made; only the connecting happens inside.
"""

from __future__ import annotations

import http.client
import json
import socket
from dataclasses import dataclass
from pathlib import Path

from sandbox import netns
from sandbox.layout import NODE_IP, Layout
from sandbox.pulsar.configuration import HTTP_PORT


@dataclass(frozen=True, slots=True)
class Answer:
    """What the broker said; status 0 means that it could not be reached."""

    status: int
    body: str


def call(
    layout: Layout, method: str, path: str, *, token: Path, body: object = None, timeout: float = 20
) -> Answer:
    """One request, as the bearer of a token."""
    connection = http.client.HTTPConnection(NODE_IP, HTTP_PORT, timeout=timeout)
    try:
        connection.sock = netns.call_inside(
            layout, lambda: socket.create_connection((NODE_IP, HTTP_PORT), timeout=timeout)
        )
        headers = {"Authorization": f"Bearer {token.read_text()}", "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return Answer(response.status, response.read().decode(errors="replace"))
    except (OSError, http.client.HTTPException) as failure:
        return Answer(0, str(failure))
    finally:
        connection.close()
