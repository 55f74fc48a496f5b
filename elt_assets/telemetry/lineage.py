"""OpenLineage events of syncs, from the reports of `observation`, which loads this if it is configured.

Spec: OpenLineage, Run Cycle: START, then COMPLETE, FAIL or ABORT; Naming: datasets by the store's namespace.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import uuid
from collections.abc import Mapping
from importlib.metadata import version
from urllib.parse import urlsplit

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import (
    InputDataset,
    Job,
    OutputDataset,
    Run,
    RunEvent,
    RunState,
    set_producer,
)
from openlineage.client.facet_v2 import (
    RunFacet,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
)
from openlineage.client.uuid import generate_new_uuid

from elt_assets.telemetry.observation import SourceMeasure, StreamReport

_PRODUCER = f"elt-assets/{version('elt-assets')}"
_MAX_ERROR = 2_000
"""Maximum number of characters of an error's message in an event."""


class Lineage:
    """Sends the events of syncs to the receiver that the environment configures.

    The job is `<connection>.<stream>` in the namespace `OPENLINEAGE_NAMESPACE`. Each sync of a stream is a
    run, whose parent is the run of the orchestrator, if there is one. The input is the stream at its source,
    the output its table, with its fields and the number of committed rows.
    """

    def __init__(self) -> None:
        set_producer(_PRODUCER)
        self._client = OpenLineageClient()
        self._namespace = os.environ.get("OPENLINEAGE_NAMESPACE") or "elt-assets"
        self._runs: dict[int, str] = {}  # of the syncs that have not ended

    def start(self, report: StreamReport) -> None:
        self._runs[id(report)] = str(generate_new_uuid())
        self._emit(report, RunState.START)

    def measure(self, measure: SourceMeasure) -> None:
        """Do nothing: lineage has no numbers of a source."""

    def finish(self, report: StreamReport) -> None:
        assert report.outcome is not None
        try:
            self._emit(report, RunState[report.outcome])
        finally:
            del self._runs[id(report)]  # this object is that of the process, with all its syncs

    def _emit(self, report: StreamReport, state: RunState) -> None:
        job_type = job_type_job.JobTypeJobFacet("BATCH", "ELT_ASSETS", "SYNC")
        event = RunEvent(
            eventType=state,
            eventTime=dt.datetime.now(dt.timezone.utc).isoformat(),
            run=Run(self._runs[id(report)], dict(self._run_facets(report))),
            job=Job(self._namespace, f"{report.connection}.{report.stream}", {"jobType": job_type}),
            inputs=[InputDataset(f"source://{report.connection}", str(report.stream))],
            outputs=[_output(report)],
        )
        self._client.emit(event)

    def _run_facets(self, report: StreamReport) -> Mapping[str, RunFacet]:
        facets: dict[str, RunFacet] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version("pyspark"), "Spark", version("elt-assets")
            )
        }
        with contextlib.suppress(ValueError):  # OpenLineage requires a UUID
            parent = str(uuid.UUID(report.run_id or ""))
            job = parent_run.Job(self._namespace, report.connection)
            facets["parent"] = parent_run.ParentRunFacet(parent_run.Run(parent), job)
        if report.error is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                report.error[:_MAX_ERROR], "PYTHON"
            )
        return facets


def _output(report: StreamReport) -> OutputDataset:
    namespace, name = dataset_name(report.location)
    fields = [
        schema_dataset.SchemaDatasetFacetFields(name=field, type=kind, ordinal_position=number)
        for number, (field, kind) in enumerate(report.fields, 1)
    ]
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=report.committed
    )
    return OutputDataset(
        namespace,
        name,
        outputFacets={} if report.outcome is None else {"outputStatistics": statistics},
        facets={"schema": schema_dataset.SchemaDatasetFacet(fields=fields)},
    )


def dataset_name(location: str) -> tuple[str, str]:
    """Return the namespace and the name of a table by its path or URI.

    Spec: OpenLineage, Naming: `file` and the path; of a store, its scheme and bucket, and the key.
    """
    parts = urlsplit(location)
    if parts.scheme in {"", "file"}:
        return "file", parts.path
    return f"{parts.scheme}://{parts.netloc}", parts.path.strip("/")
