"""Sentences about what a sync did not store as it came: values that were changed, and records rejected.

The log of a run, `elt sync`, `elt replay` and `elt-destination` use the same sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from elt_assets.lake.worker.blocks import parse_name
from elt_assets.lake.write.parsing import describe_counts
from elt_assets.pipeline.connection_stream import ConnectionStream
from elt_assets.pipeline.figures import SyncFigures
from elt_assets.protocol.messages import DEPENDENT
from elt_assets.sync.selection.fields import UNDECLARED

MAX_LINES = 20
"""Maximum number of sentences about one stream."""
SOURCE_PREFIXES = ("SOURCE_", "PLATFORM_")
"""How the reasons of changes begin that were not made here.

Spec: AirbyteRecordMessageMetaChange.Reason.
"""


def describe_losses(figures: SyncFigures) -> Iterator[str]:
    """Yield what was not stored as it came, the most frequent first: changed values, and rejected records.

    Values that a log of changes leaves out are not named: their rows get those of the former version.
    """
    lines = [*_describe_changes(figures), *_describe_rejections(figures)]
    yield from lines[:MAX_LINES]
    if len(lines) > MAX_LINES:
        yield f"and {len(lines) - MAX_LINES} more reasons"


def describe_undeclared(stream: ConnectionStream, counts: Mapping[str, int]) -> str:
    """Return what happened to fields that the catalog does not declare."""
    outcome = (
        f"stored in the column {UNDECLARED}"
        if stream.settings.on_undeclared == "keep"
        else "not stored; declare them in catalog.json (`elt discover`), or set `on_undeclared: keep`"
    )
    return (
        f"fields that the catalog does not declare: {describe_counts(counts)}; they are {outcome}"
    )


def _describe_changes(figures: SyncFigures) -> Iterator[str]:
    for name, records in _sort_counts(figures.changed_fields):
        change = parse_name(name)
        if change.reason not in DEPENDENT:
            author = " by the source" if change.reason.startswith(SOURCE_PREFIXES) else ""
            field = repr(change.field) if change.field else "the whole record"
            share = f"{records:,} of {figures.read:,} records"
            yield f"{field} of {share} was changed{author}: {change.change} ({change.reason})"


def _describe_rejections(figures: SyncFigures) -> Iterator[str]:
    for reason, records in _sort_counts(figures.rejected_reasons):
        yield f"{records:,} of {figures.read:,} records rejected, to the dead letter: {reason}"


def _sort_counts(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
