"""The hash of a group id is the one that Pulsar's own clients compute."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.core.routing import group_hash
from tests.unit.core.oracles import murmur3_32

# Printed by org.apache.pulsar.common.util.Murmur3_32Hash of Pulsar 4.0.8 for the UTF-8 bytes.
FROM_PULSAR = {
    "": 0,
    "a": 1009084850,
    "k1": 2110152746,
    "key1": 462881061,
    "order-42": 1259446670,
    "Grüße": 1791607040,
    "日本語": 631534231,
    "🚲": 1808110719,
    "\0": 1364076727,
    " ": 2129959832,
}


@pytest.mark.parametrize(("group_id", "expected"), FROM_PULSAR.items())
def test_a_group_hashes_as_in_pulsar(group_id: str, expected: int) -> None:
    assert group_hash(group_id) == expected


def test_the_oracle_passes_the_published_verification_of_murmur3() -> None:
    hashes = b"".join(murmur3_32(bytes(range(n)), 256 - n).to_bytes(4, "little") for n in range(256))
    assert murmur3_32(hashes) == 0xB0F57EE3


@given(st.text())
def test_a_group_hashes_as_the_definition_of_murmur3_says(group_id: str) -> None:
    assert group_hash(group_id) == murmur3_32(group_id.encode()) & 0x7FFFFFFF


def test_every_length_up_to_two_blocks_of_every_tail_hashes_alike() -> None:
    draw = random.Random(7)
    for length in range(64):
        for _ in range(20):
            group_id = "".join(chr(draw.randrange(0x20, 0x7F)) for _ in range(length))
            assert group_hash(group_id) == murmur3_32(group_id.encode()) & 0x7FFFFFFF
