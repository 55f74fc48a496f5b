"""The log of a table's erasures, the keys that are not stored again, and those of an unfinished erasure.

`admin.erasure` writes them, for `orchestration.erasing`; `suppression` reads the keys that are not stored
again when a sync opens its tables. `admin.removal` and `orchestration.unerased` take the name of the folder.

In the log and among the keys that are not stored again, a key is a hash with a salt that is not in the lake
(`worker.suppression`), so nobody learns it from the table's folder. Only in `UNFINISHED` are keys values,
until all commits of the erasure are made. The files are in a folder that begins with an underscore, which
readers of Delta, their vacuum and ours leave alone, and which moves with the table.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elt_assets.errors import ConfigError
from elt_assets.lake.delta.storage import DataFile, TableStorage

FOLDER = "_erasures"
SUPPRESSED = f"{FOLDER}/suppressed"
UNFINISHED = f"{FOLDER}/unfinished"
"""The keys, as values, of an erasure whose commits have begun and are not all made: a condition does not find
them where their rows are gone. The next erasure of the table takes their other rows too."""


def write_record(storage: TableStorage, name: str, record: Mapping[str, Any]) -> None:
    """Write, or write again, what an erasure did."""
    storage.write_text(f"{FOLDER}/{name}.json", json.dumps(record, indent=1))


def keep_unfinished(storage: TableStorage, files: Sequence[DataFile]) -> list[DataFile]:
    """Copy files of keys to where the next erasure finds them; return the copies."""
    paths = [f"{UNFINISHED}/{uuid.uuid4().hex}.parquet" for _ in files]
    for path, file in zip(paths, files, strict=True):
        with storage.open_path(file.path) as source:
            storage.replace_file(path, source.read())
    return storage.describe(paths)


def list_unfinished(storage: TableStorage) -> list[DataFile]:
    """Return the files of keys that an erasure has left to the next one."""
    names = sorted(info.base_name for info in storage.list_folder(UNFINISHED))
    return storage.describe(f"{UNFINISHED}/{n}" for n in names if n.endswith(".parquet"))


def remove_unfinished(storage: TableStorage) -> None:
    """Remove the keys of erasures whose commits are all made."""
    names = [info.base_name for info in storage.list_folder(UNFINISHED)]
    storage.discard(DataFile(f"{UNFINISHED}/{name}", 0, 0) for name in names)


@dataclass(frozen=True)
class SuppressedKeys:
    """The keys of which no record is stored."""

    key: Sequence[Sequence[str]]  # the columns of the key
    salt: str  # the fingerprint of the salt
    hashes: frozenset[str]


def suppress(storage: TableStorage, name: str, keys: SuppressedKeys) -> None:
    """Add the keys of an erasure to those of which no record is stored from now on."""
    values = {"key": list(keys.key), "salt": keys.salt, "keys": sorted(keys.hashes)}
    storage.replace_file(f"{SUPPRESSED}/{name}.json", json.dumps(values).encode())


def read_suppressed(storage: TableStorage, salt: str | None = None) -> SuppressedKeys | None:
    """Return the keys of which no record is stored; None if there are none.

    Args:
        salt: the fingerprint of the present salt, which is compared if it is given.

    Raises:
        ConfigError: hashes were made with another salt, or of another key.
    """
    infos = storage.list_folder(SUPPRESSED)
    names = sorted(info.base_name for info in infos if info.base_name.endswith(".json"))
    lists = [json.loads(storage.read_text(f"{SUPPRESSED}/{name}") or "{}") for name in names]
    lists = [values for values in lists if values.get("keys")]
    if not lists:
        return None
    salts = {values["salt"] for values in lists} | ({salt} if salt is not None else set())
    keys = {json.dumps(values["key"]) for values in lists}
    if len(salts) > 1 or len(keys) > 1:
        raise ConfigError(
            f"the table {storage.uri} has keys that must not be stored again, hashed with another "
            f"{'salt' if len(salts) > 1 else 'key'} than there is now",
            guidance="restore the former salt (ELT_HASH_SALT, or the file hash_salt in DAGSTER_HOME, or in "
            f"the vault) or key; or remove {SUPPRESSED} from the table's folder, and the records are stored",
        )
    hashes = frozenset(text for values in lists for text in values["keys"])
    return SuppressedKeys(lists[0]["key"], lists[0]["salt"], hashes)
