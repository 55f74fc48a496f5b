"""What a store may keep is named where it cannot be asked."""

from __future__ import annotations

import pytest

from elt_assets.storage.kept_objects import clean_store
from elt_assets.storage.location import Location


def test_places_on_this_machine_keep_nothing() -> None:
    assert clean_store([Location.parse("/lake/users"), Location.parse("hdfs://host/lake")]) == []


@pytest.mark.parametrize("uri", ["gs://bucket/lake", "abfss://lake@account.dfs.core.windows.net/a"])
def test_a_store_that_is_not_asked_is_named(uri: str) -> None:
    (sentence,) = clean_store([Location(uri)])
    assert uri in sentence and "soft delete" in sentence and "look at its settings" in sentence
