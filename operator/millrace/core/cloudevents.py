"""Messages as CloudEvents 1.0: attributes as request headers (binary mode), or several as one JSON array.

What a producer wrote reaches the endpoint, whatever it is: properties become attributes where their names
allow it, and the others travel as JSON in one attribute. Nothing that a producer wrote can become a header of
its own, end one, or end the request: values are percent-encoded as the HTTP binding says, so that what is
written is visible ASCII and nothing else.

| property | becomes |
|---|---|
| `mr` | `id`; the position in its place if it is missing |
| `ce-NAME` | the attribute NAME, `id`, `source`, `type`, `subject`, `time` and `dataschema` included |
| `content-type` | the content type |
| `traceparent`, `tracestate` | the headers of these names (W3C Trace Context) |
| letters a-z and digits, at most 20 | the extension attribute of this name |
| any other | a member of the JSON object in the attribute `millraceproperties` |

`partitionkey` is the group id. A property that would be invalid as what it is called is one of the others.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

from millrace.core.errors import DomainError
from millrace.core.positions import Position

ID_PROPERTY = "mr"
DEFAULT_TYPE = "dev.millrace.message"
DEFAULT_CONTENT_TYPE = "application/octet-stream"
BATCH_CONTENT_TYPE = "application/cloudevents-batch+json; charset=utf-8"
OTHERS = "millraceproperties"

MAX_HEADER_BYTES = 16 * 1024
"""Of all attributes together, encoded. Widely used servers refuse heads that are larger."""

_UNSAFE = re.compile(r"[^!#$&-~]")
_SAFE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_EXTENSION = re.compile(r"[a-z0-9]{1,20}", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_MEDIA_TYPE = re.compile(r"[-!#$&^+.\w]{1,127}/[-!#$&^+.\w]{1,127}( *;[ -~]{0,256})?", re.ASCII)
_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII
)
_TRACESTATE = re.compile(r"[!-~]([ -~]{0,510}[!-~])?", re.ASCII)

_CHOSEN = frozenset({"id", "source", "type", "subject", "dataschema"})
"""Attributes that a producer may set, and that must not be empty."""
_DECIDED = frozenset({"specversion", "partitionkey", "datacontenttype", "data", "data_base64", OTHERS})
"""Attributes that follow from something else."""
_OF_DELIVERY = frozenset({"millraceattempt", "millraceposition"})
_NOT_EXTENSIONS = _CHOSEN | _DECIDED | _OF_DELIVERY | {"time", "traceparent", "tracestate"}


class Undeliverable(DomainError):  # noqa: N818
    """A message of which no request can be made: a hard failure, whatever the endpoint would say."""


class Event(NamedTuple):
    """One message, as it is delivered."""

    group_id: str
    position: Position
    """Where it is in the main topic, also for a parked copy."""
    time_ms: int
    """When it was published, since 1970."""
    properties: Mapping[str, str]
    """Those of the producer, our own id included."""
    payload: bytes

    @property
    def id(self) -> str:
        """The same however often the message is delivered."""
        return self.properties.get("ce-id") or self.properties.get(ID_PROPERTY) or str(self.position)


class Attributes(NamedTuple):
    """An event's attributes, and what travels beside them."""

    context: dict[str, str]
    """Without specversion and the content type."""
    content_type: str
    trace: dict[str, str]


def attributes(event: Event, source: str) -> Attributes:
    """What a message's properties become. `source` is the composite topic, as /NAMESPACE/NAME."""
    context = {"id": event.id, "source": source, "type": DEFAULT_TYPE}
    time = _rfc3339(event.time_ms)
    if time:
        context["time"] = time
    if event.group_id:
        context["partitionkey"] = event.group_id
    content_type, trace, others = DEFAULT_CONTENT_TYPE, _trace(event.properties), dict[str, str]()
    for name, value in event.properties.items():
        attribute, valid = _role(name)
        if attribute is None or name in trace:
            pass
        elif not valid(value) or (attribute == name and f"ce-{name}" in event.properties):
            others[name] = value
        elif name == "content-type":
            content_type = value.rstrip()
        else:
            context[attribute] = value
    if others:
        context[OTHERS] = json.dumps(others, separators=(",", ":"))
    return Attributes(context, content_type, trace)


def binary_headers(event: Event, source: str) -> str:
    """Header lines of a request with this one event; the payload is the body as it is.

    Raises Undeliverable for a message whose attributes are too large for any server.
    """
    properties = event.properties
    if not properties or (len(properties) == 1 and ID_PROPERTY in properties):
        # The usual message, in one go: this is the busy path, and the other one takes four times as long.
        time = _rfc3339(event.time_ms)
        time_line = f"ce-time: {time}\r\n" if time else ""
        key_line = f"ce-partitionkey: {header_value(event.group_id)}\r\n" if event.group_id else ""
        lines = (
            f"ce-specversion: 1.0\r\nce-id: {header_value(event.id)}\r\nce-source: {header_value(source)}\r\n"
            f"ce-type: {DEFAULT_TYPE}\r\n{time_line}{key_line}content-type: {DEFAULT_CONTENT_TYPE}\r\n"
        )
    else:
        context, content_type, trace = attributes(event, source)
        pairs = [f"ce-{name}: {header_value(value)}\r\n" for name, value in context.items()]
        pairs.extend(f"{name}: {value}\r\n" for name, value in trace.items())
        lines = f"ce-specversion: 1.0\r\n{''.join(pairs)}content-type: {content_type}\r\n"
    if len(lines) > MAX_HEADER_BYTES:
        raise _too_large(event)
    return lines


def batch_body(events: Iterable[tuple[Event, int]], source: str) -> bytes:
    """The body of a request with several events, each with the number of its attempt."""
    return b"[" + b",".join(_batched(event, attempt, source) for event, attempt in events) + b"]"


def header_value(value: str) -> str:
    """A value as the HTTP binding encodes it: visible ASCII, whatever it was."""
    if _UNSAFE.search(value) is None:
        return value
    if len(value) > MAX_HEADER_BYTES:
        return "?" * (
            MAX_HEADER_BYTES + 1
        )  # too large in any case; encoding megabytes would stall the others
    return quote(value, safe=_SAFE, errors="replace")


def _batched(event: Event, attempt: int, source: str) -> bytes:
    context, content_type, trace = attributes(event, source)
    document = {"specversion": "1.0", **context, **trace, "datacontenttype": content_type}
    document |= {"millraceattempt": str(attempt), "millraceposition": str(event.position)}
    member, data = _data(event.payload, content_type)
    head = json.dumps(document, separators=(",", ":"))
    return b'%s,"%s":%s}' % (head[:-1].encode(), member.encode(), data)


def _data(payload: bytes, content_type: str) -> tuple[str, bytes]:
    """The payload as JSON or text where it is that, else as base64; what is JSON stays as it was written."""
    essence, _, parameters = content_type.lower().partition(";")
    essence = essence.strip()
    try:
        if essence == "application/json" or essence.endswith("+json"):
            json.loads(payload.decode(), parse_constant=_refuse)
            return "data", payload
        if essence.startswith("text/") and ("charset" not in parameters or "utf-8" in parameters):
            return "data", json.dumps(payload.decode()).encode()
    except (ValueError, RecursionError):
        pass
    return "data_base64", b'"%s"' % base64.b64encode(payload)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _trace(properties: Mapping[str, str]) -> dict[str, str]:
    """Trace Context, if it is one; a state without a parent means nothing."""
    parent, state = properties.get("traceparent", ""), properties.get("tracestate", "")
    if not _TRACEPARENT.fullmatch(parent):
        return {}
    return {"traceparent": parent} | ({"tracestate": state} if _TRACESTATE.fullmatch(state) else {})


Valid = Callable[[str], object]


def _is_time(value: str) -> bool:
    if not _TIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(value.upper())
    except ValueError:
        return False
    return True


def _anything(_value: str) -> bool:
    return True


def _nothing(_value: str) -> bool:
    return False


@lru_cache(maxsize=4096)
def _role(name: str) -> tuple[str | None, Valid]:
    """The attribute that a property may set, and with which values; None for what is dropped.

    Remembered: properties have the same few names in all messages of a topic.
    """
    attribute = name.removeprefix("ce-")
    if name == ID_PROPERTY:
        return None, _nothing
    if name == "content-type":
        return "datacontenttype", _MEDIA_TYPE.fullmatch
    if attribute != name and attribute in _CHOSEN:
        return attribute, bool
    if attribute != name and attribute == "time":
        return attribute, _is_time
    if _EXTENSION.fullmatch(attribute) and attribute not in _NOT_EXTENSIONS:
        return attribute, _anything
    return name, _nothing


def _rfc3339(milliseconds: int) -> str:
    seconds, rest = divmod(milliseconds, 1000)
    date = _date(seconds)
    return f"{date}.{rest:03d}Z" if date else ""


@lru_cache(maxsize=1024)
def _date(seconds: int) -> str:
    """To the second; messages come in the order in which they were published, many a second."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return ""  # a producer may claim any time; the attribute is optional


def _too_large(event: Event) -> Undeliverable:
    sizes = {f"property {name[:64]!r}": len(value) for name, value in event.properties.items()}
    sizes["group id"] = len(event.group_id)
    largest = max(sizes, key=lambda what: sizes[what])
    return Undeliverable(
        f"the group id and properties would take more than {MAX_HEADER_BYTES} bytes of request headers; "
        f"the largest is the {largest} with {sizes[largest]} characters"
    )
