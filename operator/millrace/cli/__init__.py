"""The command line: what people type to ask where a group goes, and to look into a composite topic.

Nothing is decided here. A command reads its options into values, asks `millrace.core` or
`millrace.client`, and prints the answer. The client is imported only by the commands that connect, so
that those that only compute start at once.
"""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command of this process, and exit with its code."""
    from millrace.cli.app import app  # noqa: PLC0415 - importing this package must cost nothing

    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character gets its escape, not a crash half way through a message.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="millrace")
