"""The filter of records before they are staged: which are stored, with which fields, by which names.

`pipeline.stream` makes it, `streams` passes it to `documents`, which applies it, and so does `relay`;
`destination_messages` compares values by `canonical_text`.

A record is decoded one level at a time, along the paths of the rules only. A value that no rule concerns is
not decoded; its bytes stay unchanged.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation

import msgspec
from msgspec import Raw

from elt_assets.protocol.messages import NULL, RawRecord
from elt_assets.protocol.wire import read
from elt_assets.sync.field_selection import Action, FieldSelection, Node, Renames

Condition = Callable[[Mapping[str, Raw]], bool]
"""A function that returns whether a record is stored, from its top-level fields as the source sent them."""

WITHHELD = Raw(b'"withheld: some fields of this stream must not be stored"')
"""The replacement for the content of a record that is not a JSON object: such a record is rejected."""

_OBJECT, _ARRAY, _QUOTE, _N = b'{["n'
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_array = msgspec.json.Decoder(list[Raw]).decode
_decode_string = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")


class _Change(msgspec.Struct, omit_defaults=True):
    """A change to one field of a record. Spec: AirbyteRecordMessageMetaChange."""

    field: str | None = None
    change: str | None = None
    reason: str | None = None


class _Meta(msgspec.Struct):
    changes: list[_Change] | None = None


_decode_meta = msgspec.json.Decoder(_Meta).decode


class RecordFilter:
    """A filter that applies conditions, a field selection and new names, in this order, to the records of its
    stream.

    A rule for `a.b` needs an object, or an array of objects, in `a`. If `a` is anything else, for example a
    text, it becomes null, because it could contain what must not be stored; the record's `meta.changes` lists
    it. The content of a record that is not a JSON object, or cannot be decoded, is replaced by `WITHHELD`.
    Only `changes` is kept of a record's `meta`, without the changes of dropped fields. Without a selection
    no content must be hidden: then such a record's data become a text of the same content, so that it is
    rejected too, whatever names its fields have.

    Args:
        fields: the rules; None: all fields are kept.
        salt: the key of the hashes; required if the rules hash a field.
        renames: the new names of fields.
        condition: whether a record is stored.
        check: raises an EltError for the stored data of a record before which the sync stops.
    """

    def __init__(
        self,
        fields: FieldSelection | None,
        salt: bytes | None = None,
        *,
        renames: Renames | None = None,
        condition: Condition | None = None,
        check: Callable[[Raw], None] | None = None,
    ):
        assert salt or fields is None or not fields.hashed, "without a salt a hash hides nothing"
        self._tree = None if fields is None else fields.tree
        self._salt = salt or b""
        self._condition = condition
        self._check = check
        self.renames = renames

    def __call__(self, record: RawRecord) -> RawRecord | None:
        """Filter a record in place; return None if it is not stored."""
        withheld: list[str] = []
        try:
            if memoryview(record.data)[0] == _OBJECT:
                # A dict of names and raw values: of equal names, with or without escapes, the last one stays.
                fields = read(_decode_object, record.data)
                if self._condition is not None and not self._condition(fields):
                    return None
                record.data = self._convert(record.data, fields, withheld)
            else:
                record.data = self._withhold(record.data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            record.data = self._withhold(record.data)
        else:
            if self._check is not None:
                self._check(record.data)
        if withheld or record.meta is not NULL:
            record.meta = self._meta(record.meta, withheld)
        return record

    def _convert(self, data: Raw, fields: dict[str, Raw], withheld: list[str]) -> Raw:
        """Return the data of a record with the selected fields, by their new names."""
        if self._tree is not None:
            self._select(fields, self._tree, withheld)
        elif self.renames is None:
            return data
        if self.renames is not None:
            fields = self.renames.rename_fields(fields)
        return Raw(_encode(fields))

    def _withhold(self, data: Raw) -> Raw:
        """Return what replaces data that are no JSON object, or cannot be decoded."""
        if self._tree is not None:
            return WITHHELD
        return (
            data if self.renames is None else Raw(_encode(bytes(data).decode("utf-8", "replace")))
        )

    def _select(self, fields: dict[str, Raw], node: Node, withheld: list[str]) -> None:
        """Remove and hash fields of an object in place."""
        for name in list(fields):
            rule = node.rule_for(name)
            if rule is Action.DROP:
                del fields[name]
            elif rule is Action.HASH:
                fields[name] = hash_value(fields[name], self._salt)
            elif isinstance(rule, Node):
                fields[name] = self._filter_nested(fields[name], rule, withheld)

    def _filter_nested(self, value: Raw, node: Node, withheld: list[str]) -> Raw:
        first = memoryview(value)[0]
        if first == _OBJECT:
            fields = read(_decode_object, value)
            self._select(fields, node, withheld)
            return Raw(_encode(fields))
        if first == _ARRAY:
            items = [
                self._filter_nested(item, node, withheld) for item in read(_decode_array, value)
            ]
            return Raw(_encode(items))
        if first != _N:
            withheld.append(node.path)
        return NULL

    def _meta(self, meta: Raw, withheld: Sequence[str]) -> Raw:
        try:
            own = read(_decode_meta, meta).changes or []
        except (msgspec.MsgspecError, RecursionError):
            own = []
        tree = self._tree
        changes = [
            change
            for change in own
            if tree is None or change.field is None or _is_stored(tree, change.field)
        ]
        nulled = dict.fromkeys(withheld)  # one change for all elements of an array
        changes += [_Change(path, "NULLED", "DESTINATION_TYPECAST_ERROR") for path in nulled]
        if self.renames is not None:
            for change in changes:
                change.field = change.field and self.renames.rename_path(change.field)
        return Raw(_encode(_Meta(changes))) if changes else NULL


def _is_stored(node: Node, path: str) -> bool:
    """Return whether any part of a field is kept.

    A dot in `path` separates two levels or is part of a name.
    """
    first, _, rest = path.partition(".")
    rule = node.rule_for(path if path in node.children else first)
    if isinstance(rule, Node) and rest and path not in node.children:
        return _is_stored(rule, rest)
    return rule is not Action.DROP


def hash_value(value: Raw, salt: bytes) -> Raw:
    """Return the hash of a value as a JSON string; null stays null.

    The hash is the hexadecimal HMAC-SHA-256, with the salt as its key, of the UTF-8 text of a string, or of
    the canonical JSON of any other value. Texts that are no text have different hashes if they differ.

    Raises:
        msgspec.MsgspecError: the value is not JSON.
    """
    first = memoryview(value)[0]
    if first == _N:
        return value
    text = _string(value) if first == _QUOTE else canonical_text(value)
    octets = text.encode("utf-8", "surrogatepass")
    return Raw(b'"%b"' % hmac.digest(salt, octets, "sha256").hex().encode())


def canonical_text(value: Raw) -> str:
    """Return the canonical text of a JSON value: names sorted, no spaces, no unnecessary escapes.

    Equal numbers have the same text: `5`, `5.0` and `0.5e1` become `5`.
    """
    first = memoryview(value)[0]
    if first == _OBJECT:
        fields = sorted(read(_decode_object, value).items())
        pairs = ",".join(f"{_quote(name)}:{canonical_text(inner)}" for name, inner in fields)
        return f"{{{pairs}}}"
    if first == _ARRAY:
        return f"[{','.join(map(canonical_text, read(_decode_array, value)))}]"
    if first == _QUOTE:
        return _quote(_string(value))
    text = bytes(value).decode()
    if text in _NOT_FINITE:
        return _quote(text)
    return text if text in ("null", "true", "false") else _number(text)


def _string(value: Raw) -> str:
    try:
        return _decode_string(value)
    except (msgspec.MsgspecError, UnicodeDecodeError):  # see `protocol.wire`
        text = bytes(value).decode("utf-8", "surrogateescape")
        return str(json.loads(text, strict=False))


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _number(text: str) -> str:
    """Return the canonical text of a number: all its digits, in the format of ECMAScript."""
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:  # for example an exponent of twenty digits
        return text.lower()
    assert isinstance(exponent, int)
    significant = "".join(map(str, digits)).rstrip("0")
    if not significant:
        return "0"
    exponent += len(digits) - len(significant)
    value = Decimal(f"{'-' * sign}{significant}E{exponent}")
    return f"{value:f}" if -7 <= value.adjusted() < 21 else f"{value:e}"
