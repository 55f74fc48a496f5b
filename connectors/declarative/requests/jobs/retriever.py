"""The retriever of slices whose data a job of the API prepares.

Spec: AsyncRetriever.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from connectors.declarative.cursors.slices import Option, Slice
from connectors.declarative.requests.decoding.decoders import Decoder
from connectors.declarative.requests.environment import Environment
from connectors.declarative.requests.jobs.job import TARGET, Job, JobApi, Status
from connectors.declarative.requests.pages.paginator import Paginator
from connectors.declarative.requests.records.selector import Selector
from connectors.declarative.requests.requester import Requester
from connectors.declarative.requests.retriever import Retriever
from connectors.sdk.http.failures import place
from connectors.sdk.items import Record
from connectors.sdk.reports import FAILED
from connectors.sdk.stopping import stopped_by
from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError

ATTEMPTS = 3
"""Number of jobs that are created for a slice, if they fail."""
POLL_SECONDS = 5.0
"""Time between two requests for the state of a job, and before a job is created again."""
TIMEOUT_MINUTES = 60
"""Time after which a job is ended that is not complete, unless the manifest says otherwise."""


class JobRunner:
    """Runs jobs until their data can be downloaded.

    Args:
        api: the requests of jobs.
        environment: what the requesters of the source share.
        timeout: the seconds after which a job is ended.
        retry_wait: the seconds before a job that failed is created again.
    """

    def __init__(
        self,
        api: JobApi,
        environment: Environment,
        timeout: float = TIMEOUT_MINUTES * 60.0,
        retry_wait: float = 0.0,
    ):
        self.api = api
        self._environment = environment
        self._timeout = timeout
        self._retry_wait = max(retry_wait, POLL_SECONDS)

    def run(self, stream_slice: Slice) -> Job | None:
        """Return the job that has prepared the data of a slice; None if the API says that there are none.

        Jobs that fail or take too long are created again. The threads of a source run as many jobs at the
        same time as the manifest allows; the others wait here.

        Raises:
            EltError: all jobs of the slice have failed, or a request fails.
        """
        with self._environment.job_slots:
            for attempt in range(1, ATTEMPTS + 1):
                is_last = attempt == ATTEMPTS
                job = self._create(stream_slice, is_last=is_last)
                if job is None:
                    self._environment.sleep(POLL_SECONDS)
                    continue
                status = self._last_status(job)
                if status in (Status.COMPLETED, Status.SKIPPED):
                    return job if status is Status.COMPLETED else None
                if status is Status.TIMED_OUT:
                    self._abort(job)
                if is_last:
                    raise self._failure(job, status)
                self._wait(self._retry_wait if status is Status.FAILED else POLL_SECONDS)
        raise AssertionError("the last attempt returns or raises")

    def _create(self, stream_slice: Slice, *, is_last: bool) -> Job | None:
        """Return a new job; None if the API did not create it, and another attempt follows."""
        try:
            return self.api.create(stream_slice)
        except ConfigError:
            raise
        except EltError:
            if is_last:
                raise
            return None

    def _last_status(self, job: Job) -> Status:
        """Return the state of a job that does not run any more, or for too long."""
        began, waited = time.monotonic(), 0.0
        try:
            while True:
                status = self.api.poll(job)
                if status is not Status.RUNNING:
                    return status
                if max(waited, time.monotonic() - began) >= self._timeout:
                    return Status.TIMED_OUT
                self._environment.sleep(POLL_SECONDS)
                waited += POLL_SECONDS
        except Exception:
            self._abort(job)
            raise

    def _abort(self, job: Job) -> None:
        try:
            with stopped_by(None):  # also in a thread that must stop
                self.api.abort(job)
        except EltError:
            return  # what follows is reported; a job that cannot be ended changes nothing about it

    def _wait(self, seconds: float) -> None:
        if self._environment.on_wait is not None:
            self._environment.on_wait(seconds, FAILED)
        self._environment.sleep(seconds)

    def _failure(self, job: Job, status: Status) -> EltError:
        where = f"the job that {place(job.created.request)} created"
        is_ended_by_api = self.api.statuses[job.word] is Status.TIMED_OUT
        if status is Status.TIMED_OUT and is_ended_by_api:
            return TransientError(
                f"{where} took too long for the API in {ATTEMPTS} attempts; its last state is {job.word!r}",
                guidance="run the sync again later, or request less data in a job, by a shorter `step`",
            )
        if status is Status.TIMED_OUT:
            return TransientError(
                f"{where} was not complete after {self._timeout / 60:.0f} min, in {ATTEMPTS} attempts; its "
                f"last state is {job.word!r}",
                guidance="run the sync again, or set a longer `polling_job_timeout`, in minutes",
            )
        return SystemFailure(
            f"{where} failed in {ATTEMPTS} attempts; its last state is {job.word!r}",
            guidance="see what the API says about its jobs; if it refuses several in a short time, set "
            "`failed_retry_wait_time_in_seconds`",
        )


class JobRetriever(Retriever):
    """Reads the records of slices. For each slice, a job of the API prepares one download or several.

    The options of a slice are not put into its requests, as in the CDK: their templates name what they need.

    Args:
        name: the name of the stream, for errors; empty for none.
        runner: runs the jobs.
        requester: sends the requests of downloads.
        decoder: decodes downloads.
        found: finds the records in downloads.
        paginator: names the next page of a download.
        selector: filters and transforms the records.
    """

    def __init__(
        self,
        name: str,
        runner: JobRunner,
        requester: Requester,
        decoder: Decoder,
        record_selector: Selector,
        paginator: Paginator,
        selector: Selector,
    ):
        super().__init__(name, requester, decoder, record_selector, paginator)
        self._runner = runner
        self._records = selector

    def _pages(self, stream_slice: Slice, options: Sequence[Option]) -> Iterator[list[Record]]:
        del options
        job = self._runner.run(stream_slice)
        if job is None:
            return
        variables: dict[str, Any] = {
            "config": self._requester.environment.config,
            "next_page_token": None,
            **stream_slice.variables(),
            **stream_slice.extra,
        }
        try:
            for target in self._runner.api.targets(job):
                for page in super()._pages(job.slice(**{TARGET: target}), ()):
                    yield self._records.select(page, variables)
        except GeneratorExit:  # a check needs one page
            self._runner.api.delete(job)
            raise
        self._runner.api.delete(job)
