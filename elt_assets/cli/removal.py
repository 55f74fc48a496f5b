"""The parts of what a connection or a stream has, each with its removal, for `elt remove`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from elt_assets import paths
from elt_assets.cli.environments import list_installations, list_other_users
from elt_assets.cli.output import Output
from elt_assets.connection import ConnectionPlace
from elt_assets.connection.cutting import FileChange, list_overlays
from elt_assets.errors import ConfigError, EltError, SystemFailure
from elt_assets.failpoints import Failpoint, reach
from elt_assets.orchestration.component import ConnectionComponent
from elt_assets.orchestration.io_manager import project_lake
from elt_assets.orchestration.project import load_folder
from elt_assets.orchestration.removal import (
    find_readers,
    forget_partitions,
    forget_ticking,
    list_partition_keys,
    list_stored,
    list_ticking,
    remove_empty,
    remove_stored,
)
from elt_assets.orchestration.streams import StreamAsset, connection_name
from elt_assets.pipeline.connectors import list_update_files, make_source
from elt_assets.runner.kinds import KINDS
from elt_assets.runner.packages import environment_folder, is_installed, remove_environment

_RELEASE_SECONDS = 60
_KINDS = ("table", "history", "dead_letter", "documents", "erasures")


@dataclass
class Part:
    """A part of what there is, and whether it goes."""

    name: str
    """`schedules`, `slot`, `data`, `credentials`, `environment` or `definition`."""
    text: str
    """What it is, for people."""
    remove: Callable[[], object]
    goes: bool
    """Whether it goes if nobody is asked."""
    is_asked: bool = True
    """Whether the user can keep it."""
    size: int | None = None
    """In bytes."""


def describe_files(changes: Sequence[FileChange]) -> Part:
    names = ", ".join(
        f"{change.path}{'' if change.text is None else ' (a part of it)'}"
        for change in changes
        if change.path.exists()
    )

    def change_all() -> None:
        for change in changes:
            change.make()
            reach(Failpoint.PART_REMOVED)

    return Part("definition", names, change_all, goes=True, is_asked=False)


@dataclass
class Removal:
    """Finds what a connection or a stream has, and removes it."""

    place: ConnectionPlace
    component: ConnectionComponent
    assets: Sequence[StreamAsset]
    is_whole: bool
    out: Output

    def refuse_readers(self, parts: Sequence[Part], *, force: bool) -> None:
        """Warn of assets that read the streams; refuse to remove the tables that they read.

        Raises:
            ConfigError: other assets read tables that are to go, and it is not forced.
        """
        if isinstance(self._loaded, EltError):
            self.out.warn(f"it is not known which assets read these streams: {self._loaded}")
            return
        readers = find_readers(self._loaded, self.assets)
        texts = [f"{reader} reads {key}" for reader, key in readers]
        if texts and not force and any(part.name == "data" and part.goes for part in parts):
            raise ConfigError(
                f"other assets read the tables: {'; '.join(texts)}",
                guidance="change these assets first; or add --force, or keep the tables with --keep-data; "
                "nothing was changed",
            )
        for text in texts:
            self.out.warn(text)

    @cached_property
    def _loaded(self) -> Any:
        """The definitions of the project, or the EltError for which they cannot be loaded."""
        try:
            return load_folder(paths.connections())[0]
        except EltError as error:
            return error

    def schedules(self, instance: Any) -> Part | None:
        """Return what Dagster keeps of the schedules and sensors; None if there is nothing."""
        definitions = self.component.definitions()
        ticking = [*(definitions.schedules or ()), *(definitions.sensors or ())]
        bases = tuple(f"{asset.op_name}_" for asset in self.assets)
        own = connection_name(self.component)
        names = {tick.name for tick in ticking if self.is_whole or tick.name.startswith(bases)}
        names -= set() if self.is_whole else {f"{own}_schedule"}
        states, several = list_ticking(instance, names)
        if several:
            self.out.warn(
                f"several code locations have {', '.join(several)}: turn them off in Dagster yourself"
            )
        if not states:
            return None
        text = ", ".join(sorted(state.name for state in states))
        return Part(
            "schedules",
            text,
            lambda: forget_ticking(instance, states),
            goes=True,
            is_asked=False,
        )

    def source_parts(self) -> Iterator[Part]:
        """Yield what the connectors of the connection have outside of the lake."""
        source = self.component.source
        if KINDS[source.kind].releases:
            text = (
                "what the source keeps on its server for the next read, such as a replication slot"
            )
            yield Part("slot", text, self._release, goes=True)
        updates = [file for file in list_update_files(self.component) if file.read() is not None]
        if updates:
            text = ", ".join(map(str, updates))

            def forget() -> None:
                for file in updates:
                    file.remove()

            yield Part("credentials", text, forget, goes=False)
        for package, options in list_installations(self.component):
            folder = environment_folder(package, paths.packages(), options)
            if not is_installed(package, paths.packages(), options):
                continue
            if users := list_other_users(self.place, folder):
                self.out.note(f"the environment of {package} stays: {', '.join(users)} may use it")
                continue
            yield Part(
                "environment",
                str(folder),
                partial(remove_environment, package, paths.packages(), options),
                goes=True,
            )

    def _release(self) -> None:
        try:
            connector = make_source(self.component, paths.staging(), on_log=self.out.log)
            connector.release(seconds=_RELEASE_SECONDS)
        except EltError as error:
            raise SystemFailure(
                f"the source cannot give up what it keeps on its server: {error.message}",
                guidance=f"{error.guidance or 'correct that'}; or add --keep-slot, and remove the slot "
                "there yourself: for it, the server keeps its log until its disk is full",
            ) from error

    def finish_data(self) -> None:
        """Remove what is left of the folders of removed tables, also those that a killed removal has left."""
        for asset in self.assets:
            remove_empty(asset, project_lake())

    def data(self, instance: Any) -> Part | None:
        """Return what the streams have in the lake, and the keys of partitions; None if there is nothing."""
        lake = project_lake()
        stored = [part for asset in self.assets for part in list_stored(asset, lake)]
        definitions = None if isinstance(self._loaded, EltError) else self._loaded
        keys = list_partition_keys(instance, self.assets, definitions)
        if not (stored or keys):
            return None
        if others := [path.name for path in list_overlays(self.place)]:
            self.out.warn(
                f"only the lake {lake} of this environment is looked at; tables of the other environments "
                f"({', '.join(others)}) stay, unless you first run this with ELT_ENV and --data for each"
            )
        if any(part.kind == "erasures" for part in stored):
            self.out.warn(
                "with the tables goes what `elt erase` has noted: if the connection is made again, a source "
                "that still has the erased rows sends them again"
            )
        elsewhere = [asset.name for asset in self.assets if asset.connection.destination]
        if elsewhere:
            self.out.warn("only states are in the lake; the rows in the destination stay")
        words = [self.place.name, *(() if self.is_whole else [str(self.assets[0].stream.id)])]
        finish = f"elt remove {' '.join(words)} --data --yes"

        def remove() -> None:
            for asset in self.assets:
                for other in remove_stored(asset, lake, finish):
                    self.out.warn(f"{other} is no file of a table, and stays")
            forget_partitions(instance, keys)

        counts = {kind: sum(part.kind == kind for part in stored) for kind in _KINDS}
        counts["partition key"] = len(keys)
        text = ", ".join(f"{count} × {kind}" for kind, count in counts.items() if count)
        size = sum(part.size for part in stored)
        return Part("data", f"{lake}: {text}", remove, goes=False, size=size)
