"""Reads answers of Ollama's chat API, streamed or whole: lines in, deltas out.

Each line is an object of one form, and the last one says `done`; a whole answer is such a line
alone. A call comes whole, in one line, and is an object already. The model's thinking is kept
with the name of the model, since only that one is told it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from antiphon.adapters.json_text import decode_lenient, is_cut
from antiphon.adapters.openai_chat.errors import stream_failure
from antiphon.core.answers.deltas import (
    ArgumentsDelta,
    BlockStopped,
    CallOpened,
    Channel,
    Delta,
    Ended,
    Failed,
    Finished,
    Meaning,
    Note,
    OpaqueState,
    TextDelta,
    Usage,
)
from antiphon.core.blocks import WHOEVER, Opaque
from antiphon.core.wire.events import Broken, Event
from antiphon.core.wire.limits import DEFAULT_LIMITS, Limits
from antiphon.core.wire.lines import LineStream

PROFILE: Final = "ollama"
LINES: Final = "application/x-ndjson"
THOUGHT: Final = msgspec.Raw(b"{}")
"""The state of thinking: nothing but whose it is. Its words stand beside it."""

THINKING, TEXT, CALLS = 0, 1, 2
"""Blocks of an answer; calls take the numbers from the last one on."""

DONE: Final[Mapping[str, Meaning]] = {
    "stop": Meaning.COMPLETE,
    "length": Meaning.TRUNCATED,
    # The model was loaded, or put away, and nobody was answered.
    "load": Meaning.ERROR,
    "unload": Meaning.ERROR,
}


class _Function(msgspec.Struct):
    name: str = ""
    arguments: msgspec.Raw = msgspec.Raw(b"")


class _Call(msgspec.Struct):
    id: str = ""
    function: _Function = msgspec.field(default_factory=_Function)


class _Message(msgspec.Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[_Call] | None = None


class _Line(msgspec.Struct):
    """Any line of an answer."""

    model: str = ""
    message: _Message | None = None
    done: bool = False
    done_reason: str | None = None
    prompt_eval_count: int | None = None
    eval_count: int | None = None
    error: Any = None


_line: Final = msgspec.json.Decoder(_Line)


class Reader:
    """Reads one answer. Feed it the body as it comes, then say `end`."""

    def __init__(self, content_type: str = LINES, limits: Limits = DEFAULT_LIMITS) -> None:
        self._media_type = content_type.partition(";")[0].strip().lower()
        self._lines = LineStream(limits.max_event_bytes)
        self._thought = False
        self._calls = 0
        self._closed = False

    def feed(self, data: bytes) -> list[Delta]:
        """Return what these bytes say. Where they were cut makes no difference."""
        return [] if self._closed else self._read(self._lines.feed(data))

    def end(self) -> list[Delta]:
        """Return what the end of the body says."""
        if self._closed:
            return []
        deltas = self._read(self._lines.end())
        self._closed = True
        return deltas

    def _read(self, framed: Sequence[Event | Broken]) -> list[Delta]:
        deltas: list[Delta] = []
        for item in framed:
            if isinstance(item, Broken):
                self._fail(deltas, item.code, item.message)
            else:
                self._event(item, deltas)
            if self._closed:
                break
        return deltas

    def _event(self, event: Event, deltas: list[Delta]) -> None:
        try:
            said = decode_lenient(_line, event.data)
        except ValueError as error:
            if event.unterminated and is_cut(event.data, error):
                return  # half a line is a cut, and the missing end will say so
            what = f"The answer is {self._media_type or 'no JSON'}, or a line of it is broken"
            self._fail(deltas, "malformed_event", f"{what}: {error}")
            return
        if said.error is not None:
            deltas.append(stream_failure(said.error))
            self._closed = True
            return
        if said.message is not None:
            self._message(said.message, deltas)
        if said.done:
            self._finish(said, deltas)
        elif said.message is None:
            deltas.append(Note("unknown_event"))

    def _message(self, message: _Message, deltas: list[Delta]) -> None:
        if message.thinking:
            self._thought = True
            deltas.append(TextDelta(THINKING, Channel.REASONING, message.thinking))
        if message.content:
            deltas.append(TextDelta(TEXT, Channel.TEXT, message.content))
        for call in message.tool_calls or ():
            block = CALLS + self._calls
            self._calls += 1
            opened = CallOpened(block, call.id or None, call.function.name or None, needs_stop=True)
            arguments = bytes(call.function.arguments).decode()
            deltas += (opened, ArgumentsDelta(block, arguments), BlockStopped(block))

    def _finish(self, said: _Line, deltas: list[Delta]) -> None:
        if self._thought:
            kept = Opaque(profile=PROFILE, value=THOUGHT, model=said.model or WHOEVER)
            deltas.append(OpaqueState(THINKING, kept))
        given, made = said.prompt_eval_count, said.eval_count
        if given is not None or made is not None:
            total = None if given is None or made is None else given + made
            deltas.append(Usage(input=given, output=made, total=total))
        word = said.done_reason
        if word:
            deltas.append(Finished(word, DONE.get(word, Meaning.UNKNOWN)))
        deltas.append(Ended())
        self._closed = True

    def _fail(self, deltas: list[Delta], code: str, message: str) -> None:
        deltas.append(Failed(code, message, retryable=code != "event_too_large", definite=False))
        self._closed = True
