"""Keys that more than one row has."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elt_assets.lake.merge.duplicate_keys import count_repeated_numbers


@given(st.lists(st.integers(-3, 3) | st.integers(-(1 << 63), (1 << 63) - 1)))
def test_repeated_numbers_are_counted_once(numbers: list[int]) -> None:
    expected = sum(count > 1 for count in Counter(numbers).values())
    assert count_repeated_numbers(np.array(numbers, np.int64)) == expected
