"""The number in `_ab_cdc_cursor` that all changes after a snapshot are greater than.

The changes of a table are numbered one after another, from the state on. So the log is read from the state up
to a position whose transactions a later query shows, and the changes of the table in it are counted. What
comes after that has a greater number. A comparison that follows a sync reads little of the log again.

`connectors.mysql.stream` uses it. Test: `tests/connectors/mysql/test_comparison.py`
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.cdc.changes import ChangeFiles
from connectors.cdc.reader import FORM, ReadScope
from connectors.mysql.config import MySqlConfig
from connectors.mysql.log.dump import read_server, read_visible_position
from connectors.mysql.log.state import describe_log, load_state
from connectors.mysql.log.windows import WindowReader
from connectors.mysql.session import open_session
from connectors.sdk.groups import GroupState
from connectors.sql.comparison import incomplete_read
from elt_assets.protocol.catalog import ConfiguredStream

if TYPE_CHECKING:
    from connectors.mysql.stream import LogStream


def find_number(
    config: MySqlConfig, stream: LogStream, configured: ConfiguredStream, state: Mapping[str, Any]
) -> int:
    """Return the number of the last change of a table before a snapshot that is taken next.

    Args:
        state: that of the table.

    Raises:
        ConfigError: its snapshot is not complete; or changes since the state are not in the log any more.
        EltError: the log cannot be read.
    """
    with (
        open_session(config, f"the log of {stream.id} cannot be read") as session,
        tempfile.TemporaryDirectory(prefix="elt-mysql-") as folder,
    ):
        is_mariadb = session.is_mariadb
        shared = {"form": FORM, **describe_log(is_mariadb=is_mariadb)}
        group = GroupState(shared, {stream.id: state})
        log = load_state(group, is_mariadb=is_mariadb, is_configured=lambda _: True)
        table = log.tables[stream.id]
        if not table.is_complete:
            raise incomplete_read(configured)
        position = read_visible_position(session)
        server = replace(read_server(session), position=position)
        scope = ReadScope({stream.id: stream}, {stream.id: configured}, False)
        files = ChangeFiles(Path(folder), stream.cursor, {stream.id: configured.key_columns})
        windows = WindowReader(config, scope, log, files, server, session.rows)
        for _ in windows.windows():
            if stream.id in files.failures:
                raise files.failures[stream.id]
            list(files.close())
            table = windows.move(stream.id, table)
            files.begin_window()
        return table.number
