"""Statistics in the log of tables that older versions of this project wrote.

They left the bounds of some columns out (booleans, decimals, doubles that are 0, long texts), and readers by
delta-rs find no row of such a file by a filter on these columns. The log gets an entry for each file again,
with the statistics of its footer, in a commit that changes no row, state or transaction id. It is done once:
the table records it in a property, which newer tables have from the beginning.

A kill after this commit and before the property is set leaves a table whose log is right; the next
maintenance does it again.
`tests/lake/test_maintenance.py::test_statistics_of_older_versions_are_corrected`
"""

from __future__ import annotations

from dataclasses import replace

from elt_assets.lake.delta.outcome import Superseded
from elt_assets.lake.delta.table import Table


def restate(table: Table) -> int:
    """Write the log entries of all files again if the bounds in them may be missing.

    It gives way to a sync that replaced a file at the same time; the next maintenance tries again.

    Returns:
        the number of files whose entries were written.
    """
    if table.has_true_bounds:
        return 0
    files = {file.path: file for file in table.files if file.is_own}
    described = [
        replace(file, partition=files[file.path].partition)
        for file in table.storage.describe(files)
    ]
    try:
        if described:
            table.restate(described)
        table.record_true_bounds()
    except Superseded:
        table.advance()
        return 0
    return len(described)
