"""How a message is shown: one line of text, or one JSON document."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from millrace.cli.display import visible

if TYPE_CHECKING:
    from rich.text import Text

    from millrace.client.partitions import Message


def document(message: Message) -> dict[str, Any]:
    """For JSON. A payload that is no UTF-8 is there as `payloadBase64`; the other one is null then."""
    payload, encoded = None, None
    try:
        payload = message.payload.decode()
    except UnicodeDecodeError:
        encoded = base64.b64encode(message.payload).decode()
    return {
        "group": message.group_id,
        "payload": payload,
        "payloadBase64": encoded,
        "properties": dict(message.properties),
        "position": str(message.position),
        "partition": message.partition,
        "publishTime": message.publish_time,
        "messageId": message.message_id,
    }


def line(message: Message) -> Text:
    """For people: position, group, payload and properties."""
    from rich.text import Text  # noqa: PLC0415 - JSON needs none of it

    text = Text.assemble(
        (f"{message.position}", "dim"),
        "  ",
        (visible(message.group_id), "bold"),
        "  ",
        visible(message.payload.decode(errors="backslashreplace")),
    )
    for name, value in sorted(message.properties.items()):
        text.append(f"  {visible(name)}={visible(value)}", "cyan")
    return text
