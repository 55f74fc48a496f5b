"""The read of slices: tasks on Spark read each of them from its source.

The slices of a group are read side by side, and any of them may fail. Those before it are kept up to the last
state among them, so that the next run reads the others only.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from pyspark.sql import SparkSession

from elt_assets.errors import EltError, SystemFailure, error_class
from elt_assets.lake.spark.parsing.job import ParseJob
from elt_assets.lake.spark.parsing.slices import (
    MAX_SLICES,
    POSITIONS,
    LocalFile,
    SharedFile,
    SliceFile,
    SliceResult,
    SliceSource,
    SliceTask,
    make_slice_read,
)
from elt_assets.lake.spark.tasks import run_tasks_in_part
from elt_assets.storage.staged_files import StagedFiles
from elt_assets.storage.staging import Staging
from elt_assets.sync.slices import SliceGroup


def read_slices(
    spark: SparkSession, job: ParseJob, source: SliceSource, group: SliceGroup, staging: Staging
) -> tuple[Sequence[SliceResult], Exception | None]:
    """Read the slices of a group, each in a task of its own.

    Args:
        staging: where tasks read files of slices.

    Returns:
        The results; if a slice cannot be read, those before the last state before it, and its error.

    Raises:
        EltError: a slice cannot be read, and no state is before it; or the file of one is not a plain file in
            the folder of the source.
        SystemFailure: there are too many slices; or the rows of one are not those that its source has given.
    """
    if group.first + len(group.slices) > MAX_SLICES:
        raise SystemFailure(
            f"the source has made more than {MAX_SLICES:,} slices of a stream in one sync",
            guidance="report it to the maintainer of the source: a slice may have many small parts",
        )
    files = StagedFiles(source.folder, "a slice", follows_link=False)
    with ExitStack() as stack:

        def share(path: str) -> SliceFile:
            with files.open(f"{source.folder}/{path}") as opened:
                if staging.shared is None:
                    return LocalFile(source.folder, path)
                return SharedFile(*stack.enter_context(staging.share_copy(opened)).file_system())

        tasks = [
            SliceTask(
                part.key,
                bytes(part.data),
                (group.first + number) * POSITIONS,
                None if part.file is None else share(part.file),
                bool(part.file_has_changes),
            )
            for number, part in enumerate(group.slices)
        ]
        values, error = run_tasks_in_part(spark, len(tasks), make_slice_read, job, source, tasks)
    results = [SliceResult(*part) for part in values]
    failed = next((number for number, part in enumerate(results) if part.failure), None)
    if failed is not None:
        results, error = results[:failed], _make_error(results[failed])
    if error is not None:
        results = results[: group.count_covered(len(results))]
        if not results:
            raise error
    _check(tasks, results)
    return results, error


def _make_error(result: SliceResult) -> EltError:
    assert result.failure is not None
    kind, message, guidance, detail = result.failure
    return error_class(kind)(message, guidance=guidance, detail=detail)


def _check(tasks: Sequence[SliceTask], results: Sequence[SliceResult]) -> None:
    for task, result in zip(tasks, results, strict=False):
        if result.rows + result.rejected != result.read:
            raise SystemFailure(
                f"slice {task.key} has {result.read} rows, but {result.rows} were written and "
                f"{result.rejected} rejected; nothing of it was committed",
                guidance="this is a defect of this project: report it",
            )
