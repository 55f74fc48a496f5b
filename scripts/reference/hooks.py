"""Events of mkdocs: pages that are made from the code, and documents of the repository's root as pages."""

from __future__ import annotations

import logging
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

import connectors.sdk
import elt_assets
from elt_assets.connection.connection import Connection
from elt_assets.settings import Settings
from scripts.reference.commands import describe_commands
from scripts.reference.models import describe_model

ROOT = Path(__file__).parent.parent.parent
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "LICENSE": "license.md",
}
"""The page of each document of the repository's root."""

_LOG = logging.getLogger("mkdocs.hooks.reference")
_DEFS_YAML = """# Keys of `defs.yaml`

Every key of a connection, as the models of this version define them; [connections.md](../connections.md)
explains them with examples. An unknown key is an error, which names the nearest one that exists.

"""
_SETTINGS = """# Settings

Every setting in `[tool.elt]` of `pyproject.toml`, and the variable of the environment that overrides it.
[projects.md](../projects.md#settings) explains them.

"""
_COMMANDS = """# Commands

Every command of `elt`, as its `--help` shows it; [cli.md](../cli.md) explains them with examples. `--json`
and `--verbose` may stand before or after the name of a command.

"""
_API = """# Python API

What `import elt_assets` offers. The names are imported on first use.

"""
_SDK = """# SDK for connectors

What `import connectors.sdk` offers to a connector; [writing-a-connector.md](../writing-a-connector.md) shows
how to use it.

"""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give headings the anchors that code hosts give them, so that a link works in both."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    pages = {page: _root_document(name) for name, page in PAGES.items()}
    pages |= {
        "reference/defs-yaml.md": _DEFS_YAML + describe_model(Connection),
        "reference/settings.md": _SETTINGS + describe_model(Settings, "ELT_"),
        "reference/commands.md": _COMMANDS + describe_commands(),
        "reference/api.md": _API + _objects("elt_assets", elt_assets.__all__),
        "reference/sdk.md": _SDK + _objects("connectors.sdk", connectors.sdk.__all__),
    }
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links to documents of the repository's root into links to their pages."""
    if re.search(r"^ {1,3}```", markdown, flags=re.MULTILINE):
        _LOG.warning("%s: indent code in a list by four spaces", page.file.src_uri)
    for name, target in PAGES.items():
        markdown = re.sub(rf"\]\(\.\./{re.escape(name)}(?=[)#])", f"]({target}", markdown)
    return markdown


def on_page_content(html: str, **_: object) -> str:
    r"""Show `\|` in the code of a table as `|`, as code hosts do."""
    return re.sub(r"<td.*?</td>", lambda cell: cell[0].replace("\\|", "|"), html, flags=re.DOTALL)


def _root_document(name: str) -> str:
    text = (ROOT / name).read_text(encoding="utf-8")
    if name == "LICENSE":
        return f"# License\n\n```text\n{text}```\n"
    text = re.sub(r"\]\(docs/", "](", text)
    for other, target in PAGES.items():
        text = re.sub(rf"\]\({re.escape(other)}(?=[)#])", f"]({target}", text)
    return text


def _objects(module: str, names: list[str]) -> str:
    """Return the directives of mkdocstrings for the public objects of a module."""
    return "\n".join(f"::: {module}.{name}\n" for name in sorted(names) if name[0] != "_")
