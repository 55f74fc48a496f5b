"""Jobs of an API: creation, states, downloads, several targets, failures, waits and limits."""

from __future__ import annotations

import csv
import gzip
import io
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml

from connectors.declarative.cursors.slices import Option, Slice
from connectors.declarative.manifest import components
from connectors.declarative.requests.building import build_retriever
from connectors.declarative.requests.jobs.retriever import POLL_SECONDS
from connectors.declarative.requests.retriever import Retriever
from connectors.sdk.http.places import Place
from connectors.sdk.items import Record
from connectors.sdk.reports import FAILED
from elt_assets.errors import ConfigError, EltError, SystemFailure, TransientError
from tests.connectors.declarative.requests.support import Reading, component
from tests.programs.json_api import Answer
from tests.programs.recording_api import Received, in_turn, routes

pytestmark = pytest.mark.unit

EXPORT = """
record_selector: {extractor: {type: DpathExtractor, field_path: [unused]}}
status_mapping:
  {running: [pending], completed: [ready], failed: [failed], timeout: [expired], skipped: [empty]}
status_extractor: {type: DpathExtractor, field_path: [status]}
download_target_extractor: {type: DpathExtractor, field_path: [urls]}
creation_requester:
  type: HttpRequester
  url_base: "{{ config['url'] }}"
  path: exports
  http_method: POST
  request_body_json: {from: "{{ stream_interval.start_time }}"}
polling_requester:
  type: HttpRequester
  url_base: "{{ config['url'] }}"
  path: "exports/{{ creation_response['id'] }}"
download_requester:
  type: HttpRequester
  url_base: "{{ download_target }}"
"""
CREATED = {"id": "j1"}
PENDING, FAILED_JOB = {"status": "pending"}, {"status": "failed"}


def retriever(reading: Reading, more: str = "", **settings: Any) -> Retriever:
    """The retriever of an export, with more fields."""
    written = {"type": "AsyncRetriever", **yaml.safe_load(EXPORT), **(yaml.safe_load(more) or {})}
    written = {name: each for name, each in written.items() if each is not None}
    transformations = settings.pop("transformations", [])
    stream = component(
        components.DeclarativeStream,
        {"name": "orders", "retriever": written, "transformations": transformations},
    )
    return build_retriever(
        stream.retriever,
        reading.environment,
        name="orders",
        transformations=stream.transformations,
        **settings,
    )


def records(
    reading: Reading, more: str = "", each: Slice | None = None, **settings: Any
) -> list[Record]:
    """The records of a slice."""
    found = retriever(reading, more, **settings).pages(each or Slice())
    return [record for page in found for record in page]


def error(reading: Reading, more: str = "") -> EltError:
    """The error with which the read of a slice ends."""
    with pytest.raises(EltError) as caught:
        records(reading, more)
    return caught.value


def ready(reading: Reading, *paths: str) -> dict[str, Any]:
    """The answer for a complete job whose downloads have some paths."""
    return {"status": "ready", "urls": [f"{reading.api.url}/{path}" for path in paths]}


def csv_file(*rows: dict[str, str]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def test_a_job_is_created_polled_and_downloaded(reading: Reading) -> None:
    reading.answer(
        routes(
            {
                "/exports": CREATED,
                "/exports/j1": (PENDING, PENDING, ready(reading, "files/a", "files/b")),
                "/files/a": [{"id": 1}, {"id": 2}],
                "/files/b": [{"id": 3}],
            }
        )
    )
    slept: list[float] = []
    reading.environment.sleep = slept.append
    found = records(reading, each=Slice(interval={"start_time": "2024-01-01"}))
    assert found == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert reading.api.urls == ["/exports", *["/exports/j1"] * 3, "/files/a", "/files/b"]
    assert reading.api.requests[0].json == {"from": "2024-01-01"}
    assert slept == [POLL_SECONDS, POLL_SECONDS]
    assert reading.waits == []


def test_templates_see_the_responses_their_headers_and_requests(reading: Reading) -> None:
    reading.answer(
        routes(
            {
                "/exports": Answer(200, CREATED, headers={"X-Region": "eu"}),
                "/exports/j1": {"status": "ready", "file": "f9"},
                "/files/f9": [{"id": 1}],
            }
        )
    )
    more = """
      creation_requester:
        type: HttpRequester
        url_base: "{{ config['url'] }}"
        path: exports
        http_method: POST
        request_headers: {X-Profile: "{{ stream_partition.profile }}"}
      polling_requester:
        type: HttpRequester
        url_base: "{{ config['url'] }}"
        path: "exports/{{ stream_slice.extra_fields['creation_response']['id'] }}"
        request_headers:
          X-Profile: "{{ creation_response.request.headers['x-profile'] }}"
          X-Region: "{{ creation_response.headers['x-region'] }}"
      download_target_extractor: null
      download_requester:
        type: HttpRequester
        url_base: "{{ config['url'] }}"
        path: "files/{{ polling_response['file'] }}"
        request_parameters: {target: "{{ download_target }}", job: "{{ creation_response.id }}"}
    """
    assert records(reading, more, Slice({"profile": "p7"})) == [{"id": 1}]
    polled, downloaded = reading.api.requests[1:]
    assert (polled.headers["x-profile"], polled.headers["x-region"]) == ("p7", "eu")
    assert downloaded.query == [("job", "j1")]


def test_the_targets_can_need_a_request_of_their_own(reading: Reading) -> None:
    reading.answer(
        routes(
            {
                "/exports": CREATED,
                "/exports/j1": {"status": "ready", "document": "d1"},
                "/documents/d1": {"urls": f"{reading.api.url}/files/a?signature=x%2Fy"},
                "/files/a": [{"id": 1}],
            }
        )
    )
    more = """
      download_target_requester:
        type: HttpRequester
        url_base: "{{ config['url'] }}"
        path: "documents/{{ polling_response['document'] }}"
    """
    assert records(reading, more) == [{"id": 1}]
    assert reading.api.requests[-1].target == "/files/a?signature=x%2Fy"
    message = error(reading, more + "\n      download_target_extractor: null").message
    assert "`download_target_requester`, but no `download_target_extractor`" in message


def test_records_are_filtered_transformed_and_cast(reading: Reading) -> None:
    reading.answer(
        routes(
            {
                "/exports": CREATED,
                "/exports/j1": ready(reading, "files/a"),
                "/files/a": {"rows": [{"Id": "1"}, {"Id": "2"}]},
            }
        )
    )
    more = """
      download_extractor: {type: DpathExtractor, field_path: [rows]}
      record_selector:
        extractor: {type: DpathExtractor, field_path: []}
        record_filter: {condition: "{{ record['Id'] != stream_partition.skipped }}"}
        schema_normalization: Default
    """
    found = records(
        reading,
        more,
        Slice({"skipped": "1"}),
        transformations=[{"type": "KeysToLower"}],
        schema=lambda: {"properties": {"id": {"type": "integer"}}},
    )
    assert found == [{"id": 2}]


def test_downloads_have_decoders_and_pages(reading: Reading) -> None:
    def file(request: Received) -> Any:
        rows = [{"id": "1"}, {"id": "2"}] if "page" not in request.params else [{"id": "3"}]
        return Answer(200, gzip.compress(csv_file(*rows)))

    reading.answer(
        routes({"/exports": CREATED, "/exports/j1": ready(reading, "files/a"), "/files/a": file})
    )
    more = """
      download_decoder: {type: GzipDecoder, decoder: {type: CsvDecoder}}
      download_paginator:
        type: DefaultPaginator
        pagination_strategy: {type: PageIncrement, page_size: 2, start_from_page: 1}
        page_token_option: {type: RequestOption, inject_into: request_parameter, field_name: page}
    """
    assert records(reading, more) == [{"id": "1"}, {"id": "2"}, {"id": "3"}]
    assert reading.api.urls[-2:] == ["/files/a", "/files/a?page=2"]


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_stored_file_is_csv_whose_null_texts_are_null(
    reading: Reading, is_compressed: bool
) -> None:
    content = b"id,name,code\n1,,NA\n2,\x00Ada,x\n3,null\n"
    reading.answer(
        routes(
            {
                "/exports": CREATED,
                "/exports/j1": ready(reading, "files/a"),
                "/files/a": Answer(200, gzip.compress(content) if is_compressed else content),
            }
        )
    )
    assert records(reading, "download_extractor: {type: ResponseToFileExtractor}") == [
        {"id": "1", "name": None, "code": None},
        {"id": "2", "name": "Ada", "code": "x"},
        {"id": "3", "name": None, "code": None},
    ]
    kept = "download_extractor: {type: ResponseToFileExtractor, preserve_na_values: true}"
    assert records(reading, kept)[0] == {"id": "1", "name": None, "code": "NA"}
    assert records(reading, kept)[2]["name"] == "null"


def test_a_large_file_comes_in_several_lists(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.declarative.requests.decoding.decoders.CHUNK", 10)
    rows = [{"id": str(number)} for number in range(25)]
    reading.answer(
        routes(
            {
                "/exports": CREATED,
                "/exports/j1": ready(reading, "files/a"),
                "/files/a": Answer(200, csv_file(*rows)),
            }
        )
    )
    pages = list(retriever(reading, "download_decoder: {type: CsvDecoder}").pages(Slice()))
    assert [len(page) for page in pages] == [10, 10, 5]


def test_the_data_are_deleted_after_the_download(reading: Reading) -> None:
    more = """
      delete_requester:
        type: HttpRequester
        url_base: "{{ config['url'] }}"
        path: "exports/{{ creation_response['id'] }}/delete"
        http_method: POST
    """
    reading.answer(
        routes(
            {
                "/exports": CREATED,
                "/exports/j1": ready(reading, "files/a"),
                "/files/a": [{"id": 1}],
                "/exports/j1/delete": {},
            }
        )
    )
    pages = iter(retriever(reading, more).pages(Slice()))
    assert next(pages) == [{"id": 1}]
    assert reading.api.urls[-1] == "/files/a"
    assert list(pages) == []
    assert reading.api.urls[-1] == "/exports/j1/delete"


def test_a_job_that_failed_is_created_again_after_a_wait(reading: Reading) -> None:
    reading.answer(
        routes(
            {
                "/exports": ({"id": "j1"}, {"id": "j2"}),
                "/exports/j1": FAILED_JOB,
                "/exports/j2": ready(reading, "files/a"),
                "/files/a": [{"id": 1}],
            }
        )
    )
    assert records(reading) == [{"id": 1}]
    assert reading.waits == [(POLL_SECONDS, FAILED)]
    assert reading.api.urls == ["/exports", "/exports/j1", "/exports", "/exports/j2", "/files/a"]


def test_the_manifest_sets_the_wait_after_a_failure(reading: Reading) -> None:
    reading.configure(wait=90)
    reading.answer(routes({"/exports": CREATED, "/exports/j1": FAILED_JOB}))
    found = error(reading, """failed_retry_wait_time_in_seconds: "{{ config['wait'] }}" """)
    assert reading.waits == [(90, FAILED), (90, FAILED)]
    assert isinstance(found, SystemFailure)
    assert "stream 'orders'" in found.message and "failed in 3 attempts" in found.message
    assert found.message.endswith("its last state is 'failed'")
    assert reading.api.urls.count("/exports") == 3


def test_a_job_that_takes_too_long_is_ended_and_created_again(reading: Reading) -> None:
    reading.answer(
        routes({"/exports": CREATED, "/exports/j1": PENDING, "/exports/j1/abort": Answer(500)})
    )
    more = """
      polling_job_timeout: 1
      abort_requester:
        type: HttpRequester
        url_base: "{{ config['url'] }}"
        path: "exports/{{ creation_response['id'] }}/abort"
        http_method: POST
        error_handler: {type: DefaultErrorHandler, max_retries: 0}
    """
    found = error(reading, more)
    assert isinstance(found, TransientError) and "not complete after 1 min" in found.message
    assert "polling_job_timeout" in (found.guidance or "")
    assert reading.api.urls.count("/exports/j1/abort") == 3
    assert reading.api.urls.count("/exports/j1") == 3 * (60 // int(POLL_SECONDS) + 1)


def test_a_job_that_the_api_ends_itself_is_created_again_without_the_longer_wait(
    reading: Reading,
) -> None:
    reading.answer(
        routes(
            {
                "/exports": CREATED,
                "/exports/j1": ({"status": "expired"}, ready(reading, "files/a")),
                "/files/a": [{"id": 1}],
            }
        )
    )
    assert records(reading, "failed_retry_wait_time_in_seconds: 90") == [{"id": 1}]
    assert reading.waits == [(POLL_SECONDS, FAILED)]
    reading.answer(routes({"/exports": CREATED, "/exports/j1": {"status": "expired"}}))
    found = error(reading)
    assert isinstance(found, TransientError)
    assert "took too long for the API in 3 attempts; its last state is 'expired'" in found.message


def test_a_job_that_is_skipped_has_no_records_and_no_download(reading: Reading) -> None:
    reading.answer(routes({"/exports": CREATED, "/exports/j1": {"status": "empty"}}))
    assert records(reading) == []
    assert reading.api.urls == ["/exports", "/exports/j1"]


def test_a_creation_that_fails_is_another_attempt(reading: Reading) -> None:
    answers = in_turn(Answer(400, {"message": "busy"}), Answer(400, {"message": "busy"}), CREATED)
    reading.answer(
        routes(
            {"/exports": answers, "/exports/j1": ready(reading, "files/a"), "/files/a": [{"id": 1}]}
        )
    )
    assert records(reading) == [{"id": 1}]
    reading.answer(routes({"/exports": Answer(400, {"message": "busy"})}))
    assert "busy" in error(reading).message
    assert reading.api.urls[-3:] == ["/exports"] * 3


def test_refused_credentials_end_the_stream_at_once(reading: Reading) -> None:
    reading.answer(Answer(401, {"message": "who are you"}))
    assert isinstance(error(reading), ConfigError)
    assert reading.api.urls == ["/exports"]


def test_a_creation_that_an_error_handler_ignores_is_a_failure(reading: Reading) -> None:
    reading.answer(Answer(409, {"message": "there is one"}))
    more = """
      creation_requester:
        type: HttpRequester
        url_base: "{{ config['url'] }}"
        path: exports
        error_handler:
          type: DefaultErrorHandler
          response_filters: [{action: IGNORE, http_codes: [409]}]
    """
    found = error(reading, more)
    assert "did not create a job (409)" in found.message and "there is one" in found.message


def test_an_unknown_state_is_an_error_that_names_it_and_ends_the_job(reading: Reading) -> None:
    reading.answer(
        routes({"/exports": CREATED, "/exports/j1": {"status": "paused"}, "/exports/j1/abort": {}})
    )
    more = """
      abort_requester:
        type: HttpRequester
        url_base: "{{ config['url'] }}"
        path: "exports/{{ creation_response['id'] }}/abort"
    """
    found = error(reading, more)
    assert "the state 'paused' of a job" in found.message and "'ready'" in found.message
    assert "status_mapping" in (found.guidance or "")
    assert reading.api.urls[-1] == "/exports/j1/abort"


def test_a_poll_that_fails_ends_the_slice(reading: Reading) -> None:
    reading.answer(routes({"/exports": CREATED, "/exports/j1": Answer(404, {"message": "gone"})}))
    found = error(reading)
    assert isinstance(found, SystemFailure) and "gone" in found.message
    assert reading.api.urls == ["/exports", "/exports/j1"]


def test_a_download_that_fails_is_an_error_of_the_stream(reading: Reading) -> None:
    reading.answer(
        routes(
            {
                "/exports": CREATED,
                "/exports/j1": ready(reading, "files/a"),
                "/files/a": Answer(403, {"message": "expired link"}),
            }
        )
    )
    assert "expired link" in error(reading).message


def test_a_word_cannot_stand_for_two_states(reading: Reading) -> None:
    more = "status_mapping: {running: [x], completed: [done], failed: [x], timeout: [late]}"
    found = error(reading, more)
    assert isinstance(found, ConfigError)
    assert "'x' stands for both running and failed" in found.message


@pytest.mark.parametrize("written", ["polling_job_timeout: -1", "polling_job_timeout: 'soon'"])
def test_a_time_that_is_none_is_an_error(reading: Reading, written: str) -> None:
    assert "polling_job_timeout is not a" in error(reading, written).message


def test_options_of_a_slice_are_left_to_the_templates(reading: Reading) -> None:
    reading.answer(
        routes(
            {"/exports": CREATED, "/exports/j1": ready(reading, "files/a"), "/files/a": [{"id": 1}]}
        )
    )
    options = [Option(Place("params", ("since",)), "2024-01-01")]
    assert list(retriever(reading).pages(Slice(), options)) == [[{"id": 1}]]
    assert not any(request.query for request in reading.api.requests)


def test_only_some_jobs_run_at_the_same_time(reading: Reading) -> None:
    reading.environment.job_slots = threading.Semaphore(2)
    running, most, lock = 0, 0, threading.Lock()
    polls: dict[str, int] = {}

    def script(request: Received) -> Any:
        nonlocal running, most
        with lock:
            if request.path == "/exports":
                running += 1
                most = max(most, running)
                return {"id": f"j{len(reading.api.requests)}"}
            if request.path.startswith("/files"):
                return [{"id": request.path}]
            polls[request.path] = polls.get(request.path, 0) + 1
            if polls[request.path] < 3:
                return PENDING
            running -= 1
            return ready(reading, f"files{request.path}")

    reading.answer(script)
    found = retriever(reading)
    with ThreadPoolExecutor(6) as threads:
        pages = list(threads.map(lambda _: list(found.pages(Slice())), range(6)))
    assert len({record["id"] for page in pages for record in page[0]}) == 6
    assert most == 2
