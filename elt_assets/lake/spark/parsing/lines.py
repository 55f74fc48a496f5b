"""The parse of single lines: undeclared fields, values as they stand in the line, and lines that do not fit.

It takes about a microsecond for each line, and is done only where pyarrow's parse of a block does not do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Raw

from elt_assets.lake.spark.parsing.job import (
    AIRBYTE,
    ARRAY,
    RAW,
    ROWS,
    STRUCT,
    UNREAD,
    Field,
    Job,
    Part,
)
from elt_assets.lake.spark.parsing.undeclared import (
    DECODING_ERRORS,
    Declared,
    Extra,
    renamed,
    undeclared,
)

_UNSUPPORTED = frozenset('\\"')
"""Characters that the decoder does not support in a declared name. It does not support control characters
either."""
_CHUNK = 16
"""Lines that are tested together. If one of them does not fit, they are tested one by one."""
_MAX_BRACKETS = 400
_MAX_NAME = 10_000
_MAX_EXTRA = 8 << 20
_LEAVES = {"BOOLEAN": bool, "NUMBER": float, "INTEGER_IN_DOUBLE": float}

TypeOf = Callable[[Field], Any]


def _is_known(each: Field) -> bool:
    return each.kind != UNREAD and is_supported(each.source)


def is_supported(name: str) -> bool:
    """Return whether the decoder supports a declared name."""
    return name.isprintable() and _UNSUPPORTED.isdisjoint(name)


def attribute(number: int) -> str:
    """Return the attribute of a decoded object for its field of this number."""
    return f"f{number}"


@dataclass
class Found:
    """The values that lines of a block have besides those that pyarrow parses.

    `objects`: one for each line, None for a line that does not fit. `extras`: undeclared fields, by the
    position of the line.
    """

    objects: list[Any] = field(default_factory=list)
    extras: dict[int, Extra] = field(default_factory=dict)
    bad: list[int] = field(default_factory=list)


class LineReader:
    """Reads the lines of one part, one at a time."""

    def __init__(self, job: Job, part: Part):
        self._job, self._is_rows = job, part.form == ROWS
        exact = _object(job.fields, _shape, closed=True, more=self._more)
        loose = _object(job.fields, _shape, closed=False, more=self._more)
        self._strict = msgspec.json.Decoder(_envelope(part, exact, closed=True))
        self._data = msgspec.json.Decoder(_whole(part)).decode
        self._loose = msgspec.json.Decoder(loose).decode
        fitting = _object(job.fields, _fitting, closed=False, more=())
        self._fits = msgspec.json.Decoder(_envelope(part, fitting, closed=False))
        self._inner = _data_of(part)
        names = job.declared.names.union(self._more)
        self._declared = Declared(names, job.declared.objects)

    @property
    def _more(self) -> Sequence[str]:
        return self._job.names.all if self._is_rows else ()

    def fits(self, lines: Sequence[bytes]) -> Iterator[bool]:
        """Yield, for each line without its newline, whether it is one object whose values have the declared
        types.

        It is a quick test: a line that fits may still be refused by pyarrow.
        """
        for start in range(0, len(lines), _CHUNK):
            chunk = lines[start : start + _CHUNK]
            if self._all_fit(chunk):
                yield from repeat(True, len(chunk))
            else:
                yield from (self._all_fit([line]) for line in chunk)

    def _all_fit(self, lines: Sequence[bytes]) -> bool:
        text = b"\n".join(lines)
        try:
            decoded = self._fits.decode_lines(text)
        except DECODING_ERRORS:
            return False
        is_whole = text.startswith(b"{") and text.endswith(b"}")
        return len(decoded) == len(lines) and is_whole and _is_utf8(text)

    def read(self, block: bytes, count: int) -> Found:
        """Read the lines of a block, so many. Every line is one JSON object.

        If all names in it are declared, the block is decoded at once.
        """
        if self._job.names_are_read:
            try:
                decoded = self._strict.decode_lines(block)
            except DECODING_ERRORS:
                decoded = []
            if len(decoded) == count:
                return Found(list(map(self._inner, decoded)))
        found = Found()
        for number, line in enumerate(block.split(b"\n")[:-1]):
            found.objects.append(self._read(line, number, found))
        return found

    def _read(self, line: bytes, number: int, found: Found) -> Any:
        try:
            if self._job.names_are_read:
                try:
                    return self._inner(self._strict.decode(line))
                except msgspec.ValidationError:
                    pass
            data = Raw(line) if self._is_rows else self._inner(self._data(line))
            extra = undeclared(data, self._declared)
            if extra is not None:
                found.extras[number] = extra
                is_renamed = renamed(data, extra, self._declared) is not data
                if self._job.keeps_undeclared or is_renamed or not self._is_harmless(line, extra):
                    found.bad.append(number)
            return self._loose(data)
        except DECODING_ERRORS:
            found.bad.append(number)
            return None

    def _is_harmless(self, line: bytes, extra: Extra) -> bool:
        """Return whether other readers certainly ignore the undeclared fields of a line."""
        if len(line) < _MAX_BRACKETS and self._is_rows:
            return True
        ours = not isinstance(extra, dict) or self._job.names.all_names.isdisjoint(extra)
        depth = line.count(b"[") + line.count(b"{")
        return ours and depth < _MAX_BRACKETS and len(line) < _MAX_EXTRA and _has_short_names(extra)


def _has_short_names(extra: Extra) -> bool:
    if isinstance(extra, dict):
        return all(
            len(name) < _MAX_NAME and _has_short_names(value) for name, value in extra.items()
        )
    if isinstance(extra, list):
        return all(_has_short_names(item) for item in extra if item is not None)
    return len(memoryview(extra)) < _MAX_NAME


def _is_utf8(line: bytes) -> bool:
    if not line.isascii():
        try:
            line.decode()
        except UnicodeDecodeError:
            return False
    return True


def _object(fields: Sequence[Field], type_of: TypeOf, *, closed: bool, more: Sequence[str]) -> Any:
    """Return a type that decodes an object: `f0` is its first field, and so on.

    Args:
        closed: an object with another name is refused.
        more: further names that it may have.
    """
    known = [(n, each) for n, each in enumerate(fields) if _is_known(each)]
    types = [(attribute(n), _typed(each, type_of, closed=closed), None) for n, each in known]
    rename = {attribute(n): each.source for n, each in known}
    rename |= {f"own{n}": name for n, name in enumerate(more)}
    types += [(f"own{n}", Any, None) for n in range(len(more))]
    return msgspec.defstruct("Record", types, rename=rename, forbid_unknown_fields=closed, gc=False)


def is_text(each: Field) -> bool:
    """Return whether a decoded object has the value of a field as its text: a scalar, or an array
    of scalars that pyarrow parses."""
    if each.kind == ARRAY:
        return is_text(each.inner[0]) and not each.has_raw
    return each.kind != STRUCT


def _typed(each: Field, type_of: TypeOf, *, closed: bool) -> Any:
    if each.kind == ARRAY:
        inner: Any = _typed(each.inner[0], type_of, closed=closed)
        return Raw if inner is Raw and not each.has_raw else list[inner] | None
    if each.kind == STRUCT:
        return _object(each.inner, type_of, closed=closed, more=()) | None
    return type_of(each)


def _shape(_: Field) -> Any:
    """Return the type of a scalar where only its place matters; its text is decoded later."""
    return Raw


def _fitting(each: Field) -> Any:
    """Return the type of a scalar that pyarrow parses; a value in another form is not decoded."""
    if each.kind == "INTEGER":  # made here: the bounds cannot be sent to a worker
        return Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None
    return Raw if each.kind in RAW else _LEAVES.get(each.kind, str) | None


def _envelope(part: Part, data: Any, *, closed: bool) -> Any:
    """Return a type that decodes a line of a part with this type of data."""
    if part.form == ROWS:
        return data
    make: Any = lambda name, fields: msgspec.defstruct(  # noqa: E731
        name, fields, forbid_unknown_fields=closed, gc=False
    )
    kind = ("type", Literal["RECORD"])
    if part.form == AIRBYTE:
        others = [("emitted_at", Raw, None), ("namespace", Raw, None), ("meta", Raw, None)]
        record = make("Body", [("stream", Literal[part.stream]), ("data", data), *others])
        return make("Line", [kind, ("record", record)])
    times = [("time_extracted", Raw, None), ("version", Raw, None)]
    return make("Line", [kind, ("stream", Literal[part.stream]), ("record", data), *times])


def _whole(part: Part) -> Any:
    """Return a type that decodes a line whose data is left as it is; only a file is refused."""
    if part.form == AIRBYTE:
        record = msgspec.defstruct("Body", [("data", Raw), ("file_reference", None, None)])
        return msgspec.defstruct("Line", [("record", record)])
    return msgspec.defstruct("Line", [("record", Raw)])


def _data_of(part: Part) -> Callable[[Any], Any]:
    if part.form == ROWS:
        return lambda line: line
    if part.form == AIRBYTE:
        return lambda line: line.record.data
    return lambda line: line.record
