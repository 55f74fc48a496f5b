"""The base class of streams."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from connectors.sdk.comparison import Answer, ComparisonRequest
from connectors.sdk.declared_stream import DeclaredStream, key_paths, make_schema
from connectors.sdk.groups import StreamGroup
from connectors.sdk.items import Context, Item
from connectors.sdk.stream_read import read_partitions, read_stream
from elt_assets.errors import ConfigError
from elt_assets.protocol.catalog import FULL_REFRESH, INCREMENTAL, AirbyteStream, ConfiguredStream


class Stream(DeclaredStream):
    """The base class of streams. Subclasses set the attributes of `DeclaredStream`, on the class or on the
    instance, and write `records`; the rest of a read (states, partitions, resuming) is done here. A stream
    with states of its own form writes `read` in its place, and sets the attributes below.

    Spec: AirbyteStream; SDK Implementation Details - Stream State.
    """

    cursor_field: Sequence[str] = ()
    source_defined_cursor: bool = False
    supported_sync_modes: Sequence[str] = (FULL_REFRESH,)
    """These are in the catalog. They follow from the replication key, if there is one."""
    group: StreamGroup | None = None
    """The streams with which this one shares a state, if it is read incrementally."""
    why_full_refresh: str = ""
    """The end of the error of a stream that is only read in full, though others of its source are read
    incrementally, such as ": it is a view"."""
    selects_rows: bool = False
    """Whether a read can be narrowed to keys (`find_keys`) and to columns (`find_columns`)."""

    def partitions(self) -> Iterable[Context] | None:
        """Return the contexts of the stream's partitions; None if it has no partitions.

        Each partition is read separately, with a bookmark of its own. By default a child stream has a
        partition for each record of its parent, whatever its age, since the records of a child may be new
        also if their parent has not changed; and any other stream has none.

        Spec: "Partitioned State": the parent's context is the default partition.
        """
        return None if self.parent is None else read_partitions(self)

    def read(self, configured: ConfiguredStream, state: dict[str, Any] | None) -> Iterator[Item]:
        """Yield records, a `Checkpoint` wherever a later read can resume, and optionally an `Estimate`.

        Only a stream with states of its own form overrides this. `state` is the state of the last
        acknowledged checkpoint; None to read from the beginning. A full refresh is read from the beginning
        unless it resumes an interrupted one (`is_resumable`).

        Raises:
            EltError: the read fails; its class names who must act. The other streams are still read.
        """
        return read_stream(self, configured, state)

    def schema_to_check(self, configured: ConfiguredStream) -> Mapping[str, Any]:
        """Return the schema against which the first records of a read are checked."""
        del configured
        return make_schema(self)

    def has_new_data(
        self, configured: ConfiguredStream, state: dict[str, Any] | None
    ) -> bool | None:
        """Return whether a read from this state would yield anything, without a read; None if unknown.

        It is called often (`probe`), so it must be cheap: a maximum, a count, an ETag.

        Raises:
            EltError: the source does not answer.
        """
        del configured, state
        return None

    def compare(
        self, configured: ConfiguredStream, state: dict[str, Any] | None, request: ComparisonRequest
    ) -> Answer:
        """Yield what the stream has, by ranges of its key: first a `ComparedTable`, then each range.

        Args:
            state: that of the last acknowledged checkpoint. Rows that it does not cover are left out, if the
                stream is read incrementally by a cursor.

        Raises:
            ConfigError: the source cannot be compared.
            EltError: it cannot be read.
        """
        del state, request
        raise ConfigError(
            f"stream {str(configured.id)!r} cannot be compared with its source: the source has no ranges of "
            "keys",
            guidance="remove `source` from its `checks`; tables of SQL databases can be compared",
        )

    @property
    def sync_modes(self) -> Sequence[str]:
        """The modes in which the stream can be read."""
        return (FULL_REFRESH, INCREMENTAL) if self._has_states() else self.supported_sync_modes

    def describe(self) -> AirbyteStream:
        """Return the stream as it is in the catalog of `discover`."""
        cursor = [self.replication_key] if self.replication_key else list(self.cursor_field)
        return AirbyteStream(
            name=self.name,
            namespace=self.namespace,
            json_schema=dict(make_schema(self)),
            supported_sync_modes=list(self.sync_modes),
            source_defined_cursor=self._has_states() or self.source_defined_cursor,
            default_cursor_field=cursor or None,
            source_defined_primary_key=key_paths(self) or None,
            is_resumable=self.is_resumable,
            is_file_based=True if self.is_file_based else None,
        )

    def _has_states(self) -> bool:
        has_changed_parents = self.parent is not None and self.parent.only_changed
        return self.replication_key is not None or has_changed_parents
