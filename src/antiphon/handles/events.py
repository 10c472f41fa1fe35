"""What happens in one run, as an application is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from antiphon.core.answers.judging import Verdict
from antiphon.core.blocks import Message
from antiphon.core.events import Preview
from antiphon.core.ids import RunId
from antiphon.core.records import Call, RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """Take the preview of this generation off the screen: it never became history."""

    run: RunId
    generation: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """`message` is canonical: complete, durable, part of what the model sees next."""

    run: RunId
    message: Message
    generation: int
    finish: str | None
    verdict: Verdict | None = None
    """What the schema that was asked for says of it, where one was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsWaiting:
    """The run waits for the results of these calls: bring them with `Run.answer`."""

    run: RunId
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFinished:
    """A tool call has its one terminal result."""

    run: RunId
    call: Call


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """The request may have been carried out. It is not sent again; `code` says what was seen."""

    run: RunId
    code: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The run is over. `code` is its error code, or why it ended as it did.

    Where its message `joined` another run, that is named, and has the answer.
    """

    run: RunId
    status: RunStatus
    code: str | None
    into: RunId | None = None


RunEvent: TypeAlias = (
    Preview | Withdrawn | Committed | CallsWaiting | CallFinished | Unknown | Ended
)
