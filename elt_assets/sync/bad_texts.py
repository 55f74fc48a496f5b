"""Texts that are no text, in the records that go to another destination.

Some destinations, among them those made with Airbyte's Python CDK, skip a line with half of a surrogate pair
or with bytes that are not UTF-8: the record would be lost. So U+FFFD replaces what is not a character, and
the record's `meta.changes` lists the field. Fields of the key stay as received: two keys that differ must not
become one.

Spec: AirbyteRecordMessageMetaChange; the table in docs/connectors.md.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from msgspec import Raw

from elt_assets.protocol.messages import Record
from elt_assets.protocol.wire import as_read, read, repair

_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_changes = msgspec.json.Decoder(list[Raw]).decode
_encode = msgspec.json.encode


def replace_bad_texts(record: Record, key: Collection[str]) -> list[str]:
    """Replace bad texts outside of a record's key, in place; return the names of the changed fields.

    Raises:
        msgspec.MsgspecError: the record is not a JSON object.
    """
    if record.meta is not None:
        record.meta = Raw(as_read(bytes(record.meta)))
    fields, changed = read(_decode_fields, record.data), []
    for name, value in fields.items():
        readable = as_read(bytes(value))
        if name not in key and readable != repair(bytes(value)):
            fields[name] = Raw(readable)
            changed.append(name)
    if changed:
        record.data = Raw(_encode(fields))
        record.meta = _record_changes(record.meta, changed)
    return changed


def _record_changes(meta: Raw | None, names: Collection[str]) -> Raw:
    """Return a record's `meta` with a change of each field."""
    try:
        own = _decode_fields(meta or b"{}")
        before = _decode_changes(own.get("changes", b"[]"))
    except msgspec.MsgspecError:
        own, before = {}, []
    reason = {"change": "TRUNCATED", "reason": "PLATFORM_SERIALIZATION_ERROR"}
    changes = [*before, *({"field": name, **reason} for name in names)]
    return Raw(_encode({**own, "changes": Raw(_encode(changes))}))
