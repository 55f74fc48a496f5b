"""What `elt sync` says at its end: a table, what was not stored as it came, failed checks and errors.

`elt replay` and `elt status` take the functions at the end, for what was not stored as it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from elt_assets.cli.output import Document, Output
from elt_assets.lake.worker.blocks import parse_name
from elt_assets.orchestration.materialize import CompleteSync, FailedCheck, SyncResult
from elt_assets.orchestration.streams import StreamAsset
from elt_assets.pipeline.progress import SyncFigures, describe_losses, describe_undeclared
from elt_assets.protocol.catalog import StreamId

_COLUMNS = ("stream", "read", "committed", "rejected", "changed", "result")
_MAX_NAMES = 5
"""Maximum number of checks without a result that are named in a line; the document has all."""


class SyncReport:
    """The report of a sync.

    Args:
        assets: the streams, by their names in the report.
    """

    def __init__(self, result: SyncResult, assets: Mapping[str, StreamAsset]):
        self._result = result
        self._assets = assets
        self._names = {asset.stream.id: name for name, asset in assets.items()}

    def print(self, out: Output) -> None:
        """Print the report for people."""
        out.table(
            _COLUMNS, [self._row(name, asset.stream.id) for name, asset in self._assets.items()]
        )
        for name, asset in self._assets.items():
            figures = self._figures(asset.stream.id)
            print_losses(out, name, figures)
            if figures.undeclared:
                text = describe_undeclared(asset, figures.undeclared)
                out.verdict("not declared", f"{name}: {text}", good=False)
        for check in self._result.failed_checks:
            out.verdict("failed check", self._describe(check), good=False)
        for stream, names in self._result.unchecked.items():
            out.verdict("not checked", f"{self._names[stream]}: {_list_names(names)}", good=False)
        for error in self._result.errors:
            out.verdict("failed", str(error), good=False)
        if self._result.has_failed_checks and not self._result.errors:
            out.verdict(
                "failed",
                "a check of severity ERROR failed. The sync is complete: its records and states are "
                "committed, and the next one continues from there",
                good=False,
            )

    def document(self) -> Document:
        """Return the report for machines."""
        result = self._result
        return {
            "run_id": result.run_ids[0],
            "run_ids": result.run_ids,
            "complete": not result.errors,
            "streams": [
                self._stream(name, asset.stream.id) for name, asset in self._assets.items()
            ],
            "failed_checks": [self._check(check) for check in result.failed_checks],
            "unchecked": [
                {"stream": self._names[stream], "check": name}
                for stream, names in result.unchecked.items()
                for name in names
            ],
            "errors": [
                {"failure_type": error.failure_type, "message": error.message}
                for error in result.errors
            ],
        }

    def _figures(self, stream: StreamId) -> SyncFigures:
        return self._result.figures.get(stream, SyncFigures())

    def _row(self, name: str, stream: StreamId) -> tuple[object, ...]:
        figures = self._figures(stream)
        counts = (figures.read, figures.committed, figures.rejected, figures.changed)
        return (name, *counts, ", ".join(self._outcome(stream)))

    def _outcome(self, stream: StreamId) -> Iterator[str]:
        if stream in self._result.complete:
            yield "complete"
        else:
            yield "failed" if stream in self._result.figures else "not read"
        failed = [check for check in self._result.failed_checks if check.stream == stream]
        if failed:
            yield f"{len(failed)} failed check{'s' if len(failed) > 1 else ''}"

    def _describe(self, check: FailedCheck) -> str:
        numbers = [
            f"{name} {value:,}" if isinstance(value, int) else f"{name} {value:.4g}"
            for name, value in check.metadata.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        details = f" ({', '.join(numbers)})" if numbers else ""
        severity = f"severity {check.severity}{', blocking' if check.is_blocking else ''}"
        return (
            f"{self._names[check.stream]}: {check.name} ({severity}): {check.description}{details}"
        )

    def _stream(self, name: str, stream: StreamId) -> Document:
        figures, end = self._figures(stream), self._result.complete.get(stream)
        counts = ("read", "committed", "rejected", "filtered", "changed")
        event = end or CompleteSync()
        return {
            "stream": name,
            "complete": end is not None,
            **{count: getattr(figures, count) for count in counts},
            **list_losses(figures),
            "undeclared_fields": dict(figures.undeclared),
            "ignored_records": event.ignored,
            "schema_changes": list(event.schema_changes),
        }

    def _check(self, check: FailedCheck) -> Document:
        return {
            "stream": self._names[check.stream],
            "check": check.name,
            "severity": check.severity,
            "blocking": check.is_blocking,
            "description": check.description,
            "metadata": dict(check.metadata),
        }


def print_losses(out: Output, name: str, figures: SyncFigures) -> None:
    """Print what was not stored of a stream as it came."""
    for loss in describe_losses(figures):
        out.verdict("not as it came", f"{name}: {loss}", good=False)


def list_losses(figures: SyncFigures) -> Document:
    """Return what was not stored of a stream as it came, for machines."""
    changes = [
        {**parse_name(name)._asdict(), "records": records}
        for name, records in figures.changed_fields.items()
    ]
    return {"changed_fields": changes, "rejected_reasons": dict(figures.rejected_reasons)}


def _list_names(names: Sequence[str]) -> str:
    rest = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + rest
