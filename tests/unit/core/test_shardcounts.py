"""The shard count that is asked for, made to fit: exhaustively for all small cases."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

from millrace.api.reasons import Reason
from millrace.core.errors import InvalidLayout
from millrace.core.routing import is_even_partition_count, partitions_of_shard
from millrace.core.shardcounts import fitted, permitted

EVEN = [count for count in range(1, 25) if is_even_partition_count(count)]

for_every_layout = pytest.mark.parametrize(
    "partitions",
    [*((count,) for count in range(1, 31)), *combinations_with_replacement(EVEN, 2)],
    ids=lambda counts: "-".join(map(str, counts)),
)


def divides(count: int, partitions: tuple[int, ...]) -> bool:
    return all(each % count == 0 for each in partitions)


@for_every_layout
def test_what_comes_out_fits_and_is_the_least_that_does_and_is_enough(partitions: tuple[int, ...]) -> None:
    for wanted in range(1, 2 * max(partitions) + 2):
        made = fitted(wanted, partitions)

        assert divides(made.effective, partitions)
        assert 1 <= made.effective <= min(partitions)
        enough = [count for count in range(wanted, min(partitions) + 1) if divides(count, partitions)]
        largest = max(count for count in range(1, min(partitions) + 1) if divides(count, partitions))
        assert made.effective == (enough[0] if enough else largest)


@for_every_layout
def test_a_reason_is_given_exactly_where_the_count_was_changed(partitions: tuple[int, ...]) -> None:
    for wanted in range(2 * max(partitions) + 2):
        made = fitted(wanted, partitions)

        assert (made.reason is None) == (made.effective == wanted) == (made.message == "")
        if made.effective > wanted:
            assert made.reason is Reason.RAISED_TO_FIT
        elif made.effective < wanted:
            assert made.reason is Reason.CLAMPED_TO_PARTITIONS
        if made.reason:
            assert str(wanted) in made.message
            assert str(made.effective) in made.message


@for_every_layout
def test_an_autoscaler_that_repeats_itself_changes_nothing_and_one_that_asks_for_more_gets_no_less(
    partitions: tuple[int, ...],
) -> None:
    effective = [fitted(wanted, partitions).effective for wanted in range(1, 2 * max(partitions))]

    assert effective == sorted(effective)
    assert all(fitted(count, partitions).effective == count for count in effective)


@pytest.mark.parametrize("partitions", range(1, 49))
def test_every_shard_of_a_fitting_count_has_equally_many_partitions(partitions: int) -> None:
    for count in permitted([partitions]):
        assert {len(partitions_of_shard(shard, partitions, count)) for shard in range(count)} == {
            partitions // count
        }


@for_every_layout
def test_an_uneven_count_is_taken_as_it_is_where_that_is_allowed(partitions: tuple[int, ...]) -> None:
    for wanted in range(2 * max(partitions) + 2):
        made = fitted(wanted, partitions, allow_uneven=True)

        assert (made.effective, made.reason) == (wanted, None)


@pytest.mark.parametrize("allow_uneven", [False, True])
def test_none_means_suspended(allow_uneven: bool) -> None:
    assert fitted(0, [12], allow_uneven=allow_uneven).effective == 0


def test_the_sentences_say_what_was_done_and_why() -> None:
    assert fitted(5, [12]).message == "shardCount 5 does not divide 12 partitions evenly, and was raised to 6"
    assert (
        fitted(13, [12]).message
        == "shardCount 13 is more than there are partitions (12): there are 12 shards"
    )
    assert (
        fitted(3, [4, 6]).message
        == "no count from 3 on divides 4 and 6 partitions evenly: there are 2 shards"
    )


@pytest.mark.parametrize("partitions", [(), (0,), (4, 0)])
def test_there_is_no_shard_count_without_partitions(partitions: tuple[int, ...]) -> None:
    with pytest.raises(InvalidLayout, match="needs storage topics with partitions"):
        fitted(1, partitions)


def test_fewer_shards_than_none_cannot_be() -> None:
    with pytest.raises(InvalidLayout, match="0 or more, not -1"):
        fitted(-1, [4])
