from __future__ import annotations

import re

import pytest

from millrace.api.reasons import ConditionType, Reason
from millrace.api.reference import render


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_a_word_with_a_meaning_and_a_remedy(reason: Reason) -> None:
    # The form that metav1.Condition demands of a reason, without the punctuation that it also allows.
    assert re.fullmatch(r"[A-Z][A-Za-z]*", reason)
    assert (reason.__doc__ or "").endswith(".")
    assert reason.remedy.endswith(".")


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_is_explained_exactly_once(reason: Reason) -> None:
    rows = [line for line in render()["conditions.md"].splitlines() if line.startswith(f"| `{reason}` | ")]
    explained = [row for row in rows if (reason.__doc__ or "") in row]

    assert len(explained) == 1


def test_a_reason_is_found_by_its_word() -> None:
    assert Reason("DescriptorConflict") is Reason.DESCRIPTOR_CONFLICT
    assert f"{Reason.PAUSED}" == "Paused"


def test_every_condition_has_a_reason() -> None:
    assert {reason.condition for reason in Reason} == {*ConditionType, None}
