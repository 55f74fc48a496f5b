"""Where things land: read from the environment when asked for, never at import."""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
from pathlib import Path

from elt_assets.errors import ConfigError
from elt_assets.storage.directories import make_private

SALT_FILE = "hash_salt"
DEFINITION_FILE = "defs.yaml"
"""The file that defines a connection, in the folder of the connection."""


def project() -> Path | None:
    """Return the folder of the project whose package this is; None if the package is installed elsewhere,
    from a wheel, say."""
    folder = Path(__file__).parent.parent
    return folder if (folder / "pyproject.toml").is_file() else None


def home() -> Path:
    """Return `$DAGSTER_HOME`; default `dagster_home` in the project, or, without a project, a folder of the
    user's own: `$XDG_DATA_HOME/elt-assets`, default `~/.local/share/elt-assets`."""
    given = os.environ.get("DAGSTER_HOME")
    if given:
        return Path(given).expanduser().absolute()
    folder = project()
    if folder is not None:
        return folder / "dagster_home"
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser().absolute() / "elt-assets"


def location(written: str) -> str:
    """Return where a lake is, which is written as a URI or as a path: `~` is expanded, and a relative path
    is taken from the home, so that every process finds the same place. Without a slash at its end."""
    if "://" in written:
        return written.rstrip("/")
    return str(home() / Path(written).expanduser())


def lake() -> str:
    """Return `$ELT_LAKE`, see `location`; default `lake` under the home."""
    return location(os.environ.get("ELT_LAKE") or "lake")


def staging() -> Path:
    """Return `$ELT_STAGING`, a path, see `location`; default `staging` under the home."""
    return Path(location(os.environ.get("ELT_STAGING") or "staging"))


def packages() -> Path:
    """Where connectors from PyPI are installed."""
    return home() / "packages"


def config_store() -> Path:
    """Where it is kept what connectors change in their own configs: a file for each connection."""
    return home() / "config"


def connections() -> Path:
    """Return `$ELT_DEFS`, relative to the working directory; default the package's own `defs`: a folder for
    each connection."""
    given = os.environ.get("ELT_DEFS")
    return Path(given).expanduser().absolute() if given else Path(__file__).parent / "defs"


def connection_folder(name: str) -> Path:
    """Return the folder of a connection, by its name or a path to it; it need not exist."""
    return Path(name) if "/" in name else connections() / name


def connection_folders() -> list[Path]:
    """Return the folders of all connections, sorted by name."""
    return sorted(path.parent for path in connections().glob(f"*/{DEFINITION_FILE}"))


def hash_salt() -> bytes:
    """What hashed fields are hashed with: `$ELT_HASH_SALT`, or else the text of the file `hash_salt`
    under the home, which is made on first use: 32 random bytes in hex, readable by its owner alone.

    Raises:
        ConfigError: the file is there, but empty or not readable, or cannot be made.
    """
    given = os.environ.get("ELT_HASH_SALT")
    if given:
        return os.fsencode(given)
    path = home() / SALT_FILE
    try:
        if not path.exists():
            _make_salt(path)
        salt = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(
            f"the salt of hashed fields, {path}, cannot be read or made: {error.strerror}",
            guidance="make it readable, or set ELT_HASH_SALT",
        ) from error
    if not salt:
        raise ConfigError(
            f"the salt of hashed fields, {path}, is empty",
            guidance="bring back its text from a backup, or remove it to get a new one: "
            "then the same values get other hashes",
        )
    return salt


def fingerprint(salt: bytes) -> str:
    """Tells one salt from another without giving it away: 16 hex digits."""
    return hmac.digest(salt, b"elt: hash salt", "sha256").hex()[:16]


def _make_salt(path: Path) -> None:
    """Written whole before it has its name: of several processes one gives theirs, and all read it."""
    make_private(path.parent)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{secrets.token_hex(32)}\n")
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def spark_settings_file() -> Path | None:
    """`$ELT_SPARK`, there or not; default `spark-defaults.conf` in the home, None if it is not there."""
    given = os.environ.get("ELT_SPARK")
    if given:
        return Path(given).expanduser()
    default = home() / "spark-defaults.conf"
    return default if default.is_file() else None


def alert_hook() -> str | None:
    """`$ELT_ALERT_HOOK`: the function that is told of failed runs, as "package.module:function"."""
    return os.environ.get("ELT_ALERT_HOOK") or None


def ui_url() -> str | None:
    """`$ELT_UI_URL`: where Dagster's UI is, for links; without a slash at its end."""
    return (os.environ.get("ELT_UI_URL") or "").rstrip("/") or None
