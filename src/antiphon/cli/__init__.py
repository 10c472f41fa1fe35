"""The command line: one module per command, loaded when it is called.

Answers go to standard output, talk to standard error. Exit codes: 0 done, 1 our own fault, 2 usage
or unreadable input, 3 refused by validation (nothing was sent), 4 the provider's error or an answer
that may not be committed, 5 outcome unknown, 130 canceled.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from typing import Final, NoReturn

import click

from antiphon.cli.output import OutputLost, reporting_loss, show_crash, show_error
from antiphon.errors import AntiphonError, InvalidInput, RunCanceled
from antiphon.version import __version__

COMMANDS: Final = {
    "serve": "Serve conversations over HTTP.",
    "chat": "Talk to a model in the terminal.",
    "demo": "Watch a run crash in mid-answer and come back, offline.",
    "lint": "Say whether a request may be sent, and if not, why.",
    "render": "Print the exact body of a request.",
    "assemble": "Read a raw answer stream and say what it amounts to.",
    "show": "Show a conversation, a run or a request that was sent.",
    "recover": "List dispatches of unknown outcome, and settle them.",
    "export": "Write a conversation as JSON lines.",
    "import": "Read a conversation from JSON lines.",
    "copy": "Copy a database into an empty one.",
    "erase": "Erase what was said, for good.",
    "keys": "Make, list and revoke the keys of a server.",
    "rollout": "Say which way traffic goes, and see what the shadow found.",
    "doctor": "Examine versions, settings, disk and database.",
}
"""Every command with its one line of help, so that `antiphon --help` has to load none of them."""


class _Commands(click.Group):
    """Finds a command in the module of its name: `antiphon.cli.lint.command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which help shows them."""
        return [name for name in COMMANDS if find_spec(_module(name)) is not None]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command, or None where there is none of this name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command = import_module(_module(cmd_name)).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands, without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, and say which was probably meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            known = self.list_commands(ctx)
            raise InvalidInput(
                f"There is no command {args[0]!r}.{_meant(args[0], known)}",
                code="unknown_command",
            ) from None


def _module(name: str) -> str:
    return f"antiphon.cli.{'import_' if name == 'import' else name}"


def _meant(word: str, known: list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, known, n=1)
    return f" Did you mean {near[0]}?" if near else f" There are: {', '.join(known)}."


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="antiphon", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Conversations with language models that cannot go wrong.

    An illegal request is never sent, a half answer never becomes history, a tool never runs
    twice.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with the code that the outcome has."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout = reporting_loss(sys.stdout)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a narrow encoding shall cost a character, no answer
            stream.reconfigure(errors="backslashreplace")
    try:
        code = run(arguments)
    except OutputLost as error:
        code = show_error(error, as_json=False)
    # All is settled and told; whoever is impatient from here on ends the interpreter's own end.
    signal.signal(signal.SIGINT, lambda *_: os._exit(code))
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code. Whatever goes wrong is told in one line."""
    as_json = "--json" in arguments
    try:
        code = cli.main(arguments, prog_name="antiphon", standalone_mode=False)
        print(end="", flush=True)
    except OutputLost:
        raise  # an error as JSON would be lost as well
    except AntiphonError as error:
        return show_error(error, as_json=as_json)
    except click.exceptions.NoArgsIsHelpError as error:
        if as_json:
            return show_error(InvalidInput("Name a command of it.", code="usage"), as_json=True)
        click.echo(error.format_message(), err=True)
        return InvalidInput.exit_code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "antiphon"
        message = f"{error.format_message()} Try: {command} --help"
        return show_error(InvalidInput(message, code="usage"), as_json=as_json)
    except click.ClickException as error:
        unreadable = InvalidInput(error.format_message(), code="unreadable")
        return show_error(unreadable, as_json=as_json)
    except (KeyboardInterrupt, click.Abort):
        return show_error(RunCanceled("Interrupted."), as_json=as_json)
    except SystemExit:
        return 0  # click has met a pipe that nobody reads, and silenced the streams
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain again at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:  # noqa: BLE001  # the outermost frame: nothing may end as a bare traceback
        return show_crash(error, as_json=as_json)
    return code if isinstance(code, int) else 0
