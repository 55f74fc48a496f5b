"""Packages that a test installs for the processes that it starts: a module and its entry points."""

from __future__ import annotations

from pathlib import Path


def plugin(site: Path, module: str, source: str, group: str, entry: str) -> str:
    """Write a package into a folder; return the PYTHONPATH with which it is installed.

    Args:
        module: its name; `source`: its text.
        group: of its entry point; `entry`: the entry point, as "name = module:attribute".
    """
    information = site / f"{module}-1.0.dist-info"
    information.mkdir(parents=True)
    (site / f"{module}.py").write_text(source)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
    return str(site)
