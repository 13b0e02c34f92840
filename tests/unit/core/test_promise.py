"""The checker that judges every other test must itself be right: each kind of breach is planted and found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.promise import PromiseChecker


def judged(sent: int, deliveries: list[int]) -> PromiseChecker:
    checker = PromiseChecker()
    for _ in range(sent):
        checker.next_number("g")
    for number in deliveries:
        checker.deliver("g", number)
    return checker


def test_everything_once_and_in_order_keeps_the_promise() -> None:
    verdict = judged(4, [0, 1, 2, 3]).verdict()
    assert verdict.holds(repeats_allowed=0)
    assert (verdict.sent, verdict.delivered, verdict.repeats) == (4, 4, 0)


def test_a_step_back_that_runs_in_order_again_keeps_the_promise_and_counts_its_repeats() -> None:
    verdict = judged(4, [0, 1, 2, 0, 1, 2, 3]).verdict()
    assert verdict.holds(repeats_allowed=3)
    assert not verdict.holds(repeats_allowed=2)


@pytest.mark.parametrize(
    "deliveries",
    [
        pytest.param([1, 0, 2, 3], id="the first two swapped"),
        pytest.param([0, 2, 1, 3], id="one overtook another"),
        pytest.param([0, 1, 2, 3, 0, 3], id="a repeat that jumps ahead"),
    ],
)
def test_an_overtaking_is_a_violation(deliveries: list[int]) -> None:
    verdict = judged(4, deliveries).verdict()
    assert verdict.violations
    assert not verdict.holds(repeats_allowed=100)


def test_a_message_that_never_came_is_missing() -> None:
    verdict = judged(4, [0, 1]).verdict()
    assert verdict.missing == {"g": 2}
    assert not verdict.holds(repeats_allowed=0)


def test_a_group_of_which_nothing_came_is_missing() -> None:
    checker = PromiseChecker()
    checker.next_number("silent")
    assert checker.verdict().missing == {"silent": 1}


@given(st.lists(st.integers(0, 7), max_size=12))
def test_it_agrees_with_the_definition_by_first_deliveries(deliveries: list[int]) -> None:
    """Independent wording: every number must be at most one above its predecessor (-1 before the first)."""
    steps_ahead = [b for a, b in zip([-1, *deliveries], deliveries, strict=False) if b > a + 1]
    assert len(judged(8, deliveries).violations) == len(steps_ahead)
