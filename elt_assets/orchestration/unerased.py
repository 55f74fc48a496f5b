"""What an erasure does not reach, or cannot ask: sentences for the answer of `elt erase`.

`erasing` calls it when the rows are gone from the lake. The folders of Dagster outside of its home are listed
here too, for `erased_home`.
Test: `tests/cli/test_erase_in_store.py`, `tests/cli/test_erased_home.py`
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
from dagster._core.storage.local_compute_log_manager import LocalComputeLogManager
from dagster._core.storage.noop_compute_log_manager import NoOpComputeLogManager

from elt_assets.lake.admin.erasure import Erasure
from elt_assets.lake.write.companions import SUFFIXES
from elt_assets.lake.write.erasures import FOLDER
from elt_assets.orchestration.erased_home import ErasedTexts
from elt_assets.pipeline.publication import open_publisher
from elt_assets.storage.kept_objects import clean_store
from elt_assets.storage.staging import AbandonedFiles, Staging

ICEBERG = "_iceberg"
_DOCUMENT = "docs/data-protection.md"


def list_left_in_lake(erasure: Erasure, target: ErasedTexts) -> Iterator[str]:
    """Yield what may be left below the tables of a stream."""
    storage = erasure.main.storage
    if open_publisher() is None and storage.list_folder(ICEBERG):
        yield (
            f"{storage.uri}/{ICEBERG} may have values of the rows: no catalog is set, so its snapshots are "
            "not expired; set the catalog that has them, and run this again"
        )
    states = [table.metadata.state or "" for table in erasure.writers]
    if any(target.is_in(state) for state in states):
        yield (
            f"the state in {storage.uri} has a text of the rows, because the next sync begins there; run "
            "this again after a sync that brings a later row"
        )


def list_left_in_stores(
    erasure: Erasure, staging: Staging, abandoned: AbandonedFiles
) -> Iterator[str]:
    """Yield what may be left in the stores of the lake and the staging, and remove what can be removed."""
    table = erasure.main.storage.location
    places = [table, *map(table.add_suffix, SUFFIXES.values()), *abandoned.places]
    shared = [] if staging.shared is None else [staging.shared]
    yield from clean_store(places, shared, table.child(FOLDER, f"{erasure.id}.json"))
    if abandoned.left:
        yield (
            f"{abandoned.left} folders in {staging.shared} are of syncs of other machines, which may be "
            "running: if none is, remove them, or wait until the job elt_maintenance does"
        )


def list_unsearched(instance: dg.DagsterInstance) -> Iterator[str]:
    """Yield the places of Dagster in which no text is looked for."""
    stores = (instance.event_log_storage, instance.run_storage, instance.schedule_storage)
    others = {type(store).__name__ for store in stores if store is not None}
    others = {name for name in others if "sqlite" not in name.lower()}
    if others:
        yield (
            f"Dagster's storage is in another database than SQLite ({', '.join(sorted(others))}), which is "
            f"not looked at: {_DOCUMENT} says what to search"
        )
    manager = instance.compute_log_manager
    if not isinstance(manager, LocalComputeLogManager | NoOpComputeLogManager):
        yield (
            f"the logs of runs are kept by {type(manager).__name__}, and are not looked at: remove those "
            "that quote the rows there"
        )


def list_other_folders(instance: dg.DagsterInstance, home: Path) -> list[Path]:
    """Return the folders of Dagster's databases and logs of runs that are not in its home."""
    if instance.is_ephemeral:
        return []
    ref = instance.get_ref()
    parts = (ref.run_storage_data, ref.schedule_storage_data, ref.compute_logs_data)
    configs = [part.config_dict for part in parts if part is not None]
    folders = [Path(config["base_dir"]) for config in configs if "base_dir" in config]
    outside = [folder for folder in folders if not folder.resolve().is_relative_to(home.resolve())]
    return [folder for folder in outside if folder.is_dir()]
