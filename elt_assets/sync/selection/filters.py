"""Records without what must not be stored: applied before anything is staged.

A record is decoded one level at a time, along the rules' paths alone: a value that no rule is about
is never looked into, and goes on byte for byte.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import msgspec
from msgspec import Raw

from elt_assets.protocol.airbyte.messages import NULL, RawRecord
from elt_assets.sync.selection.fields import FieldSelection, Node, Verdict

WITHHELD = Raw(b'"withheld: some fields of this stream must not be stored"')
"""Stands for the content of a record that is no JSON object, so that it can only be rejected."""

_OBJECT, _ARRAY, _QUOTE, _N = b'{["n'
_decode_object = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_array = msgspec.json.Decoder(list[Raw]).decode
_decode_string = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


class _Change(msgspec.Struct, omit_defaults=True):
    """spec: AirbyteRecordMessageMetaChange."""

    field: str | None = None
    change: str | None = None
    reason: str | None = None


class _Meta(msgspec.Struct):
    changes: list[_Change] | None = None


_decode_meta = msgspec.json.Decoder(_Meta).decode


class RecordFilter:
    """Applies a selection to the records of its stream.

    What cannot be looked into on the way to a field (text where an object was expected) is null
    afterwards, and recorded in the record's `meta.changes`. A record that is no JSON object, or
    cannot be read, has its content replaced by `WITHHELD`. Of a record's `meta` the changes are
    kept, those of dropped fields left out.

    Args:
        fields: the rules.
        salt: the key of the hashes; needed where the rules hash.
    """

    def __init__(self, fields: FieldSelection, salt: bytes | None = None):
        assert salt or not fields.hashed, "hashing without a salt would hide nothing"
        self._tree = fields.tree
        self._salt = salt or b""

    def __call__(self, record: RawRecord) -> RawRecord:
        """Filter a record in place."""
        withheld: list[str] = []
        try:
            known = memoryview(record.data)[0] == _OBJECT
            data = self._object(record.data, self._tree, withheld) if known else WITHHELD
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            data = WITHHELD
        record.data = data
        if withheld or record.meta is not NULL:
            record.meta = self._meta(record.meta, withheld)
        return record

    def _object(self, value: Raw, node: Node, withheld: list[str]) -> Raw:
        # As names and raw values: of equal names, however they are spelt, the last is all there is.
        fields = _decode_object(value)
        if not node.rest:
            fields = {name: inner for name, inner in fields.items() if name in node.children}
        for name, rule in node.children.items():
            if rule is Verdict.KEEP or name not in fields:
                continue
            if rule is Verdict.DROP:
                del fields[name]
            elif rule is Verdict.HASH:
                fields[name] = hashed(fields[name], self._salt)
            elif isinstance(rule, Node):
                fields[name] = self._within(fields[name], rule, withheld)
        return Raw(_encode(fields))

    def _within(self, value: Raw, node: Node, withheld: list[str]) -> Raw:
        first = memoryview(value)[0]
        if first == _OBJECT:
            return self._object(value, node, withheld)
        if first == _ARRAY:
            items = [self._within(item, node, withheld) for item in _decode_array(value)]
            return Raw(_encode(items))
        if first != _N:
            withheld.append(node.path)
        return NULL

    def _meta(self, meta: Raw, withheld: Sequence[str]) -> Raw:
        try:
            own = _decode_meta(meta).changes or []
        except (msgspec.MsgspecError, RecursionError):
            own = []
        changes = [one for one in own if one.field is None or _stores(self._tree, one.field)]
        nulled = dict.fromkeys(withheld)  # once, for however many elements of an array
        changes += [_Change(path, "NULLED", "DESTINATION_TYPECAST_ERROR") for path in nulled]
        return Raw(_encode(_Meta(changes))) if changes else NULL


def _stores(node: Node, path: str) -> bool:
    """Whether anything of a field is kept. Its dots may be steps, or part of its name."""
    first, _, rest = path.partition(".")
    rule = node.of(path if path in node.children else first)
    if isinstance(rule, Node) and rest and path not in node.children:
        return _stores(rule, rest)
    return rule is not Verdict.DROP


def hashed(value: Raw, salt: bytes) -> Raw:
    """A value as a JSON string: the hex HMAC-SHA-256, keyed with the salt, of a string's UTF-8 text,
    or of any other value's canonical JSON. Null stays null.

    Raises:
        msgspec.MsgspecError: the value is no JSON.
    """
    first = memoryview(value)[0]
    if first == _N:
        return value
    text = _decode_string(value) if first == _QUOTE else canonical(value)
    return Raw(b'"%b"' % hmac.digest(salt, text.encode(), "sha256").hex().encode())


def canonical(value: Raw) -> str:
    """The one spelling of a JSON value: names sorted, no spaces, no needless escapes, and numbers
    as their value says, whatever it is written like: `5`, `5.0` and `0.5e1` are `5`."""
    first = memoryview(value)[0]
    if first == _OBJECT:
        fields = sorted(_decode_object(value).items())
        pairs = ",".join(f"{_quoted(name)}:{canonical(inner)}" for name, inner in fields)
        return f"{{{pairs}}}"
    if first == _ARRAY:
        return f"[{','.join(map(canonical, _decode_array(value)))}]"
    if first == _QUOTE:
        return _quoted(_decode_string(value))
    text = bytes(value).decode()
    return text if text in ("null", "true", "false") else _number(text)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _number(text: str) -> str:
    """To the last digit, in the form that ECMAScript gives a number."""
    try:
        sign, digits, exponent = Decimal(text).as_tuple()
    except InvalidOperation:  # an exponent of twenty digits
        return text.lower()
    assert isinstance(exponent, int)
    significant = "".join(map(str, digits)).rstrip("0")
    if not significant:
        return "0"
    exponent += len(digits) - len(significant)
    value = Decimal(f"{'-' * sign}{significant}E{exponent}")
    return f"{value:f}" if -7 <= value.adjusted() < 21 else f"{value:e}"
