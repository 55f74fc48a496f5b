"""Paths of the project, the salt of hashed fields, and settings of Spark, alerts and the UI.

Environment variables are read at each call, never at import. Used by most packages, from `runner` up.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from elt_assets.branches import (
    BRANCH,
    BRANCH_ENVIRONMENT,
    ENVIRONMENT,
    branch,
    branch_name,
    environment,
)
from elt_assets.errors import ConfigError
from elt_assets.settings import PROJECT_FILE, dg_defs, is_set_for, project, settings
from elt_assets.storage.folders import make_private, write_draft
from elt_assets.storage.location import Location
from elt_assets.storage.staging import Staging

SALT_FILE = "hash_salt"
SALT_VARIABLE = "ELT_HASH_SALT"
DEFINITION_FILE = "defs.yaml"
"""The file that defines a connection, in the folder of the connection."""


def repository() -> Path | None:
    """Return the repository of this package; None if the package is installed from a wheel."""
    folder = Path(__file__).parent.parent
    return folder if (folder / PROJECT_FILE).is_file() else None


def home() -> Path:
    """Return `$DAGSTER_HOME`; default `dagster_home` in the project, or in the repository of this package.
    Without both, the default is `$XDG_DATA_HOME/elt-assets`, or `~/.local/share/elt-assets` if that variable
    is not set."""
    configured = os.environ.get("DAGSTER_HOME")
    if configured:
        return Path(configured).expanduser().absolute()
    folder = project() or repository()
    if folder is not None:
        return folder / "dagster_home"
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(data).expanduser().absolute() / "elt-assets"


def location(path_or_uri: str) -> str:
    """Return a configured URI or path in its absolute form. `~` is expanded, and a relative path is relative
    to the home, so that every process uses the same location. The result has no slash at its end."""
    if "://" in path_or_uri:
        return path_or_uri.rstrip("/")
    return str(home() / Path(path_or_uri).expanduser())


def lake() -> str:
    """Return the setting `lake`, see `own_place`; default `lake` in the home, and in a branch deployment a
    folder with the name of the branch."""
    default = "lake" if branch() is None else "lake_{branch}"
    return own_place("lake", settings().lake or default)


def own_place(setting: str, configured: str) -> str:
    """Return the location in a setting, see `location`, with the names of the branch and of the environment
    in place of `{branch}` and `{env}`.

    Raises:
        ConfigError: there is no such name; or this is a branch deployment and the place is not of the branch.
    """
    name = branch()
    is_own = "{branch}" in configured or is_set_for(setting, BRANCH_ENVIRONMENT)
    if name is not None and not is_own:
        raise ConfigError(
            f"this is the deployment of the branch {name!r}, and `{setting}` ({configured}) is not a place "
            "of its own: production would be changed",
            guidance="write {branch} into it, which is replaced by the name of the branch; or, for a "
            f"setting, write it in [tool.elt.env.{BRANCH_ENVIRONMENT}] (docs/projects.md)",
        )
    return location(_fill_names(setting, configured))


def _fill_names(setting: str, configured: str) -> str:
    """Return a text with the names of the branch and of the environment."""
    name = branch()
    values = {"{branch}": name and branch_name(name), "{env}": environment()}
    for placeholder, value in values.items():
        if placeholder in configured and not value:
            variable = BRANCH if placeholder == "{branch}" else ENVIRONMENT
            raise ConfigError(
                f"`{setting}` has the placeholder {placeholder}, and this deployment has none",
                guidance=f"set {variable}; or write a place without {placeholder} for this environment",
            )
        configured = configured.replace(placeholder, value or "")
    return configured


def staging(configured: str | None = None) -> Path:
    """Return the staging directory of this machine.

    It is the configured path, see `location`; if that is the URI of an object store, `staging` in the home.

    Args:
        configured: default: the setting `staging`, or `staging` in the home.
    """
    place = _staging(configured)
    if place.startswith("file://"):
        return Path(unquote(urlsplit(place).path))
    return home() / "staging" if "://" in place else Path(place)


def staging_of_syncs(
    configured: str | None = None, options: Mapping[str, str] | None = None
) -> Staging:
    """Return the places in which syncs stage records: `staging`, and the configured store, if any.

    Args:
        configured: as for `staging`.
        options: options of the object store, see `Location.parse`.

    Raises:
        ConfigError: the store is not an object store, or an option of it is not supported.
    """
    place = _staging(configured)
    is_local = "://" not in place or place.startswith("file://")
    return Staging(staging(configured), None if is_local else Location.parse(place, options))


def _staging(configured: str | None) -> str:
    return location(_fill_names("staging", configured or settings().staging or "staging"))


def packages() -> Path:
    """Return the directory in which connectors from PyPI are installed."""
    return home() / "packages"


def config_store() -> Path:
    """Return the directory of persisted connector config updates: one file per connection."""
    return home() / "config"


def connections() -> Path:
    """Return the directory of the connections: the setting `defs` (`$ELT_DEFS` is relative to the working
    directory); default the folder of definitions of the dg project, or of the repository of this package.

    Raises:
        ConfigError: there is no project.
    """
    configured, root = settings().defs, project()
    if configured:
        return Path(configured).expanduser().absolute()
    package = dg_defs(root) if root is not None else None
    if package is not None:
        return package[1]
    if repository() is None:
        raise ConfigError(
            f"there is no project in {Path.cwd()} or above it",
            guidance="create one with `elt init DIRECTORY`, go to its folder, or set ELT_PROJECT to it",
        )
    return Path(__file__).parent / "defs"


def hash_salt() -> bytes:
    """Return the salt of hashed fields: `$ELT_HASH_SALT`, or the text of the file `hash_salt` in the home.
    The file is created on first use: 32 random bytes in hex, readable by its owner only.

    Raises:
        ConfigError: the file is empty, is not readable, or cannot be created.
    """
    configured = os.environ.get(SALT_VARIABLE)
    if configured:
        return os.fsencode(configured)
    path = home() / SALT_FILE
    try:
        if not path.exists():
            _create_salt(path)
        salt = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(
            f"cannot read or create the salt file of hashed fields, {path}: {error.strerror}",
            guidance="make the file readable, or set ELT_HASH_SALT to the text of the file; a different salt "
            "changes all hashes",
        ) from error
    if not salt:
        raise ConfigError(
            f"the salt file of hashed fields, {path}, is empty",
            guidance="restore the file from a backup; delete it only if there is none: the next run then "
            "creates a different salt, which changes all hashes, so tables with hashes of the former salt "
            "must be moved away and read from the beginning",
        )
    return salt


def fingerprint(salt: bytes) -> str:
    """Return 16 hex digits that identify a salt without revealing it."""
    return hmac.digest(salt, b"elt: hash salt", "sha256").hex()[:16]


def _create_salt(path: Path) -> None:
    """Create the salt file. The complete draft is linked to the final name, so that only one of several
    processes creates the file, and all read the same salt."""
    make_private(path.parent)
    content = f"{secrets.token_hex(32)}\n".encode()
    with write_draft(path.parent, content) as draft, contextlib.suppress(FileExistsError):
        os.link(draft, path)


def spark_settings() -> Path | Mapping[str, str] | None:
    """Return the setting `spark`: Spark's settings, or a file of them, which may not exist; default
    `spark-defaults.conf` in the home, or None if that file does not exist."""
    configured = settings().spark
    if configured:
        return Path(configured).expanduser() if isinstance(configured, str) else configured
    default = home() / "spark-defaults.conf"
    return default if default.is_file() else None


def makes_archive() -> bool:
    """Return whether the archive of Spark's classes is made automatically: unless the setting
    `spark_archive` is `off`."""
    return (settings().spark_archive or "").strip().lower() != "off"


def cache() -> Path:
    """Return the directory of files that can be made again: `$XDG_CACHE_HOME/elt-assets`, or
    `~/.cache/elt-assets` if that variable is not set."""
    configured = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(configured).expanduser().absolute() / "elt-assets"


def alert_hook() -> str | None:
    """Return the setting `alert_hook`: the function to call for failed runs, as "package.module:function"."""
    return settings().alert_hook


def ui_url() -> str | None:
    """Return the setting `ui_url`: the URL of Dagster's UI for links, without a slash at its end."""
    return (settings().ui_url or "").rstrip("/") or None
