"""A program of its own that reads a sheet of a workbook, so that the memory that this takes is limited.

calamine reads a workbook as a whole, and makes a table of a sheet that reaches to its last cell: two cells in
opposite corners take 500 GiB. When it gets no memory, its process aborts; here that is a process of its own.

Its input is a line of JSON with `sheet`, `skip_rows` and `megabytes`, and the workbook. Its output are values
of MessagePack, each after its length: a problem as text, the names of the sheets if there is none of the
asked name, or pages of rows. A time in a row is a list of its type and its text.
"""

import io
import json
import resource
import sys
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from itertools import chain, islice
from typing import Any

PAGE_CELLS = 100_000
LENGTH_BYTES = 4


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
        names, sheet = book.sheet_names, options["sheet"]
        if sheet in names:
            rows = book.get_sheet_by_name(sheet).iter_rows()
        elif isinstance(sheet, int) and 0 <= sheet < len(names):
            rows = book.get_sheet_by_index(sheet).iter_rows()
        else:
            yield {"sheets": names}
            return
        yield from _pages(islice(rows, options["skip_rows"], None))
    except (calamine.CalamineError, calamine.PasswordError) as error:
        yield {"problem": f"it is no workbook, or is protected: {error}"}


def _pages(rows: Iterator[list[Any]]) -> Iterator[Any]:
    first = next(rows, None)
    if first is None:
        return
    size = max(1, PAGE_CELLS // max(1, len(first)))
    rows = chain([first], rows)
    while page := [[*map(_portable, row)] for row in islice(rows, size)]:
        yield {"rows": page}


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
