"""What a config of a source of files says of its streams."""

from __future__ import annotations

import codecs
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

ColumnType = Literal[
    "string",
    "integer",
    "big_integer",
    "number",
    "decimal",
    "boolean",
    "date",
    "timestamp",
    "timestamp_without_timezone",
    "time",
    "json",
    "binary",
]
Text = Annotated[str, Field(min_length=1)]


def _check_encoding(name: str) -> str:
    try:
        codecs.lookup(name)
    except LookupError:
        raise ValueError("Python has no encoding of this name") from None
    return name


Encoding = Annotated[Text, AfterValidator(_check_encoding)]
Character = Annotated[str, Field(min_length=1, max_length=1)]


class Options(BaseModel):
    """The base class of a config's parts: a name that it does not know is an error."""

    model_config = ConfigDict(extra="forbid")


class CsvOptions(Options):
    """How the files of a stream are to be read as CSV."""

    section: ClassVar[str] = "csv"
    delimiter: Character = Field(",", description="The character between two values.")
    quote: Character | None = Field('"', description="The character around a value; null: none.")
    escape: Character | None = Field(None, description="The character before a special one.")
    encoding: Encoding = Field("utf-8", description="The encoding, by its name in Python.")
    header: bool = Field(True, description="Whether the first row has the names of the columns.")
    columns: list[Text] | None = Field(
        None, min_length=1, description="The names of the columns, in place of those of a header."
    )
    skip_rows: int = Field(0, ge=0, description="Number of lines before the header, or first row.")
    null_values: list[str] = Field([""], description="The texts that mean null, without quotes.")
    max_row_bytes: int = Field(
        4 << 20, ge=1 << 10, le=1 << 30, description="Largest size of a row, in bytes."
    )


class JsonLinesOptions(Options):
    """How the files of a stream are to be read as JSON lines."""

    encoding: Encoding = Field("utf-8", description="The encoding, by its name in Python.")


class ExcelOptions(Options):
    """How the files of a stream are to be read as workbooks."""

    section: ClassVar[str] = "excel"
    sheet: str | int = Field(0, description="The name of the sheet, or its number from 0 on.")
    header: bool = Field(True, description="Whether the first row has the names of the columns.")
    columns: list[Text] | None = Field(
        None, min_length=1, description="The names of the columns, in place of those of a header."
    )
    skip_rows: int = Field(0, ge=0, description="Number of rows before the header, or first row.")


class DocumentOptions(Options):
    """How the files of a stream are to be transferred as they are."""

    max_bytes: int = Field(
        1_500_000_000, ge=1, description="Largest size of a file that is transferred, in bytes."
    )
    too_large: Literal["reject", "error"] = Field(
        "reject",
        description="What becomes of a larger file: a rejected record, or an error. Other destinations than "
        "the lake need `error`.",
    )


class FileStreamConfig(Options):
    """One stream: some files of the location."""

    name: Text = Field(description="The name of the stream.")
    glob: Text | list[Text] = Field(
        description="Paths below the location: `*` and `?` in a name, `**` for folders, `[a-z]`, `{a,b}`."
    )
    format: Literal["csv", "jsonl", "parquet", "excel", "documents"] = Field(
        description="What the files are; documents: files that are transferred as they are."
    )
    csv: CsvOptions | None = None
    jsonl: JsonLinesOptions | None = None
    excel: ExcelOptions | None = None
    documents: DocumentOptions | None = None
    compression: Literal["auto", "none", "gzip", "zstd", "bz2", "lz4"] = Field(
        "auto", description="Of CSV and JSON lines; auto: by the ending of the name."
    )
    primary_key: list[Text] = Field([], description="The names of the key's fields.")
    columns: dict[str, ColumnType] = Field(
        {}, description="The types of columns, in place of those that a sample of the files has."
    )
    sample_files: int = Field(5, ge=1, description="Number of files, the newest, that are sampled.")
    bad_lines: Literal["reject", "error"] = Field(
        "reject",
        description="What becomes of lines of CSV and JSON lines that cannot be read: a rejected record "
        "each, or an error. Other destinations than the lake need `error`.",
    )

    @model_validator(mode="after")
    def _check_options(self) -> FileStreamConfig:
        options = {
            "csv": self.csv,
            "jsonl": self.jsonl,
            "excel": self.excel,
            "documents": self.documents,
        }
        for name, value in options.items():
            if value is not None and name != self.format:
                raise ValueError(f"`{name}` has no effect with `format: {self.format}`")
        if self.compression != "auto" and self.format not in ("csv", "jsonl"):
            raise ValueError(f"`compression` has no effect with `format: {self.format}`")
        if self.columns and self.format == "documents":
            raise ValueError("`columns` has no effect with `format: documents`")
        return self

    @property
    def globs(self) -> list[str]:
        return [self.glob] if isinstance(self.glob, str) else self.glob


class FilesSourceConfig(Options):
    """The config of a source of files, to which a source adds where its files are."""

    streams: list[FileStreamConfig] = Field(min_length=1)
    look_back_seconds: int = Field(
        3600,
        ge=0,
        description="A file may become visible up to this time after its time of modification.",
    )
    max_memory_megabytes: int = Field(
        400, ge=64, description="Largest memory that decoding a file may take, in MiB."
    )
    follow_links: bool = Field(
        False, description="Whether files of this machine may be links that leave the location."
    )
    file_columns: bool = Field(
        True, description="Whether rows have `_file_path` and `_file_modified_at`."
    )

    @model_validator(mode="after")
    def _check_names(self) -> FilesSourceConfig:
        names = [stream.name for stream in self.streams]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two streams have the name {name!r}")
        return self
