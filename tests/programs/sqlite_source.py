"""Tables of a file of SQLite, as `SqlSource` reads them: `python -m tests.programs.sqlite_source VERB …`."""

from __future__ import annotations

import sys

from connectors.sdk import run
from tests.connectors.sql.sources import Sqlite

if __name__ == "__main__":
    sys.exit(run(Sqlite(), sys.argv[1:]))
