"""Locations: the options of a store, and what they become for pyarrow and delta-rs."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from elt_assets.errors import ConfigError
from elt_assets.storage.location import Location

SECRET = "hunter2hunter2"
PLACES = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
OTHERS = ("AWS_ALLOW_HTTP", "AWS_MAX_ATTEMPTS", "ELT_STORAGE_OPTIONS", "AZURE_STORAGE_ACCOUNT_KEY")


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*PLACES, *OTHERS):
        monkeypatch.delenv(name, raising=False)


def test_options_are_those_of_the_environment_the_file_and_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "of-the-environment")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://environment.example")
    (tmp_path / "options").write_text("AWS_REGION: of-the-file\nskip_signature: true\n")
    monkeypatch.setenv("ELT_STORAGE_OPTIONS", str(tmp_path / "options"))
    place = Location.parse("s3://bucket/lake", {"aws_access_key_id": "given"})
    options = place.child("table").for_delta or {}
    assert {name: value for name, value in options.items() if name.startswith("aws_")} == {
        "aws_region": "of-the-file",
        "aws_endpoint_url": "https://environment.example",
        "aws_skip_signature": "true",
        "aws_access_key_id": "given",
    }
    assert Location.parse(str(tmp_path)).for_delta is None
    assert Location.parse(tmp_path.as_uri(), {"aws_region": "unused"}).options == {}


def test_requests_have_limits_that_options_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of a request that is slow, and the attempts in place of one that fails."""
    limits = Location.parse("s3://bucket/lake").for_delta or {}
    assert (limits["timeout"], limits["max_retries"]) == ("120s", "9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "3")
    place = Location.parse("s3://bucket/lake", {"aws_request_timeout": "600"})
    limits = place.for_delta or {}
    assert (limits["timeout"], limits["max_retries"]) == ("600s", "2")
    assert not {"aws_request_timeout", "aws_max_attempts"} & {*limits}


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "soon", "", "1000000"])
@pytest.mark.parametrize("name", ["aws_request_timeout", "aws_max_attempts"])
def test_a_limit_that_is_no_positive_number_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Location.parse("s3://bucket/lake", {name: value})


def test_a_file_system_can_be_sent_to_a_task() -> None:
    place = Location.parse(
        "s3://bucket/lake/a%20b",
        {"region": "eu-central-1", "secret_access_key": SECRET, "access_key_id": "k"},
    )
    system, path = place.file_system()
    assert path == "bucket/lake/a b"
    assert pickle.loads(pickle.dumps(system)).equals(system)
    assert system.region == "eu-central-1"


def test_secrets_are_in_no_text_of_a_location() -> None:
    place = Location.parse("s3://bucket/lake", {"secret_access_key": SECRET})
    assert SECRET not in f"{place} {place!r} {[place.child('x')]}"


def test_azure_names_container_and_account() -> None:
    place = Location.parse(
        "abfss://tables@account.dfs.core.windows.net/lake", {"azure_storage_account_key": "a2V5"}
    )
    assert place.file_system()[1] == "tables/lake"
    assert place.for_delta == {"azure_storage_account_key": "a2V5"}


@pytest.mark.parametrize(
    ("uri", "options", "expected"),
    [
        ("s3a://bucket/lake", {}, "s3a:// are not supported"),
        ("http://host/lake", {}, "http:// are not supported"),
        (f"s3://key:{SECRET}@bucket/lake", {}, "contains a key, a query"),
        (f"s3://bucket/lake?secret_key={SECRET}", {}, "contains a key, a query"),
        ("abfss://account.dfs.core.windows.net/lake", {}, "a container and an account"),
        ("s3://bucket", {"aws_secret": SECRET}, "sets aws_secret, which is not an option"),
        ("gs://bucket", {"google_key": SECRET}, "set the credentials in the environment"),
        ("s3://bucket", {"endpoint_url": "localhost:9000"}, "not an http:// or https:// URL"),
        ("s3://bucket", {"endpoint_url": "http://localhost:9000"}, "without encryption"),
    ],
)
def test_what_is_not_supported_is_refused_without_secrets(
    uri: str, options: dict[str, str], expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Location.parse(uri, options)
    assert expected in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("text", [f"- {SECRET}", f"'{SECRET}", f"a: [{SECRET}]", None])
def test_a_file_that_is_no_mapping_is_refused_without_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    file = tmp_path / "options"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("ELT_STORAGE_OPTIONS", str(file))
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        Location.parse("s3://bucket/lake")
    assert SECRET not in str(caught.value) and caught.value.__cause__ is None
