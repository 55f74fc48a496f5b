"""Keys of S3 that are no paths: each object is read under its name, or refused by its name."""

from __future__ import annotations

import gzip
import io
import json
import sys
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.connectors.files.support import Reader, last_state, s3_options
from tests.connectors.support import records
from tests.support.object_store import KEY, REGION, SECRET, ObjectStore, new_bucket

KEYS = [
    *(
        "a b.jsonl",
        "a+b.jsonl",
        "a%20b.jsonl",
        "a%2Fb.jsonl",
        "ü é.jsonl",
        "u\u0308.jsonl",
        "x[1].jsonl",
    ),
    *(
        "q?x=1.jsonl",
        "#hash.jsonl",
        "quote'\".jsonl",
        "back\\slash.jsonl",
        "star*.jsonl",
        "amp&.jsonl",
    ),
    *("trail .jsonl", "tab\t.jsonl", "{a,b}.jsonl", " lead.jsonl", "in.jsonl", "in/in.jsonl"),
    *("sub/a.jsonl", "sub/part=a b/x.jsonl", "sub/ö/x.jsonl", "sub/ /space.jsonl"),
]
ODD_KEYS = ["/lead.jsonl", "sub//double.jsonl", "sub///triple.jsonl", "//sub/a.jsonl"]
"""Keys with empty names between slashes."""


def put(store: ObjectStore, keys: list[str], content: bytes | None = None) -> None:
    """Put objects into the folder `in`; boto3 takes each key as it is."""
    client = boto3.client(
        "s3",
        endpoint_url=store.endpoint,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        region_name=REGION,
    )
    for key in keys:
        body = json.dumps({"key": key}).encode() if content is None else content
        client.put_object(Bucket=store.bucket, Key=f"in/{key}", Body=body)


def test_any_key_of_s3_is_read_under_its_name(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_bucket(endpoint)
    put(store, [*KEYS, *ODD_KEYS, "sub/./hidden.jsonl"])
    put(store, ["", "sub/", "empty/", "sub//", "/"], b"")
    location = f"s3://{store.bucket}/in"

    def make_source(glob: str, kind: str = "jsonl") -> Reader:
        stream = {"name": "s", "glob": glob, "format": kind}
        return Reader(tmp_path, [stream], location, s3=s3_options(store))

    source = make_source("**")
    _, messages = source.run()
    paths = {row["_file_path"]: row["key"] for row in records(messages)}
    assert paths == {key: key for key in [*KEYS, *ODD_KEYS]}
    _, messages = source.run(last_state(messages))
    assert not records(messages)
    assert sorted(row["key"] for row in source.read()) == sorted([*KEYS, *ODD_KEYS])
    for glob, expected in (
        ("*.jsonl", sorted(key for key in KEYS if "/" not in key)),
        ("sub//*", ["sub//double.jsonl"]),
        ("sub/./*", ["sub/./hidden.jsonl"]),
        ("**/sub/*.jsonl", ["//sub/a.jsonl", "sub/a.jsonl"]),
    ):
        assert sorted(row["key"] for row in make_source(glob).read()) == expected
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "boto3", None)
        text = source.fail(catalog=make_source("sub/a.*").catalog())
        assert "empty name" in text and 'pip install "elt-assets[aws]"' in text
        rows = make_source(
            "sub/*.jsonl"
        ).read()  # a glob that does not match them, as the error says
        assert rows == [{"key": "sub/a.jsonl"}]


def test_formats_and_documents_of_keys_with_empty_names(endpoint: str, tmp_path: Path) -> None:
    store = new_bucket(endpoint)
    content = io.BytesIO()
    pq.write_table(pa.table({"n": range(100_000)}), content, row_group_size=1000)
    put(store, ["a//n.parquet"], content.getvalue())
    put(store, ["a//n.csv.gz"], gzip.compress(b"n\n7\n"))
    for kind, rows in (("parquet", [*range(100_000)]), ("csv", [7])):
        stream = {"name": "s", "glob": f"**/*.{kind}*", "format": kind}
        source = Reader(tmp_path, [stream], f"s3://{store.bucket}/in", s3=s3_options(store))
        assert [row["n"] for row in source.read()] == rows


def test_a_marker_of_a_folder_with_content_and_an_odd_location_are_refused(
    endpoint: str, tmp_path: Path
) -> None:
    store = new_bucket(endpoint)
    put(store, ["a/b.jsonl", "c/"])
    stream = {"name": "s", "glob": "a/*", "format": "jsonl"}
    source = Reader(tmp_path, [stream], f"s3://{store.bucket}/in", s3=s3_options(store))
    catalog = source.catalog()
    stream["glob"] = "**"
    assert "the object c/ cannot be read: it has 13 bytes" in source.fail(catalog=catalog)
    stream["glob"] = "**/*.jsonl"  # as the error says
    assert source.read(catalog=catalog) == [{"key": "a/b.jsonl"}]
    source.config["location"] = f"s3://{store.bucket}/in//a"
    assert "between slashes" in source.fail(catalog=catalog)
