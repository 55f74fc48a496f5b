"""The reference of the command line: usage, arguments, options and examples of each command of `elt`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from elt_assets.cli.entry import COMMANDS, elt
from scripts.reference.models import table_row


def describe_commands() -> str:
    """Return a section of Markdown for each command, in the order of `elt --help`."""
    context = click.Context(elt, info_name="elt")
    sections = [_section(elt, context)]
    for name in COMMANDS:
        command = elt.get_command(context, name)
        assert command is not None
        sections += _sections(command, click.Context(command, context, name))
    return "\n".join(sections)


def _sections(command: click.Command, context: click.Context) -> Iterator[str]:
    yield _section(command, context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _sections(inner, click.Context(inner, context, name))


def _section(command: click.Command, context: click.Context) -> str:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [f"## {context.command_path}", "", "```text", usage, "```", ""]
    lines += [inspect.cleandoc(command.help or "").replace("\b\n", ""), ""]
    options = [
        o for o in command.get_params(context) if isinstance(o, click.Option) and not o.hidden
    ]
    lines += [table_row(["option", "value", "default", "meaning"]), table_row(["---"] * 4)]
    lines += [_option(option, context) for option in options]
    if command.epilog:
        text = inspect.cleandoc(command.epilog.replace("\b", ""))
        lines += ["", "```text", text, "```"]
    return "\n".join([*lines, ""])


def _option(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    kind = "" if option.is_flag else option.make_metavar(context).strip("[]")
    default = option.get_default(context, call=False)
    is_default_shown = not option.is_flag and isinstance(default, str | int | float)
    return table_row(
        [
            names,
            f"`{kind}`" if kind else "",
            f"`{default}`" if is_default_shown else "",
            option.help or "",
        ]
    )
