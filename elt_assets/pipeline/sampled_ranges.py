"""Ranges of the key that a comparison looks at if it looks at a share of the rows (`sample`).

The ranges are between keys of the table, about as many rows apart as in a whole comparison. Each comparison
chooses others by chance, so in the course of time it looks at all. The first one has no lower bound, and the
last one no upper bound: so a row of the source that is beyond all keys of the table is in one of them.
Test: `tests/lake/test_judgement.py::test_ranges_that_are_chosen_have_no_gap`
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
from msgspec import Raw

from elt_assets.lake.read.row_hashes import KeyValues
from elt_assets.pipeline.judgement import order_key, write_value
from elt_assets.protocol.catalog import StreamId
from elt_assets.protocol.messages import KeyRange


def make_ranges(stream: StreamId, keys: Iterable[KeyValues]) -> list[KeyRange]:
    """Return the ranges between some keys of a table; a key that has no place in an order is left out."""
    whole = (key for key in keys if None not in key)
    ends = sorted(dict.fromkeys(whole), key=order_key)
    bounds = [None, *(Raw(msgspec.json.encode(list(map(write_value, key)))) for key in ends), None]
    return [KeyRange(stream.descriptor, 0, "0", after, until) for after, until in pairwise(bounds)]


def choose_ranges(count: int, share: float, random_: random.Random) -> Sequence[int]:
    """Return the numbers of some of `count` ranges: about a share of them, at least one."""
    return sorted(random_.sample(range(count), max(1, round(count * share))))
