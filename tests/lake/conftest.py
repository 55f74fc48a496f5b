from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from elt_assets.lake.merge import file_splitting
from elt_assets.lake.session import SparkProvider
from tests.lake.conforming import Conformer
from tests.lake.harness import Lake
from tests.lake.readers import assert_all_readers_agree
from tests.support.lying_store import LyingStore, lying_store
from tests.support.object_store import ObjectStore, new_bucket, s3_server


@pytest.fixture
def lake(spark_provider: SparkProvider, tmp_path: Path) -> Lake:
    return Lake(spark_provider, tmp_path)


@pytest.fixture
def agreeing_readers(lake: Lake) -> Iterator[None]:
    """Assert after a test that all readers get the same rows of its tables."""
    yield
    assert_all_readers_agree(lake.spark, lake.folder)


@pytest.fixture(scope="module")
def conformer(tmp_path_factory: pytest.TempPathFactory) -> Conformer:
    return Conformer(tmp_path_factory.mktemp("segments"))


@pytest.fixture(params=["whole", "tasks", "joins"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way in which a merge splits files by key."""
    if request.param != "whole":
        monkeypatch.setattr(file_splitting, "MAX_ROWS_UNSPLIT", 0)
    if request.param == "joins":
        monkeypatch.setattr(file_splitting, "MAX_KEYS", 0)
    return str(request.param)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """The path of a table of a test's own."""
    return str(tmp_path / "orders")


# A store behind a proxy that lies


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, LyingStore]]:
    """The endpoint of a server, and its proxy."""
    with (
        s3_server(tmp_path_factory.mktemp("s3") / "log") as endpoint,
        lying_store(endpoint) as proxy,
    ):
        yield endpoint, proxy


@pytest.fixture(scope="module")
def proxy(stores: tuple[str, LyingStore]) -> LyingStore:
    return stores[1]


@pytest.fixture(scope="module")
def environment(stores: tuple[str, LyingStore]) -> Iterator[ObjectStore]:
    """A bucket; this process reaches it through the proxy."""
    store = new_bucket(stores[0])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in replace(store, endpoint=stores[1].endpoint).environment.items():
            patch.setenv(name, value)
        yield store


@pytest.fixture
def store(environment: ObjectStore, proxy: LyingStore) -> Iterator[ObjectStore]:
    yield environment
    proxy.tell()


@pytest.fixture
def lying_lake(
    spark_provider: SparkProvider,
    tmp_path: Path,
    store: ObjectStore,
    proxy: LyingStore,
    monkeypatch: pytest.MonkeyPatch,
) -> Lake:
    environment = spark_provider.get().sparkContext.environment  # of the workers of the session
    for name, value in replace(store, endpoint=proxy.endpoint).environment.items():
        monkeypatch.setitem(environment, name, value)
    root = f"s3://{store.bucket}/{os.urandom(8).hex()}"
    return Lake(spark_provider, tmp_path, root=root)
