"""Conditions: that the three standard ones always agree, keep their times, and make no noise."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.api.meta import Condition, ConditionStatus
from millrace.api.reasons import ConditionType, Reason
from millrace.core.conditions import (
    MAX_MESSAGE,
    Risk,
    Transition,
    Verdict,
    conditions,
    ready,
    transitions,
    worth_saying,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
TRUE, FALSE = ConditionStatus.TRUE, ConditionStatus.FALSE
STANDARD = (ConditionType.READY, ConditionType.RECONCILING, ConditionType.STALLED)
OF_VERDICTS = [reason for reason in Reason if reason.condition in STANDARD]
verdicts = st.builds(Verdict, st.sampled_from(OF_VERDICTS), st.text(max_size=2000))
TTL = Risk(Reason.NAMESPACE_TTL, "the namespace has a TTL")
EVICTION = Risk(Reason.BACKLOG_EVICTION, "the backlog quota evicts")

CREATING = Verdict(Reason.CREATING, "preparing storage topics")
FORBIDDEN = Verdict(Reason.FORBIDDEN, "the role may not create topics")


def made(
    verdict: Verdict,
    previous: tuple[Condition, ...] = (),
    now: datetime = NOW,
    risks: list[Risk] | None = None,
    generation: int = 1,
) -> tuple[Condition, ...]:
    return conditions(verdict, previous, generation=generation, now=now, risks=risks)


def one(found: tuple[Condition, ...], kind: ConditionType) -> Condition:
    [condition] = [each for each in found if each.type == kind]
    return condition


@given(verdicts)
def test_exactly_one_of_the_three_is_true(verdict: Verdict) -> None:
    found = made(verdict)
    assert [each.type for each in found] == list(STANDARD)
    assert [each.type for each in found if each.status is TRUE] == [verdict.condition]


@given(verdicts)
def test_ready_always_tells_the_story(verdict: Verdict) -> None:
    found = one(made(verdict), ConditionType.READY)
    assert found.reason == verdict.reason
    assert found.message[:100] == verdict.message[:100]


def test_a_condition_that_does_not_hold_says_nothing_more() -> None:
    found = one(made(CREATING), ConditionType.STALLED)
    assert (found.status, found.reason, found.message) == (FALSE, Reason.NONE, "")


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason not in OF_VERDICTS])
def test_only_reasons_of_the_three_make_a_verdict(reason: Reason) -> None:
    with pytest.raises(ValueError, match="not the reason of a verdict"):
        Verdict(reason, "")


@given(verdicts, st.lists(st.just(TTL), max_size=40))
def test_messages_are_short_enough_to_read(verdict: Verdict, risks: list[Risk]) -> None:
    assert all(len(each.message) <= MAX_MESSAGE for each in made(verdict, risks=risks))


def test_a_message_that_was_cut_shows_it() -> None:
    assert one(made(ready("x" * 2000)), ConditionType.READY).message.endswith("x...")
    assert one(made(ready("x" * MAX_MESSAGE)), ConditionType.READY).message == "x" * MAX_MESSAGE


def test_every_condition_is_about_the_generation_that_was_looked_at() -> None:
    assert {each.observed_generation for each in made(CREATING, risks=[], generation=7)} == {7}


# Times


def test_the_time_moves_only_when_the_status_does() -> None:
    before = made(CREATING)
    sealing = made(Verdict(Reason.SEALING, "another reason, the same status"), before, LATER)
    assert {each.last_transition_time for each in sealing} == {NOW}
    done = made(ready("done"), before, LATER)
    assert {each.type: each.last_transition_time for each in done} == {
        ConditionType.READY: LATER,
        ConditionType.RECONCILING: LATER,
        ConditionType.STALLED: NOW,
    }


@given(st.lists(verdicts, min_size=1, max_size=6))
def test_the_time_is_always_that_of_the_last_change_of_status(history: list[Verdict]) -> None:
    found: tuple[Condition, ...] = ()
    changed: dict[str, tuple[ConditionStatus, datetime]] = {}
    for number, verdict in enumerate(history):
        now = NOW + timedelta(seconds=number)
        found = made(verdict, found, now)
        for each in found:
            if each.type not in changed or changed[each.type][0] is not each.status:
                changed[each.type] = each.status, now
            assert each.last_transition_time == changed[each.type][1]


def test_what_did_not_change_is_written_just_the_same() -> None:
    before = made(CREATING, risks=[TTL])
    assert made(CREATING, before, LATER, risks=[TTL]) == before


# Risks


def test_risks_are_named_together_under_the_first_reason() -> None:
    found = one(made(ready(""), risks=[TTL, EVICTION]), ConditionType.DATA_AT_RISK)
    assert (found.status, found.reason) == (TRUE, Reason.NAMESPACE_TTL)
    assert found.message == "the namespace has a TTL; the backlog quota evicts"


def test_no_risk_is_said_as_well() -> None:
    found = one(made(ready(""), risks=[]), ConditionType.DATA_AT_RISK)
    assert (found.status, found.reason, found.message) == (FALSE, Reason.NONE, "")


def test_risks_do_not_make_an_object_less_ready() -> None:
    assert one(made(ready(""), risks=[TTL]), ConditionType.READY).status is TRUE


def test_while_risks_are_not_known_what_was_said_of_them_stays() -> None:
    before = made(ready(""), risks=[TTL])
    after = made(Verdict(Reason.WAITING_FOR_PULSAR, "no answer"), before, LATER, generation=2)
    assert one(after, ConditionType.DATA_AT_RISK) == one(before, ConditionType.DATA_AT_RISK)
    assert ConditionType.DATA_AT_RISK not in {each.type for each in made(CREATING)}


# Events


def test_a_new_object_tells_its_verdict_once() -> None:
    assert transitions((), made(CREATING, risks=[])) == (
        Transition("Creating", "preparing storage topics", warning=False),
    )


def test_another_message_is_no_news() -> None:
    before = made(Verdict(Reason.SEALING, "sealing T0"), risks=[TTL])
    after = made(Verdict(Reason.SEALING, "sealing T1"), before, LATER, risks=[TTL])
    assert transitions(before, after) == ()


def test_another_reason_is_news_though_the_status_is_the_same() -> None:
    before = made(CREATING)
    after = made(Verdict(Reason.SWITCHING, "announcing"), before, LATER)
    assert transitions(before, after) == (Transition("Switching", "announcing", warning=False),)


def test_what_a_person_has_to_settle_is_a_warning() -> None:
    assert transitions(made(CREATING), made(FORBIDDEN)) == (
        Transition("Forbidden", "the role may not create topics", warning=True),
    )
    assert transitions(made(FORBIDDEN), made(ready("fine"))) == (Transition("Ready", "fine", warning=False),)


def test_a_risk_that_comes_is_a_warning_and_one_that_goes_is_told() -> None:
    safe, at_risk = made(ready(""), risks=[]), made(ready(""), risks=[TTL])
    assert transitions(safe, at_risk) == (
        Transition("NamespaceTTL", "the namespace has a TTL", warning=True),
    )
    assert transitions(at_risk, safe) == (
        Transition("DataSafe", "no danger to data is known any more", warning=False),
    )
    assert transitions((), safe)[1:] == (), "that a new object is safe is no news"


@given(verdicts, st.sampled_from([None, [], [TTL], [TTL, EVICTION]]))
def test_the_same_again_is_never_an_event(verdict: Verdict, risks: list[Risk] | None) -> None:
    before = made(verdict, risks=risks)
    assert transitions(before, made(verdict, before, LATER, risks=risks)) == ()


# What is said while work is under way

WORK = [Reason.CREATING, Reason.UPDATING, Reason.SWITCHING, Reason.SEALING, Reason.DELETING]
FAILURES = [Reason.WAITING_FOR_PULSAR, Reason.UNAUTHORIZED, Reason.FOREIGN_OWNER, Reason.TOPIC_VANISHED]


@pytest.mark.parametrize("doing", WORK)
@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_stands_while_it_is_tried_again(failure: Reason, doing: Reason) -> None:
    assert not worth_saying(Verdict(doing, ""), failure, afresh=False)


@pytest.mark.parametrize("doing", WORK)
@pytest.mark.parametrize("said", [None, Reason.READY, *FAILURES, *WORK])
def test_a_changed_spec_is_answered_at_once(said: Reason | None, doing: Reason) -> None:
    assert worth_saying(Verdict(doing, ""), said, afresh=True)


@pytest.mark.parametrize("doing", WORK)
def test_an_object_that_is_resumed_no_longer_says_paused(doing: Reason) -> None:
    assert worth_saying(Verdict(doing, ""), Reason.PAUSED, afresh=False)


@pytest.mark.parametrize("doing", WORK)
def test_nothing_is_said_twice(doing: Reason) -> None:
    assert not worth_saying(Verdict(doing, ""), doing, afresh=False)


def test_looking_at_what_is_ready_is_not_worth_a_word_but_working_on_it_is() -> None:
    told = {doing for doing in WORK if worth_saying(Verdict(doing, ""), Reason.READY, afresh=False)}
    assert told == {Reason.SWITCHING, Reason.SEALING, Reason.DELETING}


def test_each_stage_of_a_switch_is_said() -> None:
    stages = [Reason.UPDATING, Reason.SWITCHING, Reason.SEALING, Reason.SWITCHING]
    for said, doing in pairwise(stages):
        assert worth_saying(Verdict(doing, ""), said, afresh=False)
