"""Caches for Dagster, which computes some things anew for each instance and each event.

Without them Dagster needs a third of the time of a test that materialises a small stream in its own process.
The processes that tests start run without them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
def caches() -> Iterator[None]:
    """Let Dagster keep its migrations, the engines of its databases, and the types of components."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql, "ScriptDirectory", _migrations())
        for storage in STORAGES:
            patch.setattr(storage, "create_engine", _engines(storage.create_engine))
        patch.setattr(load_defs, "get_library_json_enriched_defs", _component_types())
        yield


def _migrations() -> type:
    """Return a class that reads the migrations once; Dagster compares each database with them."""
    read = functools.cache(ScriptDirectory.from_config)
    return type("ScriptDirectory", (), {"from_config": staticmethod(read)})


def _engines(create: Callable[..., sqlalchemy.Engine]) -> Callable[..., sqlalchemy.Engine]:
    """Return a function that creates one engine for each database, which keeps its compiled statements.

    Dagster creates an engine for each event. The databases live as long as a test, so they need not survive a
    crash of the machine.
    """
    engines: dict[str, sqlalchemy.Engine] = {}

    def engine(url: str, **options: Any) -> sqlalchemy.Engine:
        if url not in engines:
            if len(engines) == MAX_ENGINES:
                engines.clear()
            engines[url] = create(url, **options)
            sqlalchemy.event.listen(engines[url], "connect", _do_not_wait_for_the_disk)
        return engines[url]

    return engine


def _do_not_wait_for_the_disk(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous=OFF")


def _component_types() -> Callable[..., dg.Definitions]:
    """Return a function that describes the types of components once. Dagster does so at each load."""
    describe = load_defs.get_library_json_enriched_defs
    described = functools.cache(lambda: describe(None).metadata)
    return lambda tree: dg.Definitions(metadata=described(), component_tree=tree)
