"""Conditions as kstatus, `kubectl wait`, Flux and Argo CD read them, made from one verdict.

A reconciliation ends in exactly one verdict: ready, reconciling or stalled, with one reason and one
sentence. From it follow all three standard conditions, so that they can never contradict each other.
`lastTransitionTime` moves only when a status changes, and an event is due only when a status or reason
changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from millrace.api.meta import Condition, ConditionStatus
from millrace.api.reasons import ConditionType, Reason

MAX_MESSAGE = 1024
"""What an error says can be long; a condition is for reading, and the log has the rest."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an object is. The reason alone decides which condition is True."""

    reason: Reason
    message: str

    def __post_init__(self) -> None:
        if self.reason.condition not in (
            ConditionType.READY,
            ConditionType.RECONCILING,
            ConditionType.STALLED,
        ):
            raise ValueError(f"{self.reason} is not the reason of a verdict")

    @property
    def condition(self) -> ConditionType:
        """The one of Ready, Reconciling and Stalled that is True."""
        assert self.reason.condition is not None
        return self.reason.condition


def ready(message: str) -> Verdict:
    """All is as declared."""
    return Verdict(Reason.READY, message)


def worth_saying(doing: Verdict, said: Reason | None, *, afresh: bool) -> bool:
    """Whether to say what is about to be done. `said` is the present reason, given for the present generation
    unless `afresh`.

    A look at something that is in order is not worth a word. What failed stands until it is over: attempts
    that fail again would otherwise say Creating most of the time, and make two events each.
    """
    if said is None or afresh:
        return True
    failed = said is Reason.WAITING_FOR_PULSAR or (
        said.condition is ConditionType.STALLED and said is not Reason.PAUSED
    )
    looking = said is Reason.READY and doing.reason in (Reason.CREATING, Reason.UPDATING)
    return not failed and not looking and said is not doing.reason


@dataclass(frozen=True, slots=True)
class Risk:
    """A danger to data that is not ours to remove."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Adjustment:
    """What was made of the shard count; `reason` is None where it is the one that was asked for."""

    reason: Reason | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class Transition:
    """A change worth an event."""

    reason: str
    message: str
    warning: bool


def conditions(
    verdict: Verdict,
    previous: Iterable[Condition],
    *,
    generation: int,
    now: datetime,
    risks: Sequence[Risk] | None = None,
    adjustment: Adjustment | None = None,
) -> tuple[Condition, ...]:
    """The conditions to write. `risks` or `adjustment` None: not known at present, so what was said of them
    stays.
    """
    before = {condition.type: condition for condition in previous}
    made = [
        _verdict_condition(kind, verdict)
        for kind in (ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED)
    ]
    if risks is not None:
        made.append(_risk_condition(risks))
    if adjustment is not None:
        made.append(_adjustment_condition(adjustment))
    written = [
        Condition(
            type=kind,
            status=status,
            reason=reason,
            message=_shortened(message),
            observed_generation=generation,
            last_transition_time=_since(before.get(kind), status, now),
        )
        for kind, status, reason, message in made
    ]
    unknown = {ConditionType.DATA_AT_RISK: risks, ConditionType.SHARD_COUNT_ADJUSTED: adjustment}
    written.extend(before[kind] for kind, found in unknown.items() if found is None and kind in before)
    return tuple(written)


def _verdict_condition(kind: ConditionType, verdict: Verdict) -> tuple[str, ConditionStatus, str, str]:
    if kind is verdict.condition:
        return kind, ConditionStatus.TRUE, verdict.reason, verdict.message
    if kind is ConditionType.READY:
        return kind, ConditionStatus.FALSE, verdict.reason, verdict.message
    return kind, ConditionStatus.FALSE, Reason.NONE, ""


def _risk_condition(risks: Sequence[Risk]) -> tuple[str, ConditionStatus, str, str]:
    if not risks:
        return ConditionType.DATA_AT_RISK, ConditionStatus.FALSE, Reason.NONE, ""
    message = "; ".join(risk.message for risk in risks)
    return ConditionType.DATA_AT_RISK, ConditionStatus.TRUE, risks[0].reason, message


def _adjustment_condition(adjustment: Adjustment) -> tuple[str, ConditionStatus, str, str]:
    if adjustment.reason is None:
        return ConditionType.SHARD_COUNT_ADJUSTED, ConditionStatus.FALSE, Reason.NONE, ""
    return (
        ConditionType.SHARD_COUNT_ADJUSTED,
        ConditionStatus.TRUE,
        adjustment.reason,
        adjustment.message,
    )


def _since(before: Condition | None, status: ConditionStatus, now: datetime) -> datetime:
    return before.last_transition_time if before is not None and before.status is status else now


def _shortened(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 3]}..."


def transitions(previous: Iterable[Condition], current: Iterable[Condition]) -> tuple[Transition, ...]:
    """What changed from one to the other, for events: the verdict once (not per condition), and the risks."""
    before = {condition.type: condition for condition in previous}
    changes = []
    for condition in current:
        earlier = before.get(condition.type)
        if earlier is not None and (earlier.status, earlier.reason) == (condition.status, condition.reason):
            continue
        if condition.type == ConditionType.READY:
            stalled = Reason(condition.reason).condition is ConditionType.STALLED
            changes.append(Transition(condition.reason, condition.message, warning=stalled))
        elif condition.type == ConditionType.DATA_AT_RISK and condition.status is ConditionStatus.TRUE:
            changes.append(Transition(condition.reason, condition.message, warning=True))
        elif condition.type == ConditionType.DATA_AT_RISK and earlier is not None:
            changes.append(Transition("DataSafe", "no danger to data is known any more", warning=False))
        elif (
            condition.type == ConditionType.SHARD_COUNT_ADJUSTED and condition.status is ConditionStatus.TRUE
        ):
            changes.append(Transition(condition.reason, condition.message, warning=False))
    return tuple(changes)
