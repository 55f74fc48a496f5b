"""Private folders and files on this machine: creation, locks, removal, and files that appear whole.

Used by all packages that write files here, such as `runner`, `orchestration.resources` and the commands of
`elt`.

First the lock file that says whether its process lives (`hold`); then `remove_tree`, for folders in which a
program that is not trusted has worked; `make_private` and `check_writable`; `scratch`, for folders that end
with their process, and `sweep`, which removes those that killed processes left; and at the end `write_draft`
and `replace_text`, which give a file its name when its content is on the disk.

Other processes can tell whether the process of a scratch folder has ended, because the kernel releases a lock
when its process ends for any reason, also at a restart of the machine. They remove the folder only if it has
a lock file and the lock is free.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from elt_assets.errors import ConfigError
from elt_assets.storage.location import Location


@contextlib.contextmanager
def hold(path: Path) -> Iterator[None]:
    """Create a file and keep it locked while the context lasts.

    It gets its name after it is locked, so that no process sees it unlocked. Its text is the process id.
    """
    draft = path.with_name(f"{path.name}.new")
    with draft.open("w") as file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        file.write(str(os.getpid()))
        file.flush()
        draft.rename(path)
        yield


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Wait until no other process has a file locked, and keep it locked while the context lasts.

    The file is created, and stays. On a file system without locks, nothing is locked.
    """
    with path.open("a") as file:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def hold_if_abandoned(path: Path) -> Iterator[bool]:
    """Yield whether the process that held a file has ended; if so, hold the file while the context lasts.

    The answer is no if there is no such file, and on a file system without locks.
    """
    try:
        file = path.open("r+")
    except FileNotFoundError:
        yield False
        return
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # it is held, or the file system has no locks
            yield False
        else:
            yield path.exists()  # another process may have removed it in the meantime


def holder(path: Path) -> int | None:
    """Return the id of the process that holds a file; None if this machine shows no such process.

    The id in the file can be that of another machine or container, or belong to a later process. So it
    counts only if this process has the file open.
    """
    try:
        file, pid = path.stat(), int(path.read_text())
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except (OSError, ValueError):
        return None
    return pid if any(_is_same(descriptor, file) for descriptor in descriptors) else None


def _is_same(descriptor: Path, file: os.stat_result) -> bool:
    with contextlib.suppress(OSError):  # it was closed in the meantime
        return os.path.samestat(descriptor.stat(), file)
    return False


_log = logging.getLogger(__name__)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def remove_tree(folder: Path) -> None:
    """Remove a folder with everything in it. No link is followed; a link in its place is removed.

    The program that worked there may have made folders that are nested without limit, or that nobody may
    enter, and it may have put a link in the place of any of them. What stays would be met again by each later
    clean-up.

    What cannot be removed is a warning: an error would fail a sync that is complete.
    """
    with contextlib.suppress(RecursionError):  # nested deeper than Python's stack
        shutil.rmtree(folder, ignore_errors=True)
    if not os.path.lexists(folder):
        return
    try:
        if folder.is_symlink():
            folder.unlink()
            return
        folder.chmod(0o700)
        descriptor = os.open(folder, _FOLDER)
        try:
            _flatten(descriptor)
        finally:
            os.close(descriptor)
        folder.rmdir()
    except OSError as error:
        _log.warning(
            "%s cannot be removed: %s; it may contain private files of a connector, so remove it",
            folder,
            error.strerror,
        )


def _flatten(top: int) -> None:
    """Remove what is in a folder: each folder in it gives its own folders to the top, until none is left.

    So the depth needs neither memory, nor descriptors, nor names longer than the system allows.
    """
    while names := os.listdir(top):
        for name in names:
            if not _is_folder(name, top):
                os.unlink(name, dir_fd=top)
                continue
            os.chmod(name, 0o700, dir_fd=top)
            inner = os.open(name, _FOLDER, dir_fd=top)
            try:
                _raise_folders(inner, top)
            finally:
                os.close(inner)
            os.rmdir(name, dir_fd=top)


def _raise_folders(inner: int, top: int) -> None:
    """Remove the files of a folder, and move its folders to the top."""
    for name in os.listdir(inner):
        if _is_folder(name, inner):
            os.chmod(name, 0o700, dir_fd=inner)  # a folder that is moved must be writable
            os.rename(name, secrets.token_hex(16), src_dir_fd=inner, dst_dir_fd=top)
        else:
            os.unlink(name, dir_fd=inner)


def _is_folder(name: str, parent: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)


_CHECK_BYTES = 4096
"""Number of bytes written to check a directory: a full volume may still accept an empty file."""


def make_private(directory: Path) -> None:
    """Create a directory and its missing parents, each with mode 0700.

    A directory that exists already is not changed and keeps its mode. To share a directory with other users,
    create it before its first use, or change its mode afterwards; it is not set back.

    Raises:
        OSError: a directory cannot be created, or the path is not a directory.
    """
    missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    if not directory.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))


def make_private_lake(uri: str) -> None:
    """Create the root of a lake with `make_private`. An object store is left unchanged.

    Raises:
        ConfigError: the directory cannot be created, or no table in it could be read.
    """
    path = Location.parse(uri).path
    if path is None:
        return
    if "%" in str(path):
        raise ConfigError(
            f"the lake cannot be in the directory {path}: the Delta library decodes the % in its path",
            guidance="set ELT_LAKE to a directory without % in its path",
        )
    try:
        make_private(path)
    except OSError as error:
        raise ConfigError(
            f"cannot create the directory of the lake, {uri}: {error.strerror}",
            guidance="allow this user to write there, or set ELT_LAKE to a different location",
        ) from error


def check_writable(uri: str, what: str, setting: str) -> None:
    """Check that a local directory can be written to. A remote store is not checked.

    The directory is created if it is missing. The check writes a temporary file to it and removes the file.

    Args:
        uri: a path or a URI.
        what: the directory's purpose, for the message.
        setting: the setting that contains the directory, for the message.

    Raises:
        ConfigError: the directory cannot be created or written to. The error names the setting and the path.
    """
    path = Location.parse(uri).path
    if path is None:
        return
    try:
        make_private(path)
        with tempfile.TemporaryFile(dir=path, buffering=0) as file:
            file.write(bytes(_CHECK_BYTES))
    except OSError as error:
        raise ConfigError(
            f"{what} cannot be written to: {path}: {error.strerror}",
            guidance=f"correct the permissions or the volume of the directory, or change {setting}",
        ) from error


LOCK = ".elt-scratch"
_NAME = re.compile(r"[a-z]+-.+-[0-9a-f]{16}")


def _do_nothing(_name: str) -> None:
    return None


@contextlib.contextmanager
def scratch(
    parent: Path, kind: str, clean_up: Callable[[str], None] = _do_nothing
) -> Iterator[Path]:
    """Create a directory in `parent` that only this user can enter, and remove it when the context ends.

    Directories of the same `kind` that killed processes of this machine left are removed first.

    Args:
        clean_up: is called with the name of each such directory before it is removed. If it raises an error,
            the directory stays.
    """
    make_private(parent)
    prefix = f"{kind}-{socket.gethostname()}-"
    for folder in parent.glob(f"{prefix}*"):
        _remove_if_abandoned(folder, clean_up)
    folder = parent / f"{prefix}{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack:
        folder.mkdir(mode=0o700)
        stack.callback(remove_tree, folder)
        stack.enter_context(hold(folder / LOCK))
        yield folder


def sweep(parent: Path, seconds: float, clean_up: Callable[[str], None] = _do_nothing) -> int:
    """Remove directories that killed processes of any machine left and that are unchanged for `seconds`.

    On a file system without locks, only the age decides.

    Args:
        clean_up: as for `scratch`.

    Returns:
        The number of removed directories.
    """
    oldest = time.time() - seconds
    abandoned = [path for path in parent.glob("*-*-*") if _last_change(path) < oldest]
    return sum(_remove_if_abandoned(folder, clean_up, is_old=True) for folder in abandoned)


def _remove_if_abandoned(
    folder: Path, clean_up: Callable[[str], None] = _do_nothing, *, is_old: bool = False
) -> bool:
    """Remove a directory of `scratch` if its process has ended; return whether the directory is gone."""
    if not _NAME.fullmatch(folder.name) or not _has_lock(folder):
        return False
    with contextlib.suppress(FileNotFoundError), (folder / LOCK).open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            if not is_old:
                return False
        clean_up(folder.name)
        remove_tree(folder)
    return not folder.exists()


def _has_lock(folder: Path) -> bool:
    """Return whether this user can open the lock file of a directory; its program may have replaced it."""
    lock = folder / LOCK
    try:
        return stat.S_ISREG(lock.lstat().st_mode) and os.access(lock, os.R_OK | os.W_OK)
    except OSError:
        return False


def _last_change(folder: Path) -> float:
    """Return the time of the last change of a directory or its direct entries; now if it does not exist."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return time.time()


_NAMES = ("spark-*", "blockmgr-*", "elt-replay-*")


def sweep_temporary(folder: Path, seconds: float) -> int:
    """Remove the scratch directories that killed JVMs of this user left, unchanged for `seconds`.

    A JVM removes its scratch directories when it ends; a killed one leaves them, with the files of its jobs.

    Returns:
        The number of removed directories.
    """
    oldest, user = time.time() - seconds, os.getuid()
    removed = 0
    for directory in (path for name in _NAMES for path in folder.glob(name)):
        if not _is_own_directory(directory, user) or newest_change(directory) >= oldest:
            continue
        shutil.rmtree(directory, ignore_errors=True)
        removed += not directory.exists()
    return removed


def newest_change(directory: Path) -> float:
    """Return the time of the last change of anything in a directory, or of the directory itself.

    It is now if something in it cannot be read, or vanishes at the moment.
    """
    try:
        return max(path.lstat().st_mtime for path in (directory, *directory.rglob("*")))
    except OSError:
        return time.time()


def _is_own_directory(path: Path, user: int) -> bool:
    return path.is_dir() and not path.is_symlink() and path.lstat().st_uid == user


@contextlib.contextmanager
def write_draft(folder: Path, content: bytes) -> Iterator[Path]:
    """Write a file with a new name in a folder, and remove that name at the end.

    In between, the caller gives it its final name: `Path.replace` takes the place of a former file, `os.link`
    fails if there is one.

    Raises:
        OSError: it cannot be written.
    """
    draft = folder / f"draft-{secrets.token_hex(8)}"
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_text(path: Path, text: str) -> None:
    """Write a file atomically, in a folder that exists. A file that is replaced keeps its mode.

    Raises:
        ConfigError: it cannot be written.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        try:
            draft.write_text(text, encoding="utf-8", newline="")
            if path.exists():
                draft.chmod(path.stat().st_mode & 0o777)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}",
            guidance=f"make {path.parent} a folder that you can write, and make room on the disk",
        ) from error
