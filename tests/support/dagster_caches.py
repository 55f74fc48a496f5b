"""Caches for Dagster, which computes some things anew for each instance and each event.

Without them Dagster needs a third of the time of a test that materialises a small stream in its own process.
The processes that tests start run without them.
"""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import sqlalchemy
from alembic.script import ScriptDirectory
from dagster._core.storage import sql
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from dagster.components.core import load_defs

STORAGES = (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage)
MAX_ENGINES = 100


@contextmanager
def caches(folder: Path) -> Iterator[None]:
    """Let Dagster keep its migrations, the engines of its databases, and the types of components.

    Args:
        folder: gets an empty database of events.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql, "ScriptDirectory", _migrations())
        for storage in STORAGES:
            patch.setattr(storage, "create_engine", _engines(storage.create_engine))
        events = sqlite_event_log.SqliteEventLogStorage
        patch.setattr(events, "_initdb", _initialize(events._initdb, folder / "events.db"))
        patch.setattr(load_defs, "get_library_json_enriched_defs", _component_types())
        yield


def _migrations() -> type:
    """Return a class that reads the migrations once; Dagster compares each database with them."""
    read = functools.cache(ScriptDirectory.from_config)
    return type("ScriptDirectory", (), {"from_config": staticmethod(read)})


def _engines(create: Callable[..., sqlalchemy.Engine]) -> Callable[..., sqlalchemy.Engine]:
    """Return a function that creates one engine for each database, which keeps its compiled statements and
    its connections.

    Dagster creates an engine for each event, and connects for each statement. The databases live as long as a
    test, so they need not survive a crash of the machine.
    """
    engines: dict[str, sqlalchemy.Engine] = {}

    def engine(url: str, **options: Any) -> sqlalchemy.Engine:
        if url not in engines:
            if len(engines) == MAX_ENGINES:
                for former in engines.values():
                    former.pool.dispose()
                engines.clear()
            connection = {**options.get("connect_args", {}), "check_same_thread": False}
            pool = {"poolclass": sqlalchemy.QueuePool, "pool_size": 1, "max_overflow": -1}
            engines[url] = create(url, **{**options, **pool, "connect_args": connection})
            # Dagster disposes of an engine after each statement.
            setattr(engines[url], "dispose", lambda: None)  # noqa: B010
            sqlalchemy.event.listen(engines[url], "connect", _prepare)
            sqlalchemy.event.listen(engines[url], "checkout", _require_same_file)
        return engines[url]

    return engine


def _prepare(connection: Any, record: Any) -> None:
    """Do not wait for the disk, and remember the file."""
    connection.execute("PRAGMA synchronous=OFF")
    (_, _, path) = connection.execute("PRAGMA database_list").fetchone()
    record.info["file"] = path, _identify(path)


def _require_same_file(connection: Any, record: Any, _: object) -> None:
    """Connect again if another file has the path by now: tests replace a home, and remove it.

    Raises:
        DisconnectionError: it has.
    """
    path, identity = record.info["file"]
    if _identify(path) != identity:
        raise sqlalchemy.exc.DisconnectionError


def _initialize(create: Callable[..., None], template: Path) -> Callable[..., None]:
    """Return a function that creates the database of a run's events as a copy of an empty one.

    Args:
        template: where the empty one is, once a first one was created.
    """

    def initialize(
        storage: object, engine: sqlalchemy.Engine, for_index_shard: bool = False
    ) -> None:
        path = Path(str(engine.url.database))
        if for_index_shard or path.exists():
            create(storage, engine, for_index_shard)
        elif template.exists():
            shutil.copyfile(template, path)
        else:
            create(storage, engine)
            with engine.connect() as connection:
                connection.execute(sqlalchemy.text("PRAGMA wal_checkpoint(TRUNCATE)"))
            shutil.copyfile(path, template)

    return initialize


def _identify(path: str) -> tuple[int, int] | None:
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def _component_types() -> Callable[..., dg.Definitions]:
    """Return a function that describes the types of components once. Dagster does so at each load."""
    describe = load_defs.get_library_json_enriched_defs
    described = functools.cache(lambda: describe(None).metadata)
    return lambda tree: dg.Definitions(metadata=described(), component_tree=tree)
