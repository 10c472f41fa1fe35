"""How a chat speaks: plainly into a pipe, as JSON for a program, or on a terminal.

Plainly, an answer goes to standard output when it is history and not a word before; all talk
goes to standard error. On a terminal (`chat.console`) the preview is shown too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import click
import msgspec

from antiphon.cli.output import note
from antiphon.cli.view.run import explained, outcome
from antiphon.cli.view.text import Ink, harmless, one_line
from antiphon.core.blocks import Message, Refusal, Text
from antiphon.core.events import Preview
from antiphon.core.records import Call, CallState, RunStatus
from antiphon.errors import AntiphonError
from antiphon.handles.events import (
    CallFinished,
    CallsWaiting,
    Committed,
    Ended,
    RunEvent,
    Unknown,
    Withdrawn,
)


def spoken(message: Message) -> str:
    """Return what an answer says to a person: its text, or its refusal."""
    return "".join(b.text for b in message.blocks if isinstance(b, Text | Refusal))


def asked_for(message: Message) -> list[str]:
    """Return one line for each tool that an answer asks for."""
    return [one_line(f"→ {call.name} {call.arguments}") for call in message.calls]


class Voice:
    """Speaks plainly. Others are made by overriding how a line is said."""

    def __init__(self, ink: Ink) -> None:
        self.ink = ink
        self.hint = ""
        """Something to know just now; on a terminal it stands there until a key is pressed."""
        self.once = False
        """Whether one message is said and no more: what to do next is done by another call."""

    # Three ways to say a line.

    def note(self, text: str, *styles: str) -> None:
        """Say something that is no answer and no result."""
        note(self.ink(text, *(styles or ("dim",))))

    def result(self, lines: Iterable[str]) -> None:
        """Print what a command was asked for."""
        for line in lines:
            click.echo(line)

    def remark(self, lines: Iterable[str]) -> None:
        """Say several painted lines that are no result."""
        for line in lines:
            self.note(line, "plain")

    def answer(self, message: Message, seal: str) -> None:
        """Print an answer that is history from now on. `seal` says so."""
        if text := spoken(message):
            click.echo(harmless(text) if sys.stdout.isatty() else text)
        for asked in asked_for(message):
            self.note(asked, "mark")
        self.note(seal)

    # What happens in a run.

    def event(self, event: RunEvent, seal: str = "") -> None:
        """Tell what happened in a run."""
        match event:
            case Preview():
                self.preview(event)
            case Withdrawn(generation=generation, reason=reason):
                self.withdrawn(generation, reason)
            case Committed(message=message):
                self.answer(message, seal)
            case CallFinished(call=call):
                style = "mark" if call.state is CallState.SUCCESS else "warn"
                self.note(f"← {call.name}: {outcome(call)}", style)
            case CallsWaiting(calls=calls):
                self.waiting(calls)
            case Unknown():
                self.note(
                    "outcome unknown: the connection broke after the request had left", "warn"
                )
            case Ended():
                self.ended(event)

    def preview(self, piece: Preview) -> None:
        """Show a piece of an answer that may still be withdrawn; plainly, nothing is shown."""

    def withdrawn(self, generation: int, reason: str) -> None:
        """Say that what was shown never became history."""
        if reason != "canceled":
            self.note(f"withdrawn, nothing of it was kept: {explained(reason)}", "warn")

    def waiting(self, calls: Sequence[Call]) -> None:
        """Say that somebody else has to bring results."""
        for call in calls:
            if call.state in (CallState.PENDING, CallState.UNKNOWN):
                self.note(one_line(f"waits for the result of {call.name} {call.arguments}"), "warn")
        self.note("Bring it with /answer TEXT, or give up with /stop.", "warn")

    def ended(self, event: Ended) -> None:
        """Say how a run ended, unless its answer says it all."""
        match event.status:
            case RunStatus.CANCELED:
                self.note(
                    "stopped: what was shown is no part of the talk; /keep changes that", "warn"
                )
            case RunStatus.ERROR:
                self.note(f"no answer. {explained(event.code)}", "bad")
                again = "antiphon chat -c " if self.once else ""
                self.note(f"{again}/regenerate asks again; {again}/why tells what happened")
            case _ if event.code == "length":
                self.note("cut: the token limit was reached", "warn")
            case _:
                pass

    def stopped(self, text: str) -> None:
        """Say what a stopped answer had said. It is no answer, so plainly nothing is printed."""

    def begin(self, text: str) -> bool:
        """Put `text` before the person to be edited; return whether that can be done here."""
        return False

    def refused(self, error: AntiphonError) -> None:
        """Say that something asked for was not done."""
        place = f" ({harmless(error.at)})" if error.at else ""
        self.note(f"{error.code}: {harmless(error.message)}{place}", "bad")


class JsonVoice(Voice):
    """One JSON document a line, for programs: every event of every run, previews too."""

    def note(self, text: str, *styles: str) -> None:
        """Programs are told by events."""

    def result(self, lines: Iterable[str]) -> None:
        """Print a command's result as one document."""
        self._emit("result", lines=list(lines))

    def event(self, event: RunEvent, seal: str = "") -> None:
        """Print the event as it is."""
        name = "calls_waiting" if isinstance(event, CallsWaiting) else _NAMES[type(event)]
        self._emit(name, **msgspec.to_builtins(event))

    def refused(self, error: AntiphonError) -> None:
        """Print the error."""
        self._emit("error", code=error.code, message=error.message, at=error.at)

    def opened(self, conversation: str, model: str) -> None:
        """Say which conversation this is."""
        self._emit("conversation", id=conversation, model=model)

    def _emit(self, event: str, **content: object) -> None:
        click.echo(msgspec.json.encode({"event": event, **content}).decode())


_NAMES = {
    Preview: "preview",
    Withdrawn: "withdrawn",
    Committed: "committed",
    CallFinished: "call_finished",
    Unknown: "unknown",
    Ended: "ended",
}
