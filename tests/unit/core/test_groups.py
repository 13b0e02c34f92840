"""Group ids: what may be one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.errors import DomainError, InvalidGroupId
from millrace.core.groups import MAX_GROUP_ID_BYTES, validate_group_id


@given(st.text(min_size=1, max_size=MAX_GROUP_ID_BYTES // 4))
def test_any_text_that_fits_is_a_group_id(group_id: str) -> None:
    validate_group_id(group_id)


@pytest.mark.parametrize("group_id", [" ", "\0", "a" * MAX_GROUP_ID_BYTES, "é" * (MAX_GROUP_ID_BYTES // 2)])
def test_the_limit_itself_and_blanks_are_group_ids(group_id: str) -> None:
    validate_group_id(group_id)


@pytest.mark.parametrize(
    ("group_id", "reason"),
    [
        ("", "empty"),
        ("a" * (MAX_GROUP_ID_BYTES + 1), "1025 bytes"),
        ("é" * (MAX_GROUP_ID_BYTES // 2) + "x", "1025 bytes"),
        ("a\ud800", "lone surrogate at index 1"),
        (b"bytes", "not bytes"),
        (None, "not NoneType"),
        (7, "not int"),
    ],
)
def test_anything_else_is_refused_with_the_reason(group_id: str, reason: str) -> None:
    with pytest.raises(InvalidGroupId, match=reason) as raised:
        validate_group_id(group_id)
    assert isinstance(raised.value, DomainError)
    assert len(str(raised.value)) < 200, "an oversized id must not fill the log"
