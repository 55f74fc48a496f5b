"""How a read stands: what its messages say about its streams, whatever becomes of the records."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from elt_assets.errors import EltError, SystemFailure, error_class
from elt_assets.protocol.airbyte.catalog import StreamId
from elt_assets.protocol.airbyte.messages import ErrorTrace, Message, Noise, Unread, decisive
from elt_assets.sync.events import (
    NOT_AMONG_RECORDS,
    NOT_AMONG_STATUSES,
    QUIET,
    Logged,
    SessionEvent,
)
from elt_assets.sync.ignored import IgnoredRecords
from elt_assets.sync.routes import StreamRoutes
from elt_assets.sync.source_events import events_from
from elt_assets.sync.streams import StreamRun


class ReadStatus:
    """The streams of one read, which of them have failed and why, and what was no part of it."""

    def __init__(self) -> None:
        self.routes = StreamRoutes()
        self._ignored = IgnoredRecords()
        self._error: ErrorTrace | None = None
        self._noise = 0
        self._spoke = False

    @property
    def runs(self) -> list[StreamRun]:
        return list(self.routes.values())

    @property
    def failed(self) -> bool:
        """Whether the source reported a failure, of some stream or of none."""
        return self._error is not None or any(run.failed for run in self.runs)

    def note(self, message: Message) -> Iterator[SessionEvent]:
        """Take in what any message but a record says; returns what is to be logged or shown of it."""
        if isinstance(message, Unread):
            self._noise += isinstance(message, Noise)
        else:
            self._spoke = True
        error = message.reported_error
        if error:
            self._fail(error)
        yield from events_from(message, self.routes)

    def ignore(self, stream: StreamId) -> Iterator[SessionEvent]:
        """Count a record of a stream that is not configured.

        Raises:
            SystemFailure: it may belong to a configured stream, whose state would move past it.
        """
        namesakes = self.routes.namesakes(stream)
        if namesakes:
            names = ", ".join(repr(str(run.configured.id)) for run in namesakes)
            raise SystemFailure(
                f"the connector sent a record of stream {str(stream)!r} without a namespace: "
                f"it may belong to any of {names}",
                guidance="this is a defect of the connector; sync these streams in connections of their own",
            )
        yield from self._ignored.add(stream)

    def broken(self) -> list[StreamRun]:
        """The streams that are not complete, now that the source has ended well."""
        garbage = self._noise > 0 and not self._has_spoken
        return [run for run in self.runs if run.incomplete or (garbage and not run.heard)]

    def conclude(self) -> Iterator[Logged]:
        """Set what each stream's figures say of the read as a whole; returns the warnings."""
        reported = any(run.progress.status is not None for run in self.runs)
        for run in self.runs:
            run.progress.ignored = self._ignored.total
            if not run.heard:
                others = NOT_AMONG_RECORDS if self._ignored.total else QUIET
                run.progress.unmentioned = NOT_AMONG_STATUSES if reported else others
                yield Logged(
                    "WARN", f"stream {str(run.configured.id)!r}: {run.progress.unmentioned}"
                )
        yield from self._ignored.summary()

    def check(self, broken: list[StreamRun]) -> None:
        """
        Raises:
            EltError: streams are broken, or the source reported an error of no stream.
        """
        if broken:
            raise self.failure(broken)
        if self._error is not None:
            raise _as_failure(self._error, "the source reported")

    def failure(self, broken: list[StreamRun]) -> EltError:
        """The error for streams that were not completed."""
        names = ", ".join(repr(str(run.configured.id)) for run in broken)
        errors = (run.error for run in broken)
        error: ErrorTrace | None = reduce(decisive, errors, None)
        if error is not None:
            return _as_failure(error, f"stream {names}")
        if not broken[0].heard:
            return SystemFailure(
                f"the connector said nothing of stream {names}, but printed {self._noise} lines that are no "
                "messages of the Airbyte Protocol (see the log)",
                guidance="is it a connector? `command:` must speak the protocol on its stdout",
            )
        return SystemFailure(
            f"the connector ended without completing stream {names} "
            f"(its last status: {broken[0].progress.status})",
            guidance="what it committed up to its last state is kept; the next run goes on from there",
        )

    @property
    def _has_spoken(self) -> bool:
        """Whether any line was a message of the protocol."""
        return self._spoke or self._ignored.total > 0 or any(run.heard for run in self.runs)

    def _fail(self, error: ErrorTrace) -> None:
        """Fail the streams that an error is about; an error without a stream is about all of them but
        those that are complete.

        spec: AirbyteErrorTraceMessage.
        """
        if error.stream_descriptor is None:
            self._error = decisive(self._error, error)
            failed = [run for run in self.runs if not run.completed]
        else:
            run = self.routes.get(error.stream_descriptor.id)
            failed = [] if run is None else [run]
        for run in failed:
            run.error = decisive(run.error, error)


def _as_failure(error: ErrorTrace, whose: str) -> EltError:
    return error_class(error.failure_type)(
        f"{whose}: {error.text}", detail=error.stack_trace or error.internal_message
    )
