"""A run as chunks of a UI message stream: what is shown, what is true, what was taken back.

A client that can take back what it has shown (`reset-step`) is shown previews. Any other is
shown each answer when it is committed, since it could not unsee anything else. Everything of
ours that has no chunk of its own is a `data-antiphon-…` part or metadata, which every version
passes on; an unknown type would end the stream in a client without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from antiphon.core.answers.deltas import Channel
from antiphon.core.blocks import Message, Reasoning, Refusal, Text, ToolCall
from antiphon.core.events import (
    CallChanged,
    Committed,
    DurableEvent,
    Preview,
    ResultsPlaced,
    RunChanged,
    Withdrawn,
)
from antiphon.core.ids import CallId, RunId
from antiphon.core.records import TERMINAL_CALL, Approval, Call, CallState, Runner, RunStatus
from antiphon.core.tools.loop import APPROVAL_REQUIRED
from antiphon.errors import AntiphonError
from antiphon.handles.run import run_error

Chunk: TypeAlias = dict[str, Any]

REFUSED: Final = "refused"
"""Code of a call that somebody refused."""

FINISH: Final = {"length": "length", "content_filter": "content-filter"}
"""How the AI SDK calls the ways in which a run ends, where it has a word for it."""


@dataclass(slots=True)
class _Part:
    """A text part that was begun: `id` in the stream, and what of it was told."""

    id: str
    block: int
    channel: Channel
    text: str = ""
    closed: bool = False


@dataclass(slots=True)
class _Shown:
    """What was shown of one generation, in its order."""

    generation: int
    parts: list[_Part] = field(default_factory=list)


class Writer:
    """Takes what happens in one run, in its order; yields what its client is told.

    Attributes:
        over: Whether the stream ends here: the run ended, or waits for somebody.
        whole: Whether it ended as it should, so that `[DONE]` may be said.
    """

    def __init__(self, run: RunId, about: Chunk, *, takes_withdrawals: bool) -> None:
        """Begin.

        Args:
            run: Whose events these are; its id is the message's.
            about: What the message's metadata says from its beginning on.
            takes_withdrawals: Whether the client can take back what it has shown.
        """
        self.over = False
        self.whole = False
        self._run = run
        self._about = about
        self._takes_withdrawals = takes_withdrawals
        self._in_step = False
        self._shown: _Shown | None = None
        self._withdrawn: Withdrawn | None = None
        self._gone = 0  # the newest generation of which nothing more may be shown
        self._told: set[CallId] = set()

    def begin(self) -> Iterator[Chunk]:
        """Say whose message this is."""
        yield {
            "type": "start",
            "messageId": self._run,
            "messageMetadata": {"antiphon": self._about},
        }

    def show(self, preview: Preview) -> Iterator[Chunk]:
        """Take a piece of preview. What stands after a call waits for the commit, as the call does."""
        if not self._takes_withdrawals or preview.generation <= self._gone or preview.after_call:
            return
        yield from self._settle_withdrawal()
        if self._shown is None or self._shown.generation != preview.generation:
            self._shown = _Shown(preview.generation)
        parts = self._shown.parts
        if not parts or parts[-1].block < preview.block:
            yield from self._step()
            yield from self._close(parts)
            part = _Part(f"{preview.generation}.{preview.block}", preview.block, preview.channel)
            parts.append(part)
            yield _text(part, "start")
        elif parts[-1].block > preview.block:
            return  # it goes back to a block that was left: the commit says where it belongs
        yield from _more(parts[-1], preview.text)

    def tell(
        self,
        event: DurableEvent,
        *,
        message: Message | None = None,
        calls: Mapping[CallId, Call] | None = None,
        failure: AntiphonError | None = None,
    ) -> Iterator[Chunk]:
        """Take a durable event.

        Args:
            event: The next one.
            message: The message of a commit.
            calls: The calls of the run, where the event is about some.
            failure: What went wrong, where the run ended in an error.
        """
        if self.over or getattr(event, "run", None) != self._run:
            return
        if self._withdrawn is not None and not _cancels(event):
            yield from self._settle_withdrawal()
        match event:
            case Committed() if message is not None:
                yield from self._commit(event, message, calls or {})
            case Withdrawn():
                self._gone = max(self._gone, event.generation)
                if self._shown is not None and self._shown.generation <= event.generation:
                    self._withdrawn = event
            case CallChanged(call=call, state=state) if state in TERMINAL_CALL:
                yield from self._called((calls or {})[call])
            case ResultsPlaced():
                yield from self._end_step()
            case RunChanged(status=status, code=code):
                yield from self._changed(status, code, calls or {}, failure)
            case _:
                pass

    def fail(self, error: AntiphonError) -> Iterator[Chunk]:
        """Say that nobody knows how it ended; the stream breaks off here, and the run does not."""
        self.over = True
        yield self._state(RunStatus.UNKNOWN, error.code)
        yield {"type": "error", "errorText": error.message}

    # What is shown.

    def _step(self) -> Iterator[Chunk]:
        if not self._in_step:
            self._in_step = True
            yield {"type": "start-step"}

    def _end_step(self) -> Iterator[Chunk]:
        if self._in_step:
            self._in_step = False
            yield {"type": "finish-step"}

    def _close(self, parts: list[_Part]) -> Iterator[Chunk]:
        if parts and not parts[-1].closed:
            parts[-1].closed = True
            yield _text(parts[-1], "end")

    def _settle_withdrawal(self) -> Iterator[Chunk]:
        """Take back what was shown, and say why."""
        gone, self._withdrawn = self._withdrawn, None
        if gone is not None:
            self._shown = None
            yield {"type": "reset-step"}
            told = {"generation": gone.generation, "reason": gone.reason}
            yield {"type": "data-antiphon-withdrawn", "data": told, "transient": True}

    # What is true.

    def _commit(
        self, event: Committed, message: Message, calls: Mapping[CallId, Call]
    ) -> Iterator[Chunk]:
        shown = self._shown.parts if self._shown is not None else []
        self._gone, self._shown = max(self._gone, event.generation), None
        yield from self._step()
        said = _said(message)
        if shown and not _fits(shown, said):
            yield {"type": "reset-step"}  # what was shown stands elsewhere now
            shown = []
        waiting = list(shown)
        for number, block in enumerate(message.blocks):
            match block:
                case Text() | Reasoning() | Refusal() if block.text:
                    if waiting:
                        part = waiting.pop(0)
                        yield from _more(part, block.text[len(part.text) :])
                    else:
                        part = _Part(f"{event.generation}.c{number}", number, _channel(block))
                        yield _text(part, "start")
                        yield from _more(part, block.text)
                    yield from self._close([part])
                case ToolCall():
                    yield from self._asked(block, calls.get(block.call_id))
                case _:
                    pass
        if not message.calls:
            yield from self._end_step()

    def _asked(self, block: ToolCall, call: Call | None) -> Iterator[Chunk]:
        self._told.add(block.call_id)
        chunk: Chunk = {
            "type": "tool-input-available",
            "toolCallId": block.call_id,
            "toolName": block.name,
            "input": _read(block.arguments),
        }
        if call is not None and call.runner is Runner.FUNCTION:
            chunk["providerExecuted"] = True  # nothing that the page has to carry out
        yield chunk

    def _called(self, call: Call) -> Iterator[Chunk]:
        own: Chunk = {"toolCallId": call.call_id}
        if call.runner is Runner.FUNCTION:
            own["providerExecuted"] = True
        text = "".join(block.text for block in call.content if isinstance(block, Text))
        if call.code == REFUSED:
            if call.call_id in self._told:  # by this stream, so that it does not know the refusal
                yield from _approval(call.call_id)
                approval = {"approvalId": call.call_id, "approved": False}
                yield {"type": "tool-approval-response", **approval}
            yield {"type": "tool-output-denied", "toolCallId": call.call_id}
        elif call.state is CallState.SUCCESS:
            yield {"type": "tool-output-available", **own, "output": text}
        else:
            yield {"type": "tool-output-error", **own, "errorText": text or call.code or "error"}

    # How it ends.

    def _changed(
        self,
        status: RunStatus,
        code: str | None,
        calls: Mapping[CallId, Call],
        failure: AntiphonError | None,
    ) -> Iterator[Chunk]:
        match status:
            case RunStatus.QUEUED | RunStatus.PENDING | RunStatus.UNKNOWN:
                yield self._state(status, code)
            case RunStatus.WAITING:
                if code == APPROVAL_REQUIRED:
                    for call in calls.values():
                        if call.approval is Approval.NEEDED and call.state is CallState.PENDING:
                            yield from _approval(call.call_id)
                yield self._state(status, code)
                yield from self._finish(status, code, "tool-calls")
            case RunStatus.SUCCESS:
                yield from self._finish(status, code, FINISH.get(code or "", "stop"))
            case RunStatus.CANCELED:
                yield from self._close(self._shown.parts if self._shown is not None else [])
                yield from self._end_step()
                yield {"type": "message-metadata", "messageMetadata": self._metadata(status, code)}
                yield {"type": "abort", "reason": code or "canceled"}
                self.over = self.whole = True
            case RunStatus.ERROR:
                told = failure or run_error(self._run, status, code)
                yield {"type": "error", "errorText": told.message}
                yield from self._finish(status, code, FINISH.get(code or "", "error"))

    def _finish(self, status: RunStatus, code: str | None, reason: str) -> Iterator[Chunk]:
        yield from self._end_step()
        metadata = self._metadata(status, code)
        yield {"type": "finish", "finishReason": reason, "messageMetadata": metadata}
        self.over = self.whole = True

    def _metadata(self, status: RunStatus, code: str | None) -> Chunk:
        return {"antiphon": {**self._about, "status": status, "code": code}}

    def _state(self, status: RunStatus, code: str | None) -> Chunk:
        """How the run is, for a page that shows it: no part of the message."""
        data = {"run": self._run, "status": status, "code": code}
        return {"type": "data-antiphon-run", "data": data, "transient": True}


def _cancels(event: DurableEvent) -> bool:
    """Whether what was shown stays on the screen: a person stopped it, and it is kept as that."""
    return isinstance(event, RunChanged) and event.status is RunStatus.CANCELED


_KINDS: Final = {Channel.TEXT: "text", Channel.REASONING: "reasoning", Channel.REFUSAL: "text"}


def _text(part: _Part, what: str) -> Chunk:
    return {"type": f"{_KINDS[part.channel]}-{what}", "id": part.id}


def _more(part: _Part, text: str) -> Iterator[Chunk]:
    if text:
        part.text += text
        yield {**_text(part, "delta"), "delta": text}


def _approval(call: CallId) -> Iterator[Chunk]:
    yield {"type": "tool-approval-request", "approvalId": call, "toolCallId": call}


def _channel(block: Text | Reasoning | Refusal) -> Channel:
    match block:
        case Text():
            return Channel.TEXT
        case Reasoning():
            return Channel.REASONING
        case Refusal():
            return Channel.REFUSAL


def _said(message: Message) -> list[tuple[Channel, str]]:
    return [
        (_channel(block), block.text)
        for block in message.blocks
        if isinstance(block, Text | Reasoning | Refusal) and block.text
    ]


def _fits(shown: list[_Part], said: list[tuple[Channel, str]]) -> bool:
    """Whether what was committed begins with what was shown, part by part."""
    return len(shown) <= len(said) and all(
        part.channel is channel
        and (text == part.text if part.closed else text.startswith(part.text))
        for part, (channel, text) in zip(shown, said, strict=False)
    )


def _read(arguments: str) -> Any:  # noqa: ANN401 - whatever JSON it is
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments
