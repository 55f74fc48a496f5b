"""The columns in which rows differ, found by comparisons of fewer and fewer columns.

`comparison` names them for the keys that an answer shows. A comparison says of a key only whether its hash is
the same over some columns. So the columns are halved as long as a half differs: few columns that differ among
many cost few comparisons, of ranges with these keys alone.
Test: `tests/lake/test_judgement.py::test_columns_that_differ_are_found_by_halves`
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from elt_assets.lake.read.row_hashes import KeyValues


def name_columns(
    keys: Collection[KeyValues],
    columns: Sequence[str],
    find_differing: Callable[[Sequence[str]], Collection[KeyValues]],
) -> dict[KeyValues, list[str]]:
    """Return the columns in which the rows of each key differ, in their order.

    Args:
        find_differing: returns the keys whose rows differ in some columns.
    """
    columns_of_keys: dict[KeyValues, list[str]] = {key: [] for key in keys}

    def search(part: Sequence[str]) -> None:
        if not part:
            return
        differing = [key for key in find_differing(part) if key in columns_of_keys]
        if len(part) == 1:
            for key in differing:
                columns_of_keys[key].append(part[0])
        elif differing:
            search_halves(part)

    def search_halves(part: Sequence[str]) -> None:
        middle = len(part) // 2
        search(part[:middle])
        search(part[middle:])

    search_halves(columns)
    return columns_of_keys
