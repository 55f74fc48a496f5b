"""Branch deployments: which branch this process serves, and the names that it has in places and settings.

`environment`, the name of `ELT_ENV`, is here too: `settings`, `paths` and `connection.overlays` ask for it.

Dagster+ sets `DAGSTER_CLOUD_IS_BRANCH_DEPLOYMENT` and `DAGSTER_CLOUD_GIT_BRANCH`; elsewhere, `ELT_BRANCH`
does both.
"""

from __future__ import annotations

import hashlib
import os
import re

BRANCH, ENVIRONMENT = "ELT_BRANCH", "ELT_ENV"
VARIABLES = ("DAGSTER_CLOUD_IS_BRANCH_DEPLOYMENT", "DAGSTER_CLOUD_GIT_BRANCH")
"""The variables of Dagster+."""
BRANCH_ENVIRONMENT = "branch"
"""Environment of a branch deployment in which `ELT_ENV` is not set."""
_MAX_NAME = 40


def branch() -> str | None:
    """Return the git branch of a branch deployment; None in any other deployment."""
    is_branch = os.environ.get(VARIABLES[0], "").lower() in ("1", "true")
    name = os.environ.get(BRANCH) or (os.environ.get(VARIABLES[1]) if is_branch else None)
    return name or ("branch" if is_branch else None)


def branch_name(name: str) -> str:
    """Return the name of a branch for a folder: lower-case letters, digits and underscores.

    Different branches have different names: one that is changed ends in a hash.
    """
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:_MAX_NAME]
    if plain == name:
        return plain
    return "_".join(filter(None, [plain, hashlib.sha256(name.encode()).hexdigest()[:8]]))


def environment() -> str | None:
    """Return the environment of this process: `ELT_ENV`, or `branch` in a branch deployment; else None."""
    return os.environ.get(ENVIRONMENT) or (BRANCH_ENVIRONMENT if branch() is not None else None)
