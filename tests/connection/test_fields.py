"""`fields` of a stream: how paths are written, and what does not go with the stream."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from elt_assets.connection import field_selection, load_connection, resolve_streams
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import DELETED_AT, AirbyteStream, Catalog
from elt_assets.sync.field_selection import FieldSelection, describe_kept_fields

Json = dict[str, Any]
TEXT = {"type": "string"}
SCHEMA = {
    "properties": {
        "id": {"type": "integer"},
        "updated_at": TEXT,
        "ssn": TEXT,
        "a.b": TEXT,
        "address": {"properties": {"id": TEXT, "city": TEXT, "street": TEXT}},
        "contacts": {"type": "array", "items": {"properties": {"email": TEXT}}},
        "blob": {"type": "object"},
    }
}


def selection(
    folder: Path, fields: Any, /, schema: Json = SCHEMA, **stream: Any
) -> FieldSelection | None:
    """Return the resolved stream with these fields."""
    streams = [{"name": "users", "fields": fields, **stream}]
    attributes = {"name": "shop", "source": {"connector": "faker"}, "streams": streams}
    document = {"type": "elt_assets.ConnectionComponent", "attributes": attributes}
    (folder / "defs.yaml").write_text(yaml.safe_dump(document))
    source = AirbyteStream(
        name="users",
        json_schema=schema,
        supported_sync_modes=["full_refresh", "incremental"],
        default_cursor_field=["updated_at"],
    )
    connection = load_connection(folder)
    [configured] = resolve_streams(connection, Catalog(streams=[source]))
    return field_selection(connection, configured)


def refusal(folder: Path, fields: Any, /, **stream: Any) -> str:
    with pytest.raises(ConfigError) as error:
        selection(folder, fields, **stream)
    assert "stream 'users': " in error.value.message
    return error.value.message


INCREMENTAL = {"sync_mode": "incremental"}
KEYED: Json = INCREMENTAL | {
    "destination_sync_mode": "append_dedup",
    "primary_key": [["id"], ["address", "id"]],
}


def test_a_stream_without_fields_has_no_selection(tmp_path: Path) -> None:
    assert selection(tmp_path, None) is None


def test_a_path_is_a_dotted_text_or_a_list(tmp_path: Path) -> None:
    fields = {"exclude": ["ssn", "address.city", ["a.b"]], "hash": [["contacts", "email"]]}
    assert selection(tmp_path, fields, **KEYED) == FieldSelection(
        exclude=(("ssn",), ("address", "city"), ("a.b",)),
        hashed=(("contacts", "email"),),
        key=(("id",), ("address", "id")),
        cursor=("updated_at",),
    )


def test_the_delete_marker_is_kept_if_deletes_are_applied(tmp_path: Path) -> None:
    described = {"properties": {**SCHEMA["properties"], DELETED_AT: TEXT}}
    keyed = {"destination_sync_mode": "append_dedup", "primary_key": [["id"]]}
    for fields in ({"include": ["ssn"]}, {"exclude": [DELETED_AT]}):
        keyed_selection = selection(tmp_path, fields, schema=described, **keyed)
        assert keyed_selection is not None and keyed_selection.covers((DELETED_AT,))
        keyless_selection = selection(tmp_path, fields, schema=described)
        assert keyless_selection is not None and not keyless_selection.covers((DELETED_AT,))
    assert (
        keyed_selection is not None
        and "it is the stream's delete marker" in describe_kept_fields(keyed_selection)[0]
    )


def test_an_unused_cursor_field_may_be_hashed(tmp_path: Path) -> None:
    hash_selection = selection(
        tmp_path, {"hash": ["updated_at"]}, destination_sync_mode="overwrite"
    )
    assert hash_selection is not None and hash_selection.cursor == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"include": ["ssn"]},
        {"include": ["address"], "hash": ["address.city", "id", "address.id"]},
        {"exclude": ["blob.anything", "address"]},
        {"hash": ["id", "blob"], "exclude": ["contacts"]},
    ],
)
def test_valid_field_selections_are_accepted(fields: Json, tmp_path: Path) -> None:
    assert selection(tmp_path, fields, **KEYED) is not None


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"exclud": ["ssn"]}, "unknown key 'exclud'; did you mean 'exclude'?"),
        ({}, "fields: it is empty; write `include`, `exclude` or `hash`"),
        ({"exclude": []}, r"fields\.exclude: "),
        ({"exclude": "ssn"}, r"fields\.exclude: "),
        ({"exclude": [5]}, r"fields\.exclude\.0: "),
        ({"exclude": ["a..b"]}, r"fields\.exclude\.0: a path is written `a\.b`, or as the list"),
        ({"include": ["id"], "exclude": ["ssn"]}, "fields: `include` excludes all other fields; .* not both"),
        ({"exclude": ["snn"]}, r"fields\.exclude: the stream has no field 'snn'; did you mean 'ssn'\?"),
        ({"include": ["zzz"]}, r"fields\.include: .* no field 'zzz'; it has id, updated_at, "),
        ({"hash": ["adress.city"]}, r"fields\.hash: .* did you mean 'address'\?"),
        ({"hash": ["address.town"]}, r"no field 'address\.town'; 'address' has id, city, street"),
        ({"hash": ["contacts.emails"]}, r"did you mean 'contacts\.email'\?"),
        ({"hash": ["updated_at"]}, r"fields\.hash: 'updated_at' is or holds part of the cursor .* no order"),
        ({"exclude": ["ssn"], "hash": ["ssn"]}, "'ssn' is both hashed and excluded"),
        ({"exclude": ["contacts"], "hash": ["contacts.email"]}, r"excluded \('contacts'\)"),
        ({"exclude": ["contacts.email"], "hash": ["contacts"]}, r"excluded \('contacts\.email'\)"),
        ({"include": ["id"], "hash": ["ssn"]}, "'ssn' is not among `include`; write it there too"),
        ({"include": ["contacts.email"], "hash": ["contacts"]}, "'contacts' is not among `include`"),
        ({"hash": ["contacts", "contacts.email"]}, r"'contacts\.email' lies in another field"),
        ({"hash": ["address"]}, r"'address' holds the primary key 'address\.id'; write `hash: \[addr"),
    ],
)  # fmt: skip
def test_invalid_field_selections_are_refused(fields: Any, expected: str, tmp_path: Path) -> None:
    assert re.search(expected, refusal(tmp_path, fields, **KEYED))


def test_errors_of_fields_are_reported_with_all_other_errors(tmp_path: Path) -> None:
    text = refusal(tmp_path, {"exclude": ["zzz"], "hash": ["yyy"]}, sync_mode="incremental",
                   destination_sync_mode="append_dedup")  # fmt: skip
    assert all(part in text for part in ("'zzz'", "'yyy'", "primary_key: append_dedup needs one"))
