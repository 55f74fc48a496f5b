"""Files of the records of a manifest: downloaded from the addresses in the records, if they are asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.declarative.source import ManifestSource
from elt_assets.protocol.airbyte.file_references import STAGING
from tests.connectors.support import call, errors
from tests.programs.json_api import Answer
from tests.programs.recording_api import RecordingApi, routes, serving

pytestmark = pytest.mark.unit
Json = dict[str, Any]


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingApi]:
    (tmp_path / "staging").mkdir()
    monkeypatch.setenv(STAGING, str(tmp_path / "staging"))
    with serving(RecordingApi()) as served:
        yield served


def manifest(url: str, **uploader: Any) -> Json:
    """A manifest with a stream of attachments, whose requests have a token."""
    token = {"type": "BearerAuthenticator", "api_token": "a-test-token"}
    requester = {"type": "HttpRequester", "authenticator": token}
    extractor = {"type": "DpathExtractor", "field_path": ["url"]}
    stream = {
        "type": "DeclarativeStream",
        "name": "attachments",
        "retriever": {
            "type": "SimpleRetriever",
            "requester": {**requester, "url_base": url, "path": "/attachments"},
            "record_selector": {
                "type": "RecordSelector",
                "extractor": {"type": "DpathExtractor", "field_path": []},
            },
        },
        "file_uploader": {
            "type": "FileUploader",
            "requester": {**requester, "url_base": "{{ download_target }}", "path": ""},
            "download_target_extractor": extractor,
            "filename_extractor": "/{{ record['id'] }}/{{ record['name'] }}",
            **uploader,
        },
    }
    check = {"type": "CheckStream", "stream_names": ["attachments"]}
    return {"version": "7.0.0", "type": "DeclarativeSource", "check": check, "streams": [stream]}


def read(folder: Path, document: Json, *, files: bool = True) -> tuple[int, list[Json]]:
    source = ManifestSource(json.dumps(document))
    config = {"url": document["streams"][0]["retriever"]["requester"]["url_base"]}
    _, messages = call(source, folder, "discover", config=config)
    (described,) = messages[-1]["catalog"]["streams"]
    assert described["is_file_based"] is True
    modes = {"sync_mode": "full_refresh", "destination_sync_mode": "append"}
    catalog = {"streams": [{"stream": described, **modes, "include_files": files}]}
    files_of_read = {"config": config, "catalog": catalog}
    return call(ManifestSource(json.dumps(document)), folder, "read", **files_of_read)


def contents(messages: list[Json]) -> dict[str, bytes]:
    references = [m["record"]["file_reference"] for m in messages if m["type"] == "RECORD"]
    return {
        reference["source_file_relative_path"]: Path(reference["staging_file_url"]).read_bytes()
        for reference in references
    }


def attachment(number: int, url: Any) -> Json:
    return {"id": number, "name": "a.bin", "url": url}


def test_the_file_of_each_record_is_downloaded(api: RecordingApi, tmp_path: Path) -> None:
    body = bytes(range(256))
    list_of_two = [attachment(number, f"{api.url}/files/{number}") for number in (1, 2)]
    answers = {"/files/1": Answer(200, body), "/files/2": Answer(200, b"")}
    api.script = routes({"/attachments": list_of_two, **answers})
    code, messages = read(tmp_path, manifest(api.url))
    assert code == 0, errors(messages)
    names = {"attachments/1/a.bin": body, "attachments/2/a.bin": b""}
    assert contents(messages) == names
    sent = [request.headers.get("authorization") for request in api.requests]
    assert set(sent) == {"Bearer a-test-token"}


def test_without_a_request_no_file_is_downloaded(api: RecordingApi, tmp_path: Path) -> None:
    api.script = routes({"/attachments": [attachment(1, f"{api.url}/files/1")]})
    code, messages = read(tmp_path, manifest(api.url), files=False)
    assert code == 0 and len([m for m in messages if m["type"] == "RECORD"]) == 1
    assert [request.path for request in api.requests] == ["/attachments"]


def test_another_host_gets_no_credentials(api: RecordingApi, tmp_path: Path) -> None:
    with serving(RecordingApi()) as other:
        other.script = routes({"/signed": Answer(200, b"content")})
        api.script = routes({"/attachments": [attachment(1, f"{other.url}/signed")]})
        code, messages = read(tmp_path, manifest(api.url, filename_extractor=None))
        assert code == 0, errors(messages)
        ((name, content),) = contents(messages).items()
        assert content == b"content" and name.startswith("attachments/") and len(name) == 48
        assert [request.headers.get("authorization") for request in other.requests] == [None]


@pytest.mark.parametrize("url", [None, "", 7, [], {"a": 1}])
def test_a_record_without_a_file_is_an_error(api: RecordingApi, tmp_path: Path, url: Any) -> None:
    api.script = routes({"/attachments": [attachment(1, url)]})
    code, messages = read(tmp_path, manifest(api.url))
    assert code == 1 and "names no file" in errors(messages)[0]["message"]


def test_a_download_that_fails_is_an_error(api: RecordingApi, tmp_path: Path) -> None:
    api.script = routes({"/attachments": [attachment(1, f"{api.url}/files/1")]})
    code, messages = read(tmp_path, manifest(api.url))
    assert code == 1 and "404" in errors(messages)[0]["message"]
    ignores = {"type": "HttpResponseFilter", "http_codes": [404], "action": "IGNORE"}
    handler = {"type": "DefaultErrorHandler", "response_filters": [ignores]}
    requester = {"type": "HttpRequester", "url_base": "{{ download_target }}", "path": ""}
    document = manifest(api.url, requester={**requester, "error_handler": handler})
    code, messages = read(tmp_path, document)
    assert code == 1 and "returned no file (404)" in errors(messages)[0]["message"]
