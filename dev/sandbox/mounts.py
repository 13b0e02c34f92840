"""The machine's mount table, and how to take mounts away again."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the mount table."""

    target: Path
    kind: str


def mounts() -> list[Mount]:
    """What is mounted now, oldest first."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place, _, source = line.partition(" - ")
        target = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), place.split()[4])
        found.append(Mount(Path(target), source.split()[0]))
    return found


def below(*directories: Path) -> list[Path]:
    """Mount points at or below any of the directories, newest first: the order in which they can go."""
    return [
        mount.target
        for mount in reversed(mounts())
        if any(mount.target == directory or directory in mount.target.parents for directory in directories)
    ]


def remove_below(*directories: Path) -> None:
    """Unmount everything at or below the directories; lazily what is still in use."""
    for _ in range(5):
        targets = below(*directories)
        if not targets:
            return
        for target in targets:
            # --no-canonicalize: resolving the path would touch what may hang.
            if (
                subprocess.run(["umount", "-c", str(target)], capture_output=True, check=False).returncode
                != 0
            ):
                subprocess.run(["umount", "-c", "-l", str(target)], capture_output=True, check=False)
