"""Airbyte's own source of S3, which transfers files, on an S3 server: its documents are in the lake."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.object_store import KEY, REGION, SECRET, ObjectStore, new_bucket, s3_server
from tests.support.project import Project, environment_with

pytestmark = [pytest.mark.external, pytest.mark.long]

VERSION = "airbyte-source-s3==4.16.1"
REQUIRED = [
    "airbyte-cdk[file-based]==7.39.1",
    "smart-open[s3]==7.7.1",
    *("dill==0.3.9", "pendulum==3.3.0", "psutil==7.2.2", "pytz==2024.2", "wcmatch==10.0"),
]
"""What the connector requires, except for smart-open: its package demands a version that does not exist."""
KEY_OF_STREAM = 'key:"bucket/docs"'
CONTENTS = {
    "docs/a.pdf": b"%PDF-1.7",
    "docs/2026/Bericht 1.txt": "\u00fcber".encode(),
    "docs/2026/empty.bin": b"",
    "docs/large.bin": os.urandom(12 << 20),
}


def put(store: ObjectStore, name: str, content: bytes) -> None:
    with store.system.open_output_stream(f"{store.bucket}/{name}") as sink:
        sink.write(content)


def read_documents(project: Project) -> dict[str, bytes]:
    for row in project.rows("bucket", "docs"):
        path = row["file_reference"]["source_file_relative_path"]
        assert row["file_name"] == path.rsplit("/", 1)[-1]
    return project.read_documents("bucket", "docs")


@pytest.mark.spec("protocol.79")
def test_documents_of_a_bucket_are_in_the_lake(
    project: Project, packages: Path, tmp_path: Path
) -> None:
    python = environment_with(packages, *REQUIRED, alone=VERSION)
    with s3_server(tmp_path / "s3.log") as endpoint:
        store = new_bucket(endpoint)
        for name, content in CONTENTS.items():
            put(store, name, content)
        config: dict[str, Any] = {
            "bucket": store.bucket,
            "credentials": {
                "auth_type": "iam_user",
                "aws_access_key_id": KEY,
                "aws_secret_access_key": SECRET,
            },
            "region_name": REGION,
            "endpoint": endpoint,
            "delivery_method": {"delivery_type": "use_file_transfer"},
            "streams": [
                {"name": "docs", "globs": ["docs/**"], "format": {"filetype": "unstructured"}}
            ],
        }
        modes = {"sync_mode": "incremental", "destination_sync_mode": "append"}
        project.connection(
            "bucket",
            source={"command": [str(python.with_name("source-s3"))], "config": config},
            streams=[{"name": "docs", **modes}],
        )
        project.discover("bucket")
        project.sync(KEY_OF_STREAM)
        assert read_documents(project) == CONTENTS

        put(store, "docs/new.txt", b"new")
        project.sync(KEY_OF_STREAM)
        assert read_documents(project) == {**CONTENTS, "docs/new.txt": b"new"}
        assert project.metadata("bucket", "docs")["elt/records_read"] == 1
        assert not list((project.home / "staging").iterdir())
