"""How the command line speaks: results, notes and errors, for people and for programs."""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from antiphon.errors import AntiphonError, InternalError, SequenceRejected

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Command = TypeVar("Command", bound=Callable[..., Any])

DOCUMENTED: Final = "docs/reason-codes.md"

json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document."
)
db_option: Final = click.option(
    "--db", metavar="URL", envvar="ANTIPHON_DB", help="The database; sqlite:///antiphon.db."
)
config_option: Final = click.option(
    "--config", metavar="FILE", envvar="ANTIPHON_CONFIG", help="The settings; antiphon.toml."
)


class OutputLost(AntiphonError):
    """What was asked for cannot be written where it was to go."""

    default_code = "output_lost"


class _Output(io.FileIO):
    """A stream that says once that it cannot be written, as an error of its own."""

    _lost = False

    def write(self, data: ReadableBuffer, /) -> int:
        """Write `data`, or nothing any more.

        Raises:
            BrokenPipeError: Nobody reads it.
            OutputLost: The disk is full, for one.
        """
        if self._lost:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._lost = True
            raise OutputLost(f"The output cannot be written: {error.strerror}.") from None


def reporting_loss(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """Return the same output, raising `OutputLost` when it cannot be written."""
    raw = _Output(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=stream.encoding, line_buffering=stream.isatty()
    )


def print_json(value: object) -> None:
    """Print `value` on standard output as one line of JSON."""
    import json

    click.echo(json.dumps(value, ensure_ascii=False))


def note(text: str) -> None:
    """Tell the person something that is no result."""
    click.echo(text, err=True)


def mappings(found: Iterable[tuple[str, str, str]]) -> None:
    """Tell what was mapped on the way to bytes: rule, block and detail."""
    for rule, block, detail in found:
        told = click.style(rule, fg="yellow")
        note(f"mapped {told} at {block}" + (f": {detail}" if detail else ""))


def as_error(error: AntiphonError) -> dict[str, object]:
    """Return the one JSON shape that every error has."""
    body: dict[str, object] = {
        "code": error.code,
        "message": error.message,
        "at": error.at,
        "retryable": error.retryable,
    }
    if isinstance(error, SequenceRejected):
        body["findings"] = [
            {"code": f.code, "at": f.at, "message": f.message} for f in error.findings
        ]
    return {"error": body}


def show_error(error: AntiphonError, *, as_json: bool) -> int:
    """Tell `error` in one line, or as JSON, and return its exit code."""
    if as_json:
        print_json(as_error(error))
        return error.exit_code
    place = f" at {error.at}" if error.at else ""
    note(f"{click.style(f'error[{error.code}]', fg='red', bold=True)}{place}: {error.message}")
    if isinstance(error, SequenceRejected):
        for finding in error.findings[1:]:
            note(f"  and [{finding.code}] at {finding.at}: {finding.message}")
    return error.exit_code


def show_crash(error: Exception, *, as_json: bool) -> int:
    """Tell of a fault of our own, with everything that helps to find it."""
    traceback.print_exception(error, file=sys.stderr)
    kind = type(error).__name__
    fault = InternalError(f"A fault of ours: {kind}. What stands above belongs in a report.")
    return show_error(fault, as_json=as_json)
