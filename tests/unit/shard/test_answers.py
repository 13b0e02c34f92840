"""Reading answers: every form that HTTP has, every way to break it, in any pieces."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.shard.answers import MAX_BODY, MAX_HEAD, MAX_SAID, Answer, AnswerReader, BadAnswer

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
CHUNKED = b"HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
SLOW_DOWN = b"HTTP/1.1 429 Slow\r\nReTry-AfTer:  7 \r\ncontent-length: 4\r\n\r\nwait"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\nretry-after: 9\r\n\r\n"
WHOLE = [OK, NO_CONTENT, CHUNKED, SLOW_DOWN, INTERIM + OK, INTERIM + CHUNKED]


def read(*pieces: bytes, end: bool = False) -> tuple[Answer | None, AnswerReader]:
    reader = AnswerReader()
    answer: Answer | None = None
    for piece in pieces:
        assert answer is None
        answer = reader.feed(piece)
    if end:
        assert answer is None
        answer = reader.feed_end()
    return answer, reader


def seen(answer: Answer | None) -> tuple[int, bytes, str | None] | None:
    return None if answer is None else (answer.status, answer.said, answer.retry_after)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (OK, (200, b"", None)),
        (NO_CONTENT, (204, b"", None)),
        (CHUNKED, (500, b"abcde", None)),
        (SLOW_DOWN, (429, b"wait", "7")),
        (INTERIM + NO_CONTENT, (204, b"", None)),
        (INTERIM + CHUNKED, (500, b"abcde", None)),
        (b"HTTP/1.1 304 Not Modified\r\n\r\n", (304, b"", None)),
    ],
)
def test_a_complete_answer_is_read_and_the_connection_may_be_used_again(
    data: bytes, expected: tuple[int, bytes, str | None]
) -> None:
    answer, reader = read(data)
    assert seen(answer) == expected
    assert reader.reusable


@given(st.sampled_from(WHOLE), st.lists(st.integers(0, 200), max_size=12))
def test_pieces_make_no_difference(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:stop] for start, stop in pairwise(places)]
    answer, reader = read(*pieces)
    assert seen(answer) == seen(read(data)[0])
    assert reader.reusable


@given(st.lists(st.sampled_from(WHOLE), min_size=1, max_size=6))
def test_one_answer_leaves_nothing_behind_for_the_next(answers: list[bytes]) -> None:
    reader = AnswerReader()
    for data in answers:
        assert seen(reader.feed(data)) == seen(read(data)[0])
        assert reader.reusable


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        OK + NO_CONTENT,
        OK + b"HTTP/1.1 2",
        OK + b"garbage",
        NO_CONTENT + b"H",
        INTERIM + OK + INTERIM,
    ],
)
def test_an_answer_counts_though_its_connection_may_not_be_used_again(data: bytes) -> None:
    answer, reader = read(data)
    assert seen(answer) in [(200, b"", None), (204, b"", None)]
    assert not reader.reusable


def test_http_1_0_with_keep_alive_may_be_used_again() -> None:
    answer, reader = read(b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n")
    assert seen(answer) == (200, b"", None)
    assert reader.reusable


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("body", [b"", b"until the end"])
def test_an_answer_without_length_ends_with_the_connection(version: bytes, body: bytes) -> None:
    answer, reader = read(b"HTTP/%s 500 No\r\nretry-after: 3\r\n\r\n%s" % (version, body), end=True)
    assert seen(answer) == (500, body, "3")
    assert not reader.reusable


@pytest.mark.parametrize("data", [OK, CHUNKED, SLOW_DOWN, INTERIM + OK])
def test_an_answer_that_breaks_off_anywhere_is_none(data: bytes) -> None:
    for length in range(1, len(data)):
        reader = AnswerReader()
        if reader.feed(data[:length]) is not None:
            pytest.fail(f"complete after {length} of {len(data)} bytes")
        with pytest.raises(BadAnswer, match="in the middle"):
            reader.feed_end()


def test_a_connection_that_ends_without_a_byte_has_no_answer() -> None:
    assert read(end=True)[0] is None


@pytest.mark.parametrize(
    "data",
    [
        b"garbage\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/3.7 200 OK\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
    ],
)
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises(BadAnswer, match="endpoint"):
        read(data)


def test_a_head_without_end_is_given_up() -> None:
    with pytest.raises(BadAnswer, match="64 KiB"):
        read(b"HTTP/1.1 200 OK\r\n", *[b"x: " + b"y" * 1021] * (2 * MAX_HEAD // 1024))


def test_interim_answers_without_end_are_given_up() -> None:
    with pytest.raises(BadAnswer, match="64 KiB"):
        read(*[b"HTTP/1.1 100 Continue\r\n\r\n"] * MAX_HEAD)


def test_of_a_body_without_end_the_status_counts() -> None:
    reader = AnswerReader()
    assert reader.feed(b"HTTP/1.1 502 No\r\ncontent-length: 9999999999\r\n\r\n") is None
    for number in range(2 * MAX_BODY // 65536):
        answer = reader.feed(b"z" * 65536)
        if answer is not None:
            assert number * 65536 <= MAX_BODY
            assert seen(answer) == (502, b"z" * MAX_SAID, None)
            assert not reader.reusable
            return
    pytest.fail("it would have been read for ever")


def test_a_body_up_to_the_bound_is_drained() -> None:
    reader = AnswerReader()
    reader.feed(b"HTTP/1.1 400 No\r\ncontent-length: %d\r\n\r\n" % MAX_BODY)
    answer = reader.feed(b"z" * MAX_BODY)
    assert seen(answer) == (400, b"z" * MAX_SAID, None)
    assert reader.reusable


@given(
    st.lists(st.binary(max_size=60) | st.sampled_from([*WHOLE, b"HTTP/1.1 200 OK\r\n", b"\r\n"]), max_size=8)
)
def test_no_bytes_break_the_reader(pieces: list[bytes]) -> None:
    reader = AnswerReader()
    with suppress(BadAnswer):
        for piece in pieces:
            answer = reader.feed(piece)
            assert answer is None or 200 <= answer.status <= 999
            if not reader.reusable:
                return
        reader.feed_end()
