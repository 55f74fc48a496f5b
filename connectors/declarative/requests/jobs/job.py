"""One job of an API: its requests, and what its templates see.

Spec: AsyncRetriever, AsyncJobStatusMap; the variables `creation_response`, `polling_response` and
`download_target`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from connectors.declarative.cursors.slices import Slice
from connectors.declarative.manifest import components
from connectors.declarative.requests.decoding.json_body import json_body_if_any
from connectors.declarative.requests.pages.view import HeaderValues
from connectors.declarative.requests.requester import Requester
from connectors.sdk.http.client import is_ignored
from connectors.sdk.http.failures import excerpt, place
from connectors.sdk.http.messages import Response
from elt_assets.errors import ConfigError, SystemFailure

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
