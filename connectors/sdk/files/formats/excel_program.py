"""The program that `excel` starts to read one sheet: a process of its own, whose memory is limited.

calamine reads a workbook as a whole, and makes a table of a sheet that reaches to its last cell: two cells in
opposite corners take 500 GiB. When it gets no memory, its process aborts; here that is a process of its own.

Its input is a line of JSON with `sheet`, `skip_rows` and `megabytes`, and the workbook. Its output are values
of MessagePack, each after its length: a problem as text, the names of the sheets if there is none of the
asked name, or pages of rows. A time in a row, or an error, is a list of its type and its text.

calamine's Python package returns the same for a cell with an error (`#DIV/0!`) as for an empty one. In a
workbook of the form .xlsx the errors are found in the XML of the sheet, which is parsed only if it has one.
"""

import io
import json
import posixpath
import re
import resource
import sys
import zipfile
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from itertools import chain, islice
from typing import IO, Any
from xml.parsers import expat

PAGE_CELLS = 100_000
LENGTH_BYTES = 4
_ERROR = re.compile(rb"""\st\s*=\s*["']e["']""")
"""The attribute of a cell with an error."""
_CHUNK, _OVERLAP = 1 << 20, 64
_WORKBOOK, _RELATIONS = "xl/workbook.xml", "xl/_rels/workbook.xml.rels"
Errors = dict[int, dict[int, str]]
"""Texts of errors by the numbers of their rows and columns, from 0 on."""


def main() -> None:
    # calamine is imported with the limit: it is the only code here that sees the file.
    options = json.loads(sys.stdin.buffer.readline())
    limit = options["megabytes"] << 20
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    for answer in _answers(options, io.BytesIO(sys.stdin.buffer.read())):
        _write(answer)


def _answers(options: dict[str, Any], content: io.BytesIO) -> Iterator[Any]:
    import python_calamine as calamine  # noqa: PLC0415

    try:
        book = calamine.CalamineWorkbook.from_filelike(content)
        names: list[str] = book.sheet_names
        sheet: Any = options["sheet"]
        if isinstance(sheet, int) and 0 <= sheet < len(names):
            sheet = names[sheet]
        if sheet not in names:
            yield {"sheets": names}
            return
        cells = book.get_sheet_by_name(sheet)
        rows = _add_errors(cells.iter_rows(), _find_errors(content, sheet), cells.start)
        yield from _pages(islice(rows, options["skip_rows"], None))
    except (calamine.CalamineError, calamine.PasswordError) as error:
        yield {"problem": f"it is no workbook, or is protected: {error}"}
    except (expat.ExpatError, zipfile.BadZipFile, ValueError) as error:
        yield {"problem": f"the errors in its cells cannot be read: {error}"}


def _pages(rows: Iterator[list[Any]]) -> Iterator[Any]:
    first = next(rows, None)
    if first is None:
        return
    size = max(1, PAGE_CELLS // max(1, len(first)))
    rows = chain([first], rows)
    while page := [[*map(_portable, row)] for row in islice(rows, size)]:
        yield {"rows": page}


def _add_errors(
    rows: Iterator[list[Any]], errors: Errors, start: tuple[int, int] | None
) -> Iterator[list[Any]]:
    """Yield the rows of a sheet with its errors.

    Args:
        start: the row and column of the first cell that is not empty; columns before it are left out.
    """
    for number, row in enumerate(rows):
        for column, text in errors.get(number, {}).items():
            row[column - (start or (0, 0))[1]] = ["error", text]
        yield row


def _find_errors(content: IO[bytes], sheet: str) -> Errors:
    """Return the errors in the cells of a sheet; none if the workbook has another form than .xlsx."""
    content.seek(0)
    if not zipfile.is_zipfile(content):
        return {}
    with zipfile.ZipFile(content) as archive:
        path = _find_path(archive, sheet)
        if path is None or not _has_errors(archive, path):
            return {}
        cells = _ErrorCells()
        _parse_xml(archive, path, cells.start, cells.end, cells.text)
        return cells.errors


def _find_path(archive: zipfile.ZipFile, sheet: str) -> str | None:
    """Return the path of the part of a sheet."""
    parts = set(archive.namelist())
    targets: dict[str, str] = {}
    sheets: dict[str, str] = {}

    def add_target(name: str, attributes: dict[str, str]) -> None:
        if name == "Relationship":
            targets[attributes.get("Id", "")] = attributes.get("Target", "")

    def add_sheet(name: str, attributes: dict[str, str]) -> None:
        if name == "sheet":
            key = next((key for key in attributes if key.endswith(":id")), "")
            sheets.setdefault(attributes.get("name", ""), attributes.get(key, ""))

    for path, start in ((_RELATIONS, add_target), (_WORKBOOK, add_sheet)):
        if path in parts:
            _parse_xml(archive, path, start)
    path = posixpath.normpath(posixpath.join("/xl", targets.get(sheets.get(sheet, ""), "")))
    return path.lstrip("/") if path.lstrip("/") in parts else None


def _parse_xml(
    archive: zipfile.ZipFile,
    path: str,
    start: Callable[[str, dict[str, str]], None],
    end: Callable[[str], None] = lambda _: None,
    text: Callable[[str], None] = lambda _: None,
) -> None:
    """Parse a part of a workbook. Names of elements come without their prefixes.

    Raises:
        ExpatError: it is no XML, or declares entities, which can make a small document a large one.
    """
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: start(name.rpartition(":")[2], attributes)
    parser.EndElementHandler = lambda name: end(name.rpartition(":")[2])
    parser.CharacterDataHandler = text
    parser.EntityDeclHandler = _refuse_entity
    with archive.open(path) as source:
        parser.ParseFile(source)


def _refuse_entity(*_: object) -> None:
    raise expat.ExpatError("it declares entities")


def _has_errors(archive: zipfile.ZipFile, path: str) -> bool:
    with archive.open(path) as source:
        before = b""
        while chunk := source.read(_CHUNK):
            if _ERROR.search(before + chunk):
                return True
            before = chunk[-_OVERLAP:]
    return False


class _ErrorCells:
    """Collects the errors of a sheet from the events of the parser. `r` of a row or a cell is optional."""

    def __init__(self) -> None:
        self.errors: Errors = {}
        self._row = self._column = -1
        self._is_error = self._is_value = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "row":
            self._row = int(attributes.get("r", self._row + 2)) - 1
            self._column = -1
        elif name == "c":
            reference = attributes.get("r")
            self._column = _column_number(reference) if reference else self._column + 1
            self._is_error = attributes.get("t") == "e"
        self._is_value = name == "v"

    def text(self, text: str) -> None:
        if self._is_error and self._is_value:
            cells = self.errors.setdefault(self._row, {})
            cells[self._column] = cells.get(self._column, "") + text

    def end(self, name: str) -> None:
        del name
        self._is_value = False


def _column_number(reference: str) -> int:
    """Return the number of the column of a cell such as `AB12`, from 0 on."""
    number = 0
    for letter in re.sub(r"[^A-Z]", "", reference.upper()):
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1


def _portable(value: Any) -> Any:
    if isinstance(value, datetime):
        return ["datetime", value.isoformat()]
    if isinstance(value, date):
        return ["date", value.isoformat()]
    if isinstance(value, time):
        return ["time", value.isoformat()]
    return ["timedelta", str(value)] if isinstance(value, timedelta) else value


def _write(answer: Any) -> None:
    import msgspec  # noqa: PLC0415 - after the limit, as calamine

    data = msgspec.msgpack.encode(answer)
    sys.stdout.buffer.write(len(data).to_bytes(LENGTH_BYTES, "big") + data)


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file, whose modules are no modules of Python
    main()
    sys.stdout.buffer.write(bytes(LENGTH_BYTES))  # the end: nothing is missing
