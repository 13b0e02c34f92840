"""The work queue's rules, each by example, and all of them together under random histories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace.controller.schedules import Backoff, Schedule


def schedule(chance: float = 0.0, **backoff: float) -> Schedule[str]:
    return Schedule(Backoff(**backoff), lambda: chance)


def take(s: Schedule[str], now: float) -> str | None:
    taken = s.take(now)
    return taken[0] if taken else None


def test_keys_come_in_the_order_in_which_they_fell_due() -> None:
    s = schedule()
    s.add("late", 2.0)
    s.add("early", 1.0)
    s.add("same", 1.0)
    assert [take(s, 3.0), take(s, 3.0), take(s, 3.0), take(s, 3.0)] == ["early", "same", "late", None]


def test_a_key_is_not_taken_before_it_is_due() -> None:
    s = schedule()
    s.add("a", 5.0)
    assert take(s, 4.9) is None
    assert s.next_due() == 5.0
    assert take(s, 5.0) == "a"


def test_a_key_added_many_times_is_worked_on_once() -> None:
    s = schedule()
    for due in (3.0, 1.0, 2.0, 1.0):
        s.add("a", due)
    assert s.take(1.0) == ("a", 1.0)
    s.succeeded("a", 1.0)
    assert take(s, 10.0) is None
    assert "a" not in s


def test_a_key_is_never_worked_on_twice_at_once() -> None:
    s = schedule()
    s.add("a", 0.0)
    assert take(s, 0.0) == "a"
    s.add("a", 0.0)
    s.add("b", 1.0)
    assert take(s, 1.0) == "b"
    assert take(s, 1.0) is None
    assert s.next_due() is None, "an active key must not make the loop spin"


def test_what_is_added_during_the_work_is_due_at_once_afterwards() -> None:
    s = schedule()
    s.add("a", 0.0)
    take(s, 0.0)
    s.add("a", 1.0)
    s.succeeded("a", 2.0, again_after=600.0)
    assert take(s, 2.0) == "a"


def test_a_success_may_ask_for_another_look_later() -> None:
    s = schedule()
    s.add("a", 0.0)
    take(s, 0.0)
    s.succeeded("a", 10.0, again_after=600.0)
    assert s.next_due() == 610.0


def test_failures_in_a_row_double_the_delay_up_to_the_ceiling() -> None:
    s = schedule(first=1.0, ceiling=5.0)
    delays = []
    s.add("a", 0.0)
    now = 0.0
    for _ in range(5):
        take(s, now)
        delays.append(s.failed("a", now))
        now = s.next_due() or now
    assert delays == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_a_success_forgets_the_failures() -> None:
    s = schedule(first=1.0)
    s.add("a", 0.0)
    take(s, 0.0)
    s.failed("a", 0.0)
    take(s, 1.0)
    s.succeeded("a", 1.0)
    assert s.failures("a") == 0


def test_the_other_side_may_ask_for_a_longer_delay() -> None:
    s = schedule(first=1.0)
    s.add("a", 0.0)
    take(s, 0.0)
    assert s.failed("a", 0.0, at_least=30.0) == 30.0


def test_news_do_not_wait_for_the_backoff_and_do_not_erase_the_failures() -> None:
    s = schedule(first=100.0)
    s.add("a", 0.0)
    take(s, 0.0)
    s.failed("a", 0.0)
    s.add("a", 1.0)
    assert take(s, 1.0) == "a"
    assert s.failures("a") == 1
    s.succeeded("a", 1.0)
    assert take(s, 1000.0) is None, "the retry that the news overtook is not due any more"


def test_chance_shortens_a_delay_by_at_most_the_spread() -> None:
    assert Backoff(first=10.0, spread=0.3).delay(1, 0.0) == 10.0
    assert 7.0 <= Backoff(first=10.0, spread=0.3).delay(1, 0.999) < 7.1
    assert Backoff(ceiling=60.0).delay(5000, 0.0) == 60.0


def test_a_forgotten_key_is_not_due() -> None:
    s = schedule()
    s.add("a", 0.0)
    s.forget("a")
    assert take(s, 1.0) is None
    assert s.depth(1.0) == 0


def test_depth_counts_what_is_due_and_waits() -> None:
    s = schedule()
    for key in "abc":
        s.add(key, 0.0)
    s.add("later", 9.0)
    take(s, 0.0)
    assert (s.depth(0.0), s.active) == (2, 1)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "take", "succeed", "fail", "forget", "tick"]),
        st.sampled_from("abc"),
        st.integers(0, 5),
    ),
    max_size=60,
)


@given(OPERATIONS)
def test_no_history_works_on_a_key_twice_at_once_or_loses_one(operations: list[tuple[str, str, int]]) -> None:
    s = schedule(first=1.0, ceiling=8.0)
    now = 0.0
    active: set[str] = set()
    wanted: set[str] = set()
    for operation, key, number in operations:
        match operation:
            case "add":
                s.add(key, now + number)
                wanted.add(key)
            case "take":
                taken = take(s, now)
                if taken is not None:
                    assert taken not in active
                    active.add(taken)
                    wanted.discard(taken)
            case "succeed" if key in active:
                s.succeeded(key, now)
                active.discard(key)
            case "fail" if key in active:
                s.failed(key, now)
                active.discard(key)
                wanted.add(key)
            case "forget":
                s.forget(key)
                wanted.discard(key)
            case "tick":
                now += number
    for key in list(active):
        s.succeeded(key, now)
    now += 1000.0
    remaining = set()
    while (taken := take(s, now)) is not None:
        remaining.add(taken)
    assert remaining == wanted
