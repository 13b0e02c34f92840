"""What a step is doing, how far it is and how long it has taken, for people and for logs.

A terminal gets one live line a step; anything else (CI, a file) gets plain lines, one every half minute.
Everything goes to standard error, so that standard output stays clean for what a command answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

PLAIN_INTERVAL_SECONDS = 30.0

console = Console(stderr=True, highlight=False)


class Step:
    """One step under way; `say` replaces the detail that is shown beside its title."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.detail = ""

    def say(self, detail: str) -> None:
        """Show what is being done right now."""
        self.detail = detail


@contextmanager
def step(title: str) -> Iterator[Step]:
    """Show a step from its start to its end, with the time it took."""
    current = Step(title)
    started = time.monotonic()
    stopped = threading.Event()
    show = _live if console.is_terminal else _plain
    thread = threading.Thread(target=show, args=(current, started, stopped), daemon=True)
    thread.start()
    outcome = "[red]failed[/]"
    try:
        yield current
        outcome = "[green]done[/]"
    finally:
        stopped.set()
        thread.join()
        console.print(f"{outcome} {title} [dim]({_elapsed(started)})[/]")


def _elapsed(started: float) -> str:
    seconds = time.monotonic() - started
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _live(current: Step, started: float, stopped: threading.Event) -> None:
    # A step that is over at once (the second `up`) would only flicker.
    if stopped.wait(0.3):
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        TextColumn("[dim]{task.fields[detail]}[/]"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(current.title, total=None, detail="")
        while not stopped.wait(0.2):
            progress.update(task, detail=current.detail[-(max(20, console.width - 50)) :])
        del started


def _plain(current: Step, started: float, stopped: threading.Event) -> None:
    while not stopped.wait(PLAIN_INTERVAL_SECONDS):
        detail = f": {current.detail}" if current.detail else ""
        console.print(f"... {current.title}{detail} ({_elapsed(started)})", markup=False)
