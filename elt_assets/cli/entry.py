"""The `elt` command: its sub-commands and its exit codes."""

from __future__ import annotations

import importlib
import keyword
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import click
from click.shell_completion import CompletionItem

from elt_assets.cli.output import FAILED, INTERRUPTED, REFUSED, output_options, print_error
from elt_assets.errors import ConfigError, EltError, SystemFailure
from elt_assets.machine_faults import translate

COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "init": "Create a project, or add what connections need to one of Dagster.",
        "new": "Create a connection with every stream of a source.",
        "import": "Create connections from those of Airbyte or Meltano.",
        "new-connector": "Create a source of your own, with a test.",
        "connectors": "List the connectors on this machine, and the kinds of source.",
        "list": "List the connections, or the streams of one.",
        "validate": "Find every error in the connections; nothing is started.",
        "check": "Check a connection, and whether its source can be reached.",
        "test-connector": "Check that a source follows the rules of its protocol.",
        "discover": "Write catalog.json, and show what has changed in the source.",
        "upgrade": "Take another version of a package, after showing what changes.",
        "preview": "Show the first records of a stream; nothing is stored.",
        "partitions": "List the partitions of a stream that its source has.",
        "sync": "Sync the streams of a connection, with a live progress bar.",
        "status": "Show the last sync of each stream, its table and its state.",
        "verify": "Compare tables with their source, and correct what differs.",
        "sql": "Run a query over the tables; nothing can be changed.",
        "state": "Show, set, restore or reset the state of a stream.",
        "reset": "Make streams start again, with or without their rows.",
        "dbt-sources": "Write the tables as sources of dbt.",
        "replay": "Process the records of the dead letter tables again.",
        "backfill": "Fill new columns of rows that a table has already.",
        "remove": "Remove a connection or a stream, with its tables or without them.",
        "move": "Move all tables of the lake to another root.",
        "publish": "Publish the tables in Iceberg, up to their newest versions.",
        "erase": "Remove rows from a table and all that the lake keeps of them.",
        "rename": "Move a stream's table and state to the names that defs.yaml has now.",
    }
)
"""Summaries of the sub-commands, in the order of `elt --help`; each is a module in `commands`, with
`_` for `-`, and `_` behind a keyword of Python."""

_EXIT_CODES = """\b
Exit codes:
  0    Success.
  1    Failure: of the source, the lake or this project. `check` could not reach the source,
       `test-connector` found that the source does not follow a rule, `verify` found rows
       that differ and are not corrected, `validate`, `list` or
       `status` found a connection that cannot be loaded, or `discover --dry-run --exit-code`
       found changes.
  2    Something must be changed: an argument, a file, a variable.
  3    `sync` is complete, and a check of severity ERROR failed (`--allow-failed-checks`: 0).
  130  Interrupted.

\b
Completion, in ~/.bashrc (for other shells: zsh_source, fish_source):
  eval "$(_ELT_COMPLETE=bash_source elt)"
"""


class _Commands(click.Group):
    """Group that imports a sub-command only to run it; its own help and completion import none."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module_name = name.replace("-", "_") + ("_" if keyword.iskeyword(name) else "")
        module = importlib.import_module(f"elt_assets.cli.commands.{module_name}")
        subcommand: click.Command = module.command
        return subcommand

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def shell_complete(self, context: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        items = [CompletionItem(name, help=COMMANDS[name]) for name in names]
        return [*items, *click.Command.shell_complete(self, context, incomplete)]


@click.command(cls=_Commands, epilog=_EXIT_CODES)
@output_options
@click.version_option(package_name="elt-assets")
@click.pass_context
def elt(context: click.Context, machine: bool, verbose: bool) -> None:
    """Manage connections, their sources and the state of their streams.

    `elt sync`, `dagster asset materialize` and the UI all start Dagster runs, which record the same events.
    """
    context.obj = (machine, verbose)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and print its error, if it fails.

    Returns:
        The exit code (see `elt --help`).
    """
    words = sys.argv[1:] if argv is None else list(argv)
    machine = "--json" in words
    try:
        code: int = elt.main(words, prog_name="elt", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return REFUSED
    except click.UsageError as error:
        path = "elt" if error.ctx is None else error.ctx.command_path
        usage = None if error.ctx is None else error.ctx.get_usage()
        print_error(
            ConfigError(f"{path}: {error.format_message()}", guidance=usage), machine=machine
        )
        return REFUSED
    except EltError as error:
        print_error(error, machine=machine)
        return REFUSED if isinstance(error, ConfigError) else FAILED
    except click.Abort:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - errors of Dagster, storage … are shown like all others
        translated = translate(error)
        print_error(
            translated
            or SystemFailure(
                f"{type(error).__name__}: {error}",
                guidance="check that DAGSTER_HOME and the lake can be read and written; otherwise "
                "report this as a bug",
            ),
            machine=machine,
        )
        return REFUSED if isinstance(translated, ConfigError) else FAILED
    return code
