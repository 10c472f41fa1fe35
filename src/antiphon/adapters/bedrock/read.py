"""Reads answers of Bedrock Converse, streamed or whole: frames in, deltas out.

Blocks are numbered, and each is closed by itself; those of text and reasoning begin without
being opened. The answer has ended with `messageStop`. The usage comes behind it, so a stream
that is cut there has lost nothing else. Reasoning goes back with the signature that it came
with, and so does what the provider did by itself, such as a search with what it found.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, assert_never

import msgspec

from antiphon.adapters.bedrock.errors import stream_failure
from antiphon.adapters.json_text import decode_lenient, is_cut
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
from antiphon.core.wire.body import Body
from antiphon.core.wire.events import Broken, Event, Whole
from antiphon.core.wire.frames import MEDIA_TYPE, Frame, FrameStream
from antiphon.core.wire.limits import DEFAULT_LIMITS, Limits

PROFILE: Final = "bedrock"
JSON: Final = "application/json"
SERVER_TOOL: Final = "server_tool_use"

STOP: Final[Mapping[str, Meaning]] = {
    "end_turn": Meaning.COMPLETE,
    "stop_sequence": Meaning.COMPLETE,
    "tool_use": Meaning.NEEDS_TOOL,
    "max_tokens": Meaning.TRUNCATED,
    "model_context_window_exceeded": Meaning.TRUNCATED,
    "guardrail_intervened": Meaning.FILTERED,
    "content_filtered": Meaning.FILTERED,
    "malformed_tool_use": Meaning.ERROR,
    "malformed_model_output": Meaning.ERROR,
}

Framed: TypeAlias = Frame | Event | Whole | Broken


class _Tokens(msgspec.Struct, rename="camel"):
    input_tokens: int | None = None
    output_tokens: int | None = None
    total_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_write_input_tokens: int | None = None


class _Input(msgspec.Struct):
    input: str = ""


class _Thought(msgspec.Struct, rename="camel"):
    text: str = ""
    signature: str = ""
    redacted_content: str = ""


class _Delta(msgspec.Struct, rename="camel"):
    text: str | None = None
    tool_use: _Input | None = None
    reasoning_content: _Thought | None = None
    tool_result: list[msgspec.Raw] | None = None
    citation: Any = None


class _Use(msgspec.Struct, rename="camel"):
    tool_use_id: str = ""
    name: str = ""
    type: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _Start(msgspec.Struct, rename="camel"):
    tool_use: _Use | None = None
    tool_result: dict[str, msgspec.Raw] | None = None


class _Event(msgspec.Struct, rename="camel"):
    """Any event of a stream: its fields are those of its type."""

    content_block_index: int = 0
    start: _Start | None = None
    delta: _Delta | None = None
    stop_reason: str | None = None
    usage: Any = None


class _Reasoning(msgspec.Struct, rename="camel"):
    reasoning_text: _Thought | None = None
    redacted_content: str | None = None


class _Cited(msgspec.Struct):
    text: str = ""


class _Citations(msgspec.Struct):
    content: list[_Cited] = []


class _Part(msgspec.Struct, rename="camel"):
    """A block of a whole answer."""

    text: str | None = None
    tool_use: _Use | None = None
    reasoning_content: _Reasoning | None = None
    tool_result: Any = None
    citations_content: _Citations | None = None


class _Message(msgspec.Struct):
    content: list[msgspec.Raw]


class _Output(msgspec.Struct):
    message: _Message | None = None


class _Answer(msgspec.Struct, rename="camel"):
    """The one object of a whole answer."""

    output: _Output | None = None
    stop_reason: str | None = None
    usage: Any = None


@dataclass(slots=True)
class _Block:
    """A block that is still open, and goes back as it came, or is a call."""

    use: _Use | None = None
    result: dict[str, msgspec.Raw] | None = None
    signature: str = ""
    redacted: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)  # of the JSON of its input
    found: list[msgspec.Raw] = field(default_factory=list)  # of what the provider's tool found

    @property
    def is_call(self) -> bool:
        """Whether it is a call for us to carry out."""
        return self.use is not None and self.use.type != SERVER_TOOL


_event: Final = msgspec.json.Decoder(_Event)
_answer: Final = msgspec.json.Decoder(_Answer)
_part: Final = msgspec.json.Decoder(_Part)
_encode: Final = msgspec.json.Encoder().encode


class Reader:
    """Reads one answer. Feed it the body as it comes, then say `end`."""

    def __init__(self, content_type: str = MEDIA_TYPE, limits: Limits = DEFAULT_LIMITS) -> None:
        media_type = content_type.partition(";")[0].strip().lower()
        # No frame is longer than its first byte allows, and no JSON text begins like one.
        self._whole_type = JSON if media_type in ("", MEDIA_TYPE) else content_type
        self._limits = limits
        self._body: FrameStream | Body | None = None
        self._open: dict[int, _Block] = {}
        self._finished = False
        self._closed = False

    def feed(self, data: bytes) -> list[Delta]:
        """Return what these bytes say. Where they were cut makes no difference."""
        if self._closed or not data:
            return []
        if self._body is None:
            framed = data[0] <= 1
            self._body = (
                FrameStream(self._limits.max_event_bytes)
                if framed
                else Body(self._whole_type, self._limits)
            )
        return self._read(self._body.feed(data))

    def end(self) -> list[Delta]:
        """Return what the end of the body says."""
        if self._closed:
            return []
        deltas = [] if self._body is None else self._read(self._body.end())
        self._closed = True
        return deltas

    def _read(self, framed: Sequence[Framed]) -> list[Delta]:
        deltas: list[Delta] = []
        for item in framed:
            match item:
                case Frame():
                    self._frame(item, deltas)
                case Whole(data):
                    self._whole(data, deltas)
                case Event():
                    self._fail(deltas, "malformed_event", "The answer is a stream of another API.")
                case Broken("stream_incomplete") if self._finished:
                    deltas.append(Note("cut_after_finish"))
                case Broken(code, message):
                    self._fail(deltas, code, message)
                case _:
                    assert_never(item)
            if self._closed:
                break
        return deltas

    def _frame(self, frame: Frame, deltas: list[Delta]) -> None:
        headers = frame.headers
        match headers.get(":message-type"):
            case "event":
                self._event(headers.get(":event-type", ""), frame.payload, deltas)
            case "exception":
                deltas.append(stream_failure(headers.get(":exception-type", ""), frame.payload))
                self._closed = True
            case "error":
                said = _encode({"message": headers.get(":error-message", "")})
                deltas.append(stream_failure(headers.get(":error-code", ""), said))
                self._closed = True
            case _:
                self._fail(deltas, "malformed_event", "A frame does not say what it is.")

    def _event(self, kind: str, payload: bytes, deltas: list[Delta]) -> None:
        try:
            said = decode_lenient(_event, payload)
        except ValueError as error:
            self._fail(deltas, "malformed_event", f"An event cannot be read: {error}")
            return
        match kind:
            case "contentBlockDelta":
                if said.delta is not None:
                    self._add(said.content_block_index, said.delta, deltas)
            case "contentBlockStart":
                if said.start is not None:
                    self._begin(said.content_block_index, said.start, deltas)
            case "contentBlockStop":
                self._stop(said.content_block_index, deltas)
            case "messageStop":
                self._finish(said.stop_reason, deltas)
            case "metadata":
                self._count(said.usage, deltas)
                deltas.append(Ended())
                self._closed = True
            case "messageStart":
                pass
            case _:
                deltas.append(Note("unknown_event"))

    def _whole(self, data: bytes, deltas: list[Delta]) -> None:
        try:
            said = decode_lenient(_answer, data)
            message = None if said.output is None else said.output.message
            parts = [] if message is None else [decode_lenient(_part, p) for p in message.content]
        except ValueError as error:
            code = "stream_incomplete" if is_cut(data, error) else "malformed_event"
            self._fail(deltas, code, f"The answer cannot be read: {error}")
            return
        if message is None:
            self._fail(deltas, "malformed_event", "The answer holds no message.")
            return
        for number, (raw, part) in enumerate(zip(message.content, parts, strict=True)):
            self._at_once(number, raw, part, deltas)
            if self._closed:
                return
        self._count(said.usage, deltas)
        self._finish(said.stop_reason, deltas)
        deltas.append(Ended())
        self._closed = True

    def _finish(self, word: str | None, deltas: list[Delta]) -> None:
        """The message has ended; what still comes is the usage."""
        if any(not block.is_call for block in self._open.values()):
            self._fail(deltas, "malformed_event", "The answer ended inside a block.")
        elif word:
            deltas.append(Finished(word, STOP.get(word, Meaning.UNKNOWN)))
            self._finished = True

    # Blocks.

    def _begin(self, index: int, start: _Start, deltas: list[Delta]) -> None:
        if index in self._open:
            self._fail(deltas, "malformed_event", f"Block {index} was opened twice.")
            return
        if start.tool_use is None and start.tool_result is None:
            self._fail(deltas, "malformed_event", f"Nobody knows what block {index} is.")
            return
        block = _Block(use=start.tool_use, result=start.tool_result)
        self._open[index] = block
        if block.is_call and block.use is not None:
            call_id, name = block.use.tool_use_id or None, block.use.name or None
            deltas.append(CallOpened(index, call_id, name, needs_stop=True))

    def _add(self, index: int, delta: _Delta, deltas: list[Delta]) -> None:
        block = self._open.get(index)
        match delta:
            case _Delta(text=str(text)):
                deltas.append(TextDelta(index, Channel.TEXT, text))
            case _Delta(tool_use=_Input(piece)):
                if block is not None and not block.is_call:
                    block.pieces.append(piece)
                else:
                    deltas.append(ArgumentsDelta(index, piece))
            case _Delta(reasoning_content=_Thought() as thought):
                self._think(index, thought, deltas)
            case _Delta(tool_result=list(found)) if block is not None and block.result is not None:
                block.found += found
            case _Delta(citation=dict()):
                deltas.append(Note("skipped_delta"))
            case _:
                self._fail(deltas, "malformed_event", f"Nobody knows what was added to {index}.")

    def _think(self, index: int, thought: _Thought, deltas: list[Delta]) -> None:
        block = self._open.setdefault(index, _Block())
        if thought.text:
            deltas.append(TextDelta(index, Channel.REASONING, thought.text))
        block.signature += thought.signature
        if thought.redacted_content:
            block.redacted.append(thought.redacted_content)

    def _stop(self, index: int, deltas: list[Delta]) -> None:
        block = self._open.pop(index, None)
        if block is None:
            return  # of text
        kept = None if block.is_call else self._kept(block, deltas)
        if kept is not None:
            work = block.use is not None or block.result is not None
            value = msgspec.Raw(_encode(kept))
            opaque = Opaque(profile=PROFILE, value=value, model=WHOEVER, work=work)
            deltas.append(OpaqueState(index, opaque))
        deltas.append(BlockStopped(index))

    def _kept(self, block: _Block, deltas: list[Delta]) -> dict[str, object] | None:
        """Return what has to go back of a block: never its words, which stand beside it."""
        if block.use is not None:
            text = "".join(block.pieces).encode() or bytes(block.use.input)
            try:
                msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            except ValueError:
                self._fail(
                    deltas, "malformed_event", "The input of the provider's own tool is cut."
                )
                return None
            use = {"toolUseId": block.use.tool_use_id, "name": block.use.name}
            return {"toolUse": {**use, "input": msgspec.Raw(text), "type": block.use.type}}
        if block.result is not None:
            return {"toolResult": {**block.result, "content": block.found}}
        if block.redacted:
            return {"redactedContent": _joined(block.redacted)}
        return {"reasoningText": {"signature": block.signature}} if block.signature else None

    def _at_once(self, index: int, raw: msgspec.Raw, part: _Part, deltas: list[Delta]) -> None:
        """One block of a whole answer, as the stream would have told it."""
        match part:
            case _Part(text=str(text)):
                deltas.append(TextDelta(index, Channel.TEXT, text))
            case _Part(tool_use=_Use() as use):
                self._begin(index, _Start(tool_use=use), deltas)
                if self._open[index].is_call:
                    deltas.append(ArgumentsDelta(index, bytes(use.input).decode()))
                self._stop(index, deltas)
            case _Part(reasoning_content=_Reasoning(thought, redacted)):
                self._think(index, thought or _Thought(redacted_content=redacted or ""), deltas)
                self._stop(index, deltas)
            case _Part(tool_result=dict()):
                opaque = Opaque(profile=PROFILE, value=msgspec.Raw(bytes(raw)), work=True)
                deltas.append(OpaqueState(index, opaque))
            case _Part(citations_content=_Citations(content)):
                deltas += (TextDelta(index, Channel.TEXT, said.text) for said in content)
            case _:
                self._fail(deltas, "malformed_event", f"Nobody knows what block {index} is.")

    # Around them.

    def _count(self, usage: object, deltas: list[Delta]) -> None:
        if usage is None:
            return
        try:
            tokens = msgspec.convert(usage, _Tokens, strict=False)
        except msgspec.ValidationError:
            deltas.append(Note("unreadable_usage"))
            return
        deltas.append(
            Usage(
                input=tokens.input_tokens,
                output=tokens.output_tokens,
                total=tokens.total_tokens,
                cached=tokens.cache_read_input_tokens,
                cache_write=tokens.cache_write_input_tokens,
                cache_apart=True,
            )
        )

    def _fail(self, deltas: list[Delta], code: str, message: str) -> None:
        deltas.append(Failed(code, message, retryable=code != "event_too_large", definite=False))
        self._closed = True


def _joined(pieces: Sequence[str]) -> str:
    """Return base64 that came in pieces as one: each of them is padded by itself."""
    if len(pieces) == 1:
        return pieces[0]
    try:
        whole = b"".join(base64.b64decode(piece, validate=True) for piece in pieces)
    except binascii.Error:
        return "".join(pieces)
    return base64.b64encode(whole).decode()
