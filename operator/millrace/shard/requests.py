"""Messages as HTTP requests: what is the same for all is rendered once, the rest per message.

Nothing is sent here. A head is complete, from the request line to the empty line; the body follows as it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from millrace.core.cloudevents import (
    BATCH_CONTENT_TYPE,
    Event,
    batch_body,
    binary_headers,
    header_value,
)
from millrace.core.endpointurls import EndpointUrl
from millrace.core.errors import DomainError
from millrace.core.shardconfig import DeliveryConfig
from millrace.core.webhooks import Signer
from millrace.shard.watched import Watched

_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]{1,128}", re.ASCII)
_VALUE = re.compile(r"[ -~\t]{0,8192}", re.ASCII)
_FRAMING = frozenset({"host", "connection", "content-length", "transfer-encoding"})
"""Headers that say where a request goes and where it ends."""


class InvalidHeader(DomainError):  # noqa: N818
    """A header of the user's own that cannot be sent. The message never holds its value."""


class Requests:
    """Makes the requests of one subscription."""

    def __init__(self, delivery: DeliveryConfig, topic: str) -> None:
        """Raises OSError or DomainError for files that cannot be used. `topic` is NAMESPACE/NAME."""
        url = EndpointUrl.parse(delivery.url)
        self._source = f"/{topic}"
        line = f"{delivery.method} {url.target} HTTP/1.1\r\nhost: {url.authority}\r\nuser-agent: millrace\r\n"
        own = "".join(_header(header.name, header.value) for header in delivery.headers)
        self._static: Watched[str] = _static(line + own, delivery.headers_directory)
        self._signer: Watched[Signer] | None = _signer(delivery.signing_secret_file)

    def head(self, event: Event, *, epoch: int, attempt: int, now: float) -> bytes:
        """For one event, whose payload is the body; `now` is the wall clock.

        Raises Undeliverable for an event of which no request can be made.
        """
        signature = ""
        if self._signer is not None:
            signer = self._signer.current(now)
            signature = signer.headers(header_value(event.id), int(now), event.payload)
        return (
            f"{self._static.current(now)}{binary_headers(event, self._source)}"
            f"millrace-epoch: {epoch}\r\nmillrace-attempt: {attempt}\r\n"
            f"millrace-position: {event.position}\r\n{signature}content-length: {len(event.payload)}\r\n\r\n"
        ).encode("ascii")

    def batch(self, events: Sequence[tuple[Event, int]], *, epoch: int, now: float) -> tuple[bytes, bytes]:
        """Head and body for several events, each with the number of its attempt."""
        body = batch_body(events, self._source)
        signature = ""
        if self._signer is not None:
            signature = self._signer.current(now).headers(
                _batch_id(event for event, _ in events), int(now), body
            )
        head = (
            f"{self._static.current(now)}content-type: {BATCH_CONTENT_TYPE}\r\nmillrace-epoch: {epoch}\r\n"
            f"{signature}content-length: {len(body)}\r\n\r\n"
        )
        return head.encode("ascii"), body


def _static(fixed: str, directory: str | None) -> Watched[str]:
    """What all requests have in common, with the headers whose values are files."""

    def files() -> list[Path]:
        if directory is None:
            return []
        # Kubernetes keeps its own entries, which begin with a dot, beside the keys of a Secret.
        return sorted(path for path in Path(directory).iterdir() if not path.name.startswith("."))

    def load() -> str:
        return fixed + "".join(_header(path.name, _text(path)) for path in files())

    return Watched("set of header values", files, load)


def _signer(file: str | None) -> Watched[Signer] | None:
    if file is None:
        return None
    path = Path(file)
    return Watched("signing secret", lambda: [path], lambda: Signer.parse(_text(path)))


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("ascii").strip()
    except UnicodeDecodeError:
        raise InvalidHeader(
            f"the file {path.name} holds more than ASCII; encode it, for example as base64"
        ) from None


def _header(name: str, value: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidHeader(f"{name[:64]!r} is no name of a header")
    if name.lower() in _FRAMING:
        raise InvalidHeader(f"the header {name} is set by the delivery itself; choose another name")
    if not _VALUE.fullmatch(value):
        raise InvalidHeader(
            f"the value of the header {name} has line breaks or other characters that no header may have, "
            "or more than 8192 of them"
        )
    return f"{name}: {value}\r\n"


def _batch_id(events: Iterable[Event]) -> str:
    """The same for the same events, so that an endpoint recognises a batch that is sent again."""
    digest = hashlib.sha256()
    for event in events:
        encoded = event.id.encode("utf-8", "surrogatepass")
        digest.update(b"%d:" % len(encoded) + encoded)
    return f"batch-{digest.hexdigest()[:32]}"
