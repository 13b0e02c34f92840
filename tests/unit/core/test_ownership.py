"""Whose topic is it: every answer, and that no mixture of properties is mistaken for ours or for nobody's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.ownership import (
    ADOPTED,
    CLUSTER,
    NAME,
    NAMESPACE,
    UID,
    Owner,
    Ownership,
    classify,
    is_adopted,
    owner_named_in,
    owner_properties,
)

OWNER = Owner("prod-eu", "shop", "orders", "uid-1")


def test_what_is_written_is_recognised_as_ours() -> None:
    assert classify(owner_properties(OWNER), OWNER) is Ownership.OURS


def test_an_adopted_topic_is_ours_and_marked() -> None:
    properties = owner_properties(OWNER, adopted=True)
    assert classify(properties, OWNER) is Ownership.OURS
    assert is_adopted(properties)
    assert not is_adopted(owner_properties(OWNER))


def test_the_same_name_with_another_uid_was_applied_again() -> None:
    earlier = Owner("prod-eu", "shop", "orders", "uid-0")
    assert classify(owner_properties(earlier), OWNER) is Ownership.OURS_OTHER_UID


@pytest.mark.parametrize(
    "other",
    [
        Owner("prod-us", "shop", "orders", "uid-1"),
        Owner("prod-eu", "store", "orders", "uid-1"),
        Owner("prod-eu", "shop", "payments", "uid-1"),
        Owner("prod-eu", "shop", "orders", "uid-1", "Subscription"),
    ],
    ids=["another cluster", "another namespace", "another name", "another kind"],
)
def test_any_other_identity_is_foreign_even_with_the_same_uid(other: Owner) -> None:
    assert classify(owner_properties(other), OWNER) is Ownership.FOREIGN


def test_a_topic_without_owner_is_unowned_whatever_else_it_carries() -> None:
    assert classify({}, OWNER) is Ownership.UNOWNED
    assert classify({"team": "shop"}, OWNER) is Ownership.UNOWNED


@given(
    st.dictionaries(st.sampled_from([CLUSTER, NAMESPACE, NAME, UID, ADOPTED, "team"]), st.text(max_size=8))
)
def test_half_written_properties_are_never_ours_and_never_nobodys(properties: dict[str, str]) -> None:
    verdict = classify(properties, OWNER)
    ours = all(
        properties.get(key) == value
        for key, value in ((CLUSTER, "prod-eu"), (NAMESPACE, "shop"), (NAME, "orders"))
    )
    assert (verdict in (Ownership.OURS, Ownership.OURS_OTHER_UID)) == ours
    assert (verdict is Ownership.UNOWNED) == (not {CLUSTER, NAMESPACE, NAME, UID} & properties.keys())


def test_a_foreign_owner_is_named_for_people() -> None:
    assert owner_named_in(owner_properties(OWNER)) == "shop/orders of cluster prod-eu"
    subscription = Owner("prod-eu", "shop", "orders", "uid-1", "Subscription")
    assert owner_named_in(owner_properties(subscription)) == "Subscription shop/orders of cluster prod-eu"
    assert owner_named_in({}) == "?/? of cluster ?"


def test_a_topic_of_another_kind_is_ours_to_an_object_of_that_kind() -> None:
    subscription = Owner("prod-eu", "shop", "orders", "uid-1", "Subscription")
    assert classify(owner_properties(subscription), subscription) is Ownership.OURS
    assert classify(owner_properties(OWNER), subscription) is Ownership.FOREIGN
