from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.object_store import s3_server


@pytest.fixture(scope="package")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an S3 server, which all tests of files share."""
    with s3_server(tmp_path_factory.mktemp("s3") / "log") as address:
        yield address
