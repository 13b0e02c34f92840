"""What is printed: answers to standard output, everything else to standard error.

Payloads, properties and group ids come from others. As text they are shown on one line with their control
characters escaped, so that no message can move the cursor or colour the terminal; JSON escapes them itself.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.console import Console

Output = Literal["text", "json"]


def print_json(document: Mapping[str, Any]) -> None:
    """One JSON document on a line of its own, at once: somebody may be reading along."""
    print(json.dumps(document), flush=True)


def terminal() -> Console:
    """For text with colours; plain, and as wide as it needs to be, where nobody looks at it directly."""
    from rich.console import Console  # noqa: PLC0415 - JSON needs none of it

    return Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else 1000)


def complain(sentence: str) -> None:
    """Say what is wrong."""
    print(f"millrace: {visible(' '.join(sentence.split()))}", file=sys.stderr, flush=True)


def visible(text: str) -> str:
    """The text with everything escaped that a terminal would act on, or not show, instead of print."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )


def log_to_stderr(*, verbose: bool) -> None:
    """What the client warns of goes to standard error; what the native client says only on demand."""
    logging.basicConfig(format="millrace: %(message)s", level=logging.WARNING, stream=sys.stderr)
    logging.getLogger("millrace").setLevel(logging.INFO if verbose else logging.WARNING)
    # Its warnings repeat what the sentence at the end says, in the words of a library.
    logging.getLogger("millrace.pulsar.client").setLevel(logging.INFO if verbose else logging.CRITICAL)
