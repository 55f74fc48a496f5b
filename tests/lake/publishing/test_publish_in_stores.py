"""Publications in a REST catalog over S3 that loses answers, refuses and fails, by seed.

A history is some steps of one table: syncs, refreshes, other columns, restores, compactions, vacuums that
keep nothing, and erasures, of which some are killed. After each, the table may be published: undisturbed,
killed, or while the catalog lies about one of its requests. Whatever happened, the Iceberg table is a
version of the Delta table (see `oracle`), and no file that it names is gone; an undisturbed publication at
the end makes it current, for all readers.

The long form is as that of `test_publish_readers`.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from elt_assets.connection.read_only_query import check_condition
from elt_assets.errors import ConfigError, EltError
from elt_assets.failpoints import armed
from elt_assets.lake.admin.erased_rows import Selection
from elt_assets.lake.admin.erasure import Erasure, KeyLog, erase
from elt_assets.lake.admin.maintenance import maintain
from elt_assets.lake.delta.table import Table
from elt_assets.lake.publish.iceberg import Publisher
from elt_assets.lake.session import SparkProvider
from elt_assets.protocol.catalog import APPEND, APPEND_DEDUP
from elt_assets.settings import IcebergSettings
from tests.lake.crashing import EVENTS, Death, Killed, configured, event
from tests.lake.harness import Lake
from tests.lake.publishing import oracle
from tests.lake.publishing.test_publish_readers import seeds_of_long_form
from tests.lake.staging import APP, INTEGER, NUMBER, STRING, checkpoint, struct
from tests.support.iceberg_catalogs import RestCatalog
from tests.support.iceberg_readers import DuckDb, read_by_polars
from tests.support.lying_store import Lie, LyingStore, lying_store

pytestmark = [pytest.mark.spark, pytest.mark.external]

COLUMNS: tuple[dict[str, Any], ...] = (
    EVENTS,
    {**EVENTS, "at": NUMBER},
    {**EVENTS, "more": STRING},
    {**EVENTS, "more": INTEGER, "part": struct(a=INTEGER)},
)
COMMIT = r"/tables/\w+$"
LIES = {
    "answer lost": Lie("POST", COMMIT, status=0),
    "fails after the effect": Lie("POST", COMMIT, status=500, code="x"),
    "gateway fails after the effect": Lie("POST", COMMIT, status=502, code="x"),
    "credentials expire after the effect": Lie("POST", COMMIT, status=401, code="x"),
    "conflict reported after the effect": Lie("POST", COMMIT, status=409, code="x"),
    "request lost": Lie("POST", COMMIT, status=0, is_done=False),
    "refuses": Lie("POST", COMMIT, status=403, is_done=False),
    "conflict": Lie("POST", COMMIT, status=409, is_done=False),
    "overloaded": Lie("POST", COMMIT, status=503, is_done=False),
    "credentials expire": Lie("(GET|POST)", "/v1/warehouse", 401, is_done=False, code="x"),
    "is down": Lie(".*", ".", status=0, is_done=False, times=50),
    "is slow": Lie(".*", ".", seconds=0.3, times=3),
    "takes effect late": Lie("POST", COMMIT, status=504, code="x", seconds=0.5, is_late=True),
}
"""What the catalog does to some request."""


@pytest.fixture(scope="module")
def proxy(rest: RestCatalog) -> Iterator[LyingStore]:
    with lying_store(rest.url) as started:
        yield started


@pytest.fixture
def store_lake(
    spark_provider: SparkProvider,
    tmp_path: Path,
    rest: RestCatalog,
    monkeypatch: pytest.MonkeyPatch,
) -> Lake:
    """A lake in the catalog's bucket."""
    workers = spark_provider.get().sparkContext.environment
    for name, value in rest.store.environment.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(workers, name, value)
    return Lake(spark_provider, tmp_path, root=f"{rest.lake}/t{os.urandom(6).hex()}")


class History:
    """One table, and what happens to it; `told`: in words, for the report of a failure."""

    def __init__(self, lake: Lake, rest: RestCatalog, proxy: LyingStore, seed: int):
        self.chance = random.Random(seed)
        self.lake = lake
        self.proxy = proxy
        self.columns = EVENTS
        self.policy = self.chance.choice([APPEND, APPEND_DEDUP, APPEND_DEDUP])
        self.count = 0
        self.told: list[str] = []
        self.table = oracle.lake_table(lake.table.storage.location)
        self.disturbed = rest.behind(proxy.endpoint)
        self.undisturbed = rest

    def run(self, steps: int) -> None:
        self.sync()
        for _ in range(steps):
            name = self.chance.choice(
                [
                    *("sync", "sync", "sync", "other_columns", "refresh", "restore"),
                    *("compact", "vacuum", "erase"),
                ]
            )
            self.told.append(name)
            with self._perhaps_killed():
                getattr(self, name)()
            self.check()
            if self.chance.random() < 0.7:
                self.publish()
                self.check()
        self._open().publish(self.table)

    def check(self) -> None:
        oracle.check(self._open(), self.table)
        oracle.check_files(self._open(), self.table)

    def _open(self, catalog: RestCatalog | None = None) -> Publisher:
        """Open a publisher that knows nothing, as that of another process."""
        chosen = catalog or self.undisturbed
        return Publisher(IcebergSettings(catalog=chosen.properties))

    # What happens to the table

    def sync(self, refresh: Any = "none") -> None:
        stream = configured(self.lake, self.policy, refresh, self.columns)
        writer = self.lake.writer(stream)
        for _ in range(self.chance.choice([1, 1, 2])):
            self.count += 1
            batch = [
                {**event(self.chance.randint(1, 6), 10 * self.count + n), "more": str(n)}
                for n in range(self.chance.randint(1, 4))
            ]
            writer.write(self.lake.stage(*batch))
            writer.commit(checkpoint(self.count, final=False))
        writer.commit(checkpoint(self.count, final=True))
        writer.close()

    def other_columns(self) -> None:
        self.columns = self.chance.choice(COLUMNS)
        with contextlib.suppress(ConfigError):  # some types do not follow each other
            self.sync()

    def refresh(self) -> None:
        self.sync(self.chance.choice(["truncate", "retain"]))

    def restore(self) -> None:
        delta = DeltaTable(self.lake.uri, storage_options=self.undisturbed.store.options)
        # A vacuum may have removed files of the version.
        with contextlib.suppress(DeltaError):
            delta.restore(self.chance.randint(1, delta.version()))

    def compact(self) -> None:
        self._maintain(dt.timedelta(days=7))

    def vacuum(self) -> None:
        self._maintain(dt.timedelta(0))

    def erase(self) -> None:
        """Erase the rows of a key; if that is killed, it is run again."""
        number = self.chance.randint(1, 6)
        with self._perhaps_killed():
            self._erase(number)
        self.check()
        self._erase(number)
        oracle.check_current(self._open(), self.table)
        rows = DeltaTable(self.lake.uri, storage_options=self.undisturbed.store.options)
        assert number not in rows.to_pyarrow_table(columns=["id"])["id"].to_pylist()

    def _erase(self, number: int) -> None:
        stream = configured(self.lake, self.policy, "none", self.columns)
        erasure = Erasure(
            self.lake.provider, self.table.location, APP, stream, f"erasure-{os.urandom(4).hex()}"
        )

        def publish(_: Table, kind: str | None) -> bool:
            if kind is None:
                self._open().expire(self.table, dt.timedelta(0))
            return kind is None

        selection = Selection(erasure.key, check_condition(f"id = {number}"))
        erase(erasure, selection, KeyLog(b"salt", "fingerprint"), publish=publish)

    def _maintain(self, retention: dt.timedelta) -> None:
        def prepare(_: Table, kind: str | None) -> Sequence[str]:
            return () if kind else self._open().expire(self.table, retention).other_folders

        maintain(self.lake.spark, self.lake.tables(), retention, prepare=prepare)

    # Publications

    def publish(self) -> None:
        how = self.chance.choice(["plain", "killed", "lied to", "lied to"])
        if how == "plain":
            self.told.append("publish")
            self._open().publish(self.table)
        elif how == "killed":
            with self._perhaps_killed(always=True):
                self._open().publish(self.table)
        else:
            name = self.chance.choice(list(LIES))
            self.told.append(f"publish: the catalog: {name}")
            with self.proxy.telling(LIES[name]), contextlib.suppress(EltError):
                self._open(self.disturbed).publish(self.table)

    @contextlib.contextmanager
    def _perhaps_killed(self, *, always: bool = False) -> Iterator[None]:
        if not always and self.chance.random() < 0.7:
            yield
            return
        death = Death(number=self.chance.randint(1, 12))
        with contextlib.suppress(Killed), armed(death):
            yield
        self.told.append(f"killed at {death.point and death.point.name}")


def check_seed(seed: int, lake: Lake, rest: RestCatalog, proxy: LyingStore, duck: DuckDb) -> None:
    history = History(lake, rest, proxy, seed)
    try:
        history.run(8)
        publisher = Publisher(IcebergSettings(catalog=rest.properties))
        oracle.check_current(publisher, history.table)
        for read in (read_by_polars, duck.read):
            oracle.check(publisher, history.table, read)
    except BaseException:
        print(f"seed {seed}: " + "; ".join(history.told))
        raise


def test_a_publication_is_a_version_whatever_the_catalog_says(
    store_lake: Lake, rest: RestCatalog, proxy: LyingStore, duck: DuckDb
) -> None:
    check_seed(0, store_lake, rest, proxy, duck)


@pytest.mark.long
@pytest.mark.parametrize("number", seeds_of_long_form())
def test_a_publication_is_a_version_whatever_the_catalog_says_in_long_runs(
    number: int, store_lake: Lake, rest: RestCatalog, proxy: LyingStore, duck: DuckDb
) -> None:
    check_seed(number, store_lake, rest, proxy, duck)
