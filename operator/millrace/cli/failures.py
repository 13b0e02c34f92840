"""How a command ends: 0 done, 1 failed, 2 bad input, 130 interrupted; and one sentence that says why.

Bad input is whatever the user can put right in the command itself: nothing was sent then.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from typer.core import TyperGroup

from millrace.cli.display import complain
from millrace.core.errors import DescriptorError, DomainError

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130


class BadInput(Exception):  # noqa: N818 - the name is what is wrong
    """Options that do not go together, or a value that cannot be."""


class Commands(TyperGroup):
    """A group of commands whose failures end in a sentence on standard error, never in a usage text."""

    def main(self, *args: Any, **options: Any) -> NoReturn:
        """Run a command and exit."""
        try:
            outcome = super().main(*args, **{**options, "standalone_mode": False})
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        except Exception as error:
            told = explain(error)
            if told is None:
                raise  # ours to mend: the trace is what is needed
            code, sentence = told
            complain(sentence)
            sys.exit(code)
        sys.exit(outcome if isinstance(outcome, int) else 0)


def explain(error: Exception) -> tuple[int, str] | None:
    """The exit code and the sentence for an error that a user can do something about; None for others."""
    if isinstance(error, BadInput) or (
        isinstance(error, DomainError) and not isinstance(error, DescriptorError)
    ):
        return BAD_INPUT, str(error)
    if hasattr(error, "format_message"):  # what the parser raises; its class is private there
        return BAD_INPUT, _usage(error)
    if isinstance(error, OSError):
        return FAILED, str(error)
    # Only here: a command that never connects must not load the client in order to fail.
    from millrace.client.errors import ClientError, InvalidMessage  # noqa: PLC0415
    from millrace.pulsar.errors import Misconfigured, PulsarError  # noqa: PLC0415

    match error:
        case InvalidMessage() | Misconfigured():
            return BAD_INPUT, str(error)
        case ClientError() | PulsarError() | DescriptorError():
            return FAILED, str(error)
        case _:
            return None


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "millrace"
    said = str(error.format_message()).strip().rstrip(".")
    return f"{said[:1].lower()}{said[1:]}; see `{command} --help`"
