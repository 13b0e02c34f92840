"""The promise, as a checker: per group, first deliveries are in order and nothing is lost.

After a fault a group may step back and repeat; from there it must run in order again. So a delivery may
repeat anything that was delivered before, or be the very next one; what it may never do is jump ahead of the
delivery before it. Every test, simulation and demonstration judges with this one definition.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Violation:
    """A delivery that came before one it has to follow."""

    group: Hashable
    expected: int
    delivered: int

    def __str__(self) -> str:
        return (
            f"group {self.group}: message {self.delivered} came where {self.expected} was the newest allowed"
        )


@dataclass(slots=True)
class _Group:
    cursor: int = -1
    newest: int = -1


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of everything that was sent."""

    sent: int
    delivered: int
    repeats: int
    missing: Mapping[Hashable, int]
    violations: tuple[Violation, ...]

    def holds(self, *, repeats_allowed: int) -> bool:
        """Whether the promise was kept, with no more repeats than the faults of the run explain."""
        return not self.missing and not self.violations and self.repeats <= repeats_allowed


@dataclass(slots=True)
class PromiseChecker:
    """Fed with every send and every delivery; a group's messages are numbered 0, 1, 2, … as they are sent."""

    violations: list[Violation] = field(default_factory=list)
    delivered: int = 0
    repeats: int = 0
    _sent: dict[Hashable, int] = field(default_factory=dict)
    _groups: dict[Hashable, _Group] = field(default_factory=dict)

    @property
    def sent(self) -> int:
        """How many messages were sent in all."""
        return sum(self._sent.values())

    def next_number(self, group: Hashable) -> int:
        """The number of the group's next message; asking counts it as sent."""
        number = self._sent.get(group, 0)
        self._sent[group] = number + 1
        return number

    def deliver(self, group: Hashable, number: int) -> Violation | None:
        """Judge one delivery."""
        state = self._groups.setdefault(group, _Group())
        violation = None
        if number > state.cursor + 1:
            violation = Violation(group, expected=state.cursor + 1, delivered=number)
            self.violations.append(violation)
        if number <= state.newest:
            self.repeats += 1
        self.delivered += 1
        state.cursor = number
        state.newest = max(state.newest, number)
        return violation

    def verdict(self) -> Verdict:
        """The judgement over everything so far: call it when all that was sent should have arrived."""
        missing = {
            group: sent - 1 - newest
            for group, sent in self._sent.items()
            if (newest := self._groups.get(group, _Group()).newest) < sent - 1
        }
        return Verdict(self.sent, self.delivered, self.repeats, missing, tuple(self.violations))
