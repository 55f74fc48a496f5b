"""Jobs of an API, and the retriever of slices whose data they prepare.

Spec: AsyncRetriever, AsyncJobStatusMap; the variables `creation_response`, `polling_response` and
`download_target`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from connectors.declarative.cursors.slices import Option, Slice
from connectors.declarative.manifest import components
from connectors.declarative.requests.decoding.decoders import Decoder
from connectors.declarative.requests.decoding.json_body import json_body_if_any
from connectors.declarative.requests.environment import Environment
from connectors.declarative.requests.pages import HeaderValues, Paginator
from connectors.declarative.requests.records.selector import Selector
from connectors.declarative.requests.requester import Requester
from connectors.declarative.requests.retriever import Retriever
from connectors.sdk.http.client import is_ignored
from connectors.sdk.http.failures import excerpt, place
from connectors.sdk.http.messages import Response
from connectors.sdk.items import Record
from connectors.sdk.reports import FAILED
from connectors.sdk.stopping import stopped_by
from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError

Values = Callable[[Response], list[Any]]
"""Returns the values that an extractor finds in a response."""

CREATION, POLLING, TARGET = "creation_response", "polling_response", "download_target"


class Status(Enum):
    """The states of a job."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timeout"
    SKIPPED = "skipped"


@dataclass
class Job:
    """A job that was created.

    Attributes:
        of: the slice.
        created: the response that created the job.
        polled: the last response that has its state; None before the first one.
        word: the API's word for the state.
    """

    of: Slice
    created: Response
    polled: Response | None = None
    word: str = ""

    def slice(self, **more: Any) -> Slice:
        """Return the slice with the values that the templates of the job's requests see."""
        extra = {**self.of.extra, CREATION: _shown(self.created), **more}
        if self.polled is not None:
            extra[POLLING] = _shown(self.polled)
        return replace(self.of, extra=extra)


@dataclass(frozen=True)
class JobApi:
    """The requests of jobs. One object serves all slices and threads.

    Attributes:
        creation: the requester that creates a job.
        polling: the requester that asks for its state.
        statuses: the states by the words of the API.
        status: finds the word in the response.
        targets_at: finds what to download in a response; None for a single download without a target.
        target_requester: requests the targets; None if the last response with the state has them.
        abort_requester: the requester that ends a job; None if jobs cannot be ended.
        delete_requester: the requester that deletes the data; None if they are not deleted.
    """

    creation: Requester
    polling: Requester
    statuses: Mapping[str, Status]
    status: Values
    targets_at: Values | None = None
    target_requester: Requester | None = None
    abort_requester: Requester | None = None
    delete_requester: Requester | None = None

    def create(self, stream_slice: Slice) -> Job:
        """Create a job.

        Raises:
            EltError: the API does not create it.
        """
        response = _send(self.creation, stream_slice)
        if is_ignored(response) and not response.is_success:
            raise SystemFailure(
                f"{place(response.request)} did not create a job ({response.status_code}): "
                f"{excerpt(response)}",
                guidance="see what the API says; an error handler cannot ignore this answer",
            )
        return Job(stream_slice, response)

    def poll(self, job: Job) -> Status:
        """Return the state of a job.

        Raises:
            EltError: the request fails, or the API has another word for the state.
        """
        response = _send(self.polling, job.slice())
        job.word = str(next(iter(self.status(response)), None))
        status = self.statuses.get(job.word)
        if status is None:
            raise SystemFailure(
                f"{place(response.request)} returned the state {job.word!r} of a job, which the manifest "
                f"does not know; it knows {', '.join(map(repr, self.statuses))}",
                guidance="add it to `status_mapping`, or correct `status_extractor`",
            )
        job.polled = response
        return status

    def targets(self, job: Job) -> list[Any]:
        """Return what to download, such as URLs; an empty text for the download of a job without targets.

        Raises:
            EltError: the request for them fails.
        """
        if self.targets_at is None:
            return [""]
        if self.target_requester is not None:
            return self.targets_at(_send(self.target_requester, job.slice()))
        assert job.polled is not None
        return self.targets_at(job.polled)

    def abort(self, job: Job) -> None:
        """Ask the API to end a job.

        Raises:
            EltError: the request fails.
        """
        if self.abort_requester is not None:
            _send(self.abort_requester, job.slice())

    def delete(self, job: Job) -> None:
        """Ask the API to delete the data of a job.

        Raises:
            EltError: the request fails.
        """
        if self.delete_requester is not None:
            _send(self.delete_requester, job.slice())


def statuses(component: components.AsyncJobStatusMap) -> dict[str, Status]:
    """Return the states by the words of the API.

    Raises:
        ConfigError: a word stands for two states.
    """
    status_by_word: dict[str, Status] = {}
    for status in Status:
        for word in getattr(component, status.value) or ():
            if status_by_word.setdefault(word, status) is not status:
                raise ConfigError(
                    f"{component.place}: {word!r} stands for both {status_by_word[word].value} "
                    f"and {status.value}",
                    guidance="write each state of the API once",
                )
    return status_by_word


def _send(requester: Requester, stream_slice: Slice) -> Response:
    return requester.for_slice({**stream_slice.variables(), **stream_slice.extra}).send()


def _shown(response: Response) -> dict[str, Any]:
    """Return what templates see of a response: its JSON object, and its headers and its request."""
    body = json_body_if_any(response)
    fields = dict(body) if isinstance(body, dict) else {}
    fields.setdefault("headers", HeaderValues(response))
    if "request" not in fields:
        request = response.request
        fields["request"] = {
            "method": request.method,
            "url": str(request.url),
            "headers": HeaderValues(Response(200, headers=request.headers.raw)),
            "body": request.read().decode("utf-8", "replace"),
        }
    return fields


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
