"""Reads answers of Anthropic Messages, streamed or whole: events in, deltas out.

The dialect numbers its blocks and closes each by itself; the answer has ended when a stop
reason was told and `message_stop` followed it. What an event is stands in its data, since
relays leave out the event line. Blocks that people do not read go back byte for byte: thinking
with its signature, and what the provider did by itself, such as a search with what it found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from antiphon.adapters.answers import AnswerReader
from antiphon.adapters.anthropic.errors import stream_failure
from antiphon.adapters.anthropic.parts import CITATIONS
from antiphon.adapters.json_text import decode_lenient
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
    Opened,
    TextDelta,
    Usage,
)
from antiphon.core.blocks import Opaque
from antiphon.core.wire.body import EVENT_STREAM
from antiphon.core.wire.events import Event
from antiphon.core.wire.limits import DEFAULT_LIMITS, Limits

PROFILE: Final = "anthropic"

STOP: Final[Mapping[str, Meaning]] = {
    "end_turn": Meaning.COMPLETE,
    "stop_sequence": Meaning.COMPLETE,
    "tool_use": Meaning.NEEDS_TOOL,
    "pause_turn": Meaning.PAUSED,
    "compaction": Meaning.PAUSED,  # older talk was summarized; it answers what is sent back behind that
    "max_tokens": Meaning.TRUNCATED,
    "model_context_window_exceeded": Meaning.TRUNCATED,
    "refusal": Meaning.FILTERED,
}

THINKING: Final = frozenset({"thinking", "redacted_thinking"})

Json: TypeAlias = dict[str, Any]


class _Details(msgspec.Struct):
    thinking_tokens: int | None = None


class _Tokens(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: _Details | None = None


class _Delta(msgspec.Struct):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    thinking: str = ""
    signature: str = ""
    citation: msgspec.Raw = msgspec.Raw(b"null")
    content: msgspec.Raw = msgspec.Raw(b"null")
    encrypted_content: msgspec.Raw = msgspec.Raw(b"null")
    stop_reason: str | None = None


class _Message(msgspec.Struct):
    id: str = ""
    model: str = ""
    usage: Any = None


class _Event(msgspec.Struct):
    """Any event of a stream: its fields are those of its type."""

    type: str = ""
    index: int = 0
    message: _Message | str | None = None
    content_block: msgspec.Raw = msgspec.Raw(b"{}")
    delta: _Delta | None = None
    usage: Any = None
    error: Any = None


class _Answer(msgspec.Struct):
    """The one object of a whole answer, or of an error."""

    type: str = ""
    id: str = ""
    model: str = ""
    content: list[msgspec.Raw] | None = None
    stop_reason: str | None = None
    usage: Any = None
    error: Any = None


class _Begun(msgspec.Struct):
    """What a block says when it begins. `input` is kept as it is spelled."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    signature: str = ""
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"{}")
    citations: list[msgspec.Raw] | None = None


@dataclass(slots=True)
class _Block:
    """A block that is still open."""

    type: str
    number: int  # ours: what a text cites stands behind it, as a block of its own
    raw: bytes
    begun: _Begun
    signature: str
    citations: list[msgspec.Raw]
    said: bool = False  # whether any text has come
    pieces: list[str] = field(default_factory=list)  # of the JSON of its input
    more: dict[str, msgspec.Raw] = field(default_factory=dict)  # what it was filled with, whole

    @property
    def is_call(self) -> bool:
        """Whether it is a call for us to carry out."""
        return self.type == "tool_use"

    @property
    def keeps(self) -> bool:
        """Whether it goes back as it came."""
        return self.type not in ("tool_use", "text")


_event: Final = msgspec.json.Decoder(_Event)
_answer: Final = msgspec.json.Decoder(_Answer)
_begun: Final = msgspec.json.Decoder(_Begun)
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode


class Reader(AnswerReader):
    """Reads one answer. Feed it the body as it comes, then say `end`."""

    def __init__(self, content_type: str = EVENT_STREAM, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(content_type, limits)
        self._handle: str | None = None
        self._model: str | None = None
        self._started = False
        self._open: dict[int, _Block] = {}
        self._stopped: set[int] = set()
        self._cited = 0  # how many blocks of ours came in between
        self._tokens = _Tokens()
        self._word: str | None = None

    def _event(self, event: Event, deltas: list[Delta]) -> None:
        try:
            said = decode_lenient(_event, event.data)
        except ValueError as error:
            self._no_event(event, error, deltas)
            return
        if event.unterminated:
            deltas.append(Note("unterminated_event"))
        kind = said.type or event.name
        match kind:
            case "content_block_delta":
                if said.delta is not None:
                    self._add(said.index, said.delta, deltas)
            case "content_block_start":
                self._begin(said.index, bytes(said.content_block), deltas)
            case "content_block_stop":
                self._stop(said.index, deltas)
            case "message_start":
                if isinstance(said.message, _Message):
                    self._start(said.message, deltas)
            case "message_delta":
                if said.delta is not None and said.delta.stop_reason:
                    self._word = said.delta.stop_reason
                self._count(said.usage, deltas)
            case "message_stop":
                self._finish(deltas)
            case "ping":
                pass
            case _ if kind == "error" or said.error is not None:
                deltas.append(stream_failure(said.error or said.message))
                self._closed = True
            case _:
                deltas.append(Note("unknown_event"))

    def _failure(self, error: object) -> Failed:
        return stream_failure(error)

    def _whole(self, data: bytes, deltas: list[Delta]) -> None:
        said = self._read_whole(_answer, data, deltas)
        if said is None:
            return
        if said.error is not None:
            deltas.append(stream_failure(said.error))
            self._closed = True
            return
        if said.content is None:
            self._fail(deltas, "malformed_event", "The answer holds no content.")
            return
        self._start(_Message(said.id, said.model), deltas)
        for number, block in enumerate(said.content):
            self._begin(number, bytes(block), deltas)
            self._stop(number, deltas)
            if self._closed:
                return
        self._word = said.stop_reason
        self._count(said.usage, deltas)
        self._finish(deltas)

    def _start(self, message: _Message, deltas: list[Delta]) -> None:
        """Take the head of the answer. It has one, which some gateways send twice.

        Another one is that of another answer: so a relay that lost its provider and asked
        again goes on in the same stream.
        """
        if self._started and (message.id or None) != self._handle:
            self._fail(deltas, "malformed_event", "The stream changed to another answer.")
            return
        if self._started:
            deltas.append(Note("repeated_message_start"))
        elif message.id:
            self._handle = message.id
            deltas.append(Opened(message.id))
        self._started = True
        self._model = message.model or None
        if message.usage is not None:
            self._count(message.usage, [])  # what was asked; told with what was answered

    def _finish(self, deltas: list[Delta]) -> None:
        """The last event of a message: only now is the stop reason an end."""
        if any(block.keeps for block in self._open.values()):
            self._fail(deltas, "malformed_event", "The answer ended inside a block.")
            return
        if self._word is not None:
            deltas.append(Finished(self._word, STOP.get(self._word, Meaning.UNKNOWN)))
        deltas.append(Ended())
        self._closed = True

    # Blocks.

    def _begin(self, index: int, raw: bytes, deltas: list[Delta]) -> None:
        try:
            begun = decode_lenient(_begun, raw)
        except ValueError as error:
            self._fail(deltas, "malformed_event", f"A block cannot be read: {error}")
            return
        number = index + self._cited
        cited, said = begun.citations or [], bool(begun.text)
        block = _Block(begun.type, number, raw, begun, begun.signature, cited, said)
        if index in self._open or index in self._stopped:
            self._fail(deltas, "malformed_event", f"Block {index} was opened twice.")
            return
        self._open[index] = block
        if block.is_call:
            deltas.append(CallOpened(number, begun.id or None, begun.name, needs_stop=True))
        elif begun.type == "text" and begun.text:
            deltas.append(TextDelta(number, Channel.TEXT, begun.text))
        elif begun.type == "thinking" and begun.thinking:
            deltas.append(TextDelta(number, Channel.REASONING, begun.thinking))

    def _add(self, index: int, delta: _Delta, deltas: list[Delta]) -> None:
        block = self._open.get(index)
        number = index + self._cited if block is None else block.number
        match delta.type:
            case "text_delta":
                if block is None:
                    deltas.append(Note("missing_block_start"))
                else:
                    block.said = block.said or bool(delta.text)
                deltas.append(TextDelta(number, Channel.TEXT, delta.text))
            case "input_json_delta":
                if block is not None:
                    block.pieces.append(delta.partial_json)
                if block is None or not block.keeps:
                    deltas.append(ArgumentsDelta(number, delta.partial_json))
            case "thinking_delta":
                deltas.append(TextDelta(number, Channel.REASONING, delta.thinking))
            case "signature_delta":
                if block is not None:
                    block.signature += delta.signature
            case "compaction_delta" if block is not None and block.type == "compaction":
                self._compact(block, delta, deltas)
            case "citations_delta" if block is not None and block.type == "text":
                block.citations.append(delta.citation)
            case _ if block is None or not block.keeps:
                deltas.append(Note("skipped_delta"))
            case kind:
                self._fail(
                    deltas, "malformed_event", f"Nobody knows what {kind!r} adds to a block."
                )

    def _compact(self, block: _Block, delta: _Delta, deltas: list[Delta]) -> None:
        """Take the summary that a block of compaction is filled with: it comes whole."""
        told = {"content": delta.content, "encrypted_content": delta.encrypted_content}
        told = {name: raw for name, raw in told.items() if bytes(raw) != b"null"}
        if told.keys() & block.more.keys():
            self._fail(deltas, "malformed_event", "The summary of a compaction came twice.")
        block.more |= told

    def _stop(self, index: int, deltas: list[Delta]) -> None:
        block = self._open.pop(index, None)
        if block is None:
            deltas.append(Note("missing_block_start"))
            return
        self._stopped.add(index)
        if block.is_call:
            self._stop_call(block, deltas)
        elif block.keeps:
            self._keep(block, deltas)
        elif block.citations:
            self._cite(block, deltas)

    def _cite(self, block: _Block, deltas: list[Delta]) -> None:
        """Pass on what a text cites, behind it. It goes back with the text."""
        if self._open or not block.said:  # the number behind it is another's, or nothing cites it
            deltas.append(Note("citations_dropped"))
            return
        self._cited += 1
        value = _encode({"type": CITATIONS, "citations": block.citations})
        kept = Opaque(profile=PROFILE, value=msgspec.Raw(value))
        deltas += (OpaqueState(block.number + 1, kept), BlockStopped(block.number + 1))

    def _stop_call(self, block: _Block, deltas: list[Delta]) -> None:
        at_once = bytes(block.begun.input)
        if not any(block.pieces) and at_once not in (b"{}", b"null"):
            deltas.append(ArgumentsDelta(block.number, at_once.decode()))  # whole, with the opening
        deltas.append(BlockStopped(block.number))

    def _keep(self, block: _Block, deltas: list[Delta]) -> None:
        """Pass on what has to go back. Thinking without its signature never may."""
        value: bytes | None = block.raw
        if block.type == "thinking":
            value = _encode({"type": "thinking", "signature": block.signature})
            if not block.signature:
                deltas.append(Note("missing_signature"))
                value = None
        elif any(block.pieces):
            value = self._with_input(block, deltas)
        elif block.type == "compaction":
            if block.signature:
                block.more["signature"] = msgspec.Raw(_encode(block.signature))
            if block.more:
                value = _encode(_members.decode(block.raw) | block.more)
        if value is not None:
            work = block.type not in THINKING
            kept = Opaque(profile=PROFILE, value=msgspec.Raw(value), model=self._model, work=work)
            deltas.append(OpaqueState(block.number, kept))
        deltas.append(BlockStopped(block.number))

    def _with_input(self, block: _Block, deltas: list[Delta]) -> bytes | None:
        """Return a block with the input that came in pieces, every other field as it was."""
        text = "".join(block.pieces).encode()
        try:
            msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except ValueError:
            self._fail(deltas, "malformed_event", "The input of the provider's own tool is cut.")
            return None
        return _encode({**_members.decode(block.raw), "input": msgspec.Raw(text)})

    # Around them.

    def _count(self, usage: object, deltas: list[Delta]) -> None:
        """Take the counts so far: each replaces the one before, none is added."""
        if usage is None:
            return
        try:
            told = msgspec.convert(usage, _Tokens, strict=False)
        except msgspec.ValidationError:
            deltas.append(Note("unreadable_usage"))
            return
        for name in _Tokens.__struct_fields__:
            value = getattr(told, name)
            if value is not None:
                setattr(self._tokens, name, value)
        tokens = self._tokens
        cached, write = tokens.cache_read_input_tokens, tokens.cache_creation_input_tokens
        total: int | None = None
        if tokens.input_tokens is not None and tokens.output_tokens is not None:
            total = tokens.input_tokens + (cached or 0) + (write or 0) + tokens.output_tokens
        details = tokens.output_tokens_details
        deltas.append(
            Usage(
                input=tokens.input_tokens,
                output=tokens.output_tokens,
                total=total,
                cached=cached,
                cache_write=write,
                reasoning=None if details is None else details.thinking_tokens,
                cache_apart=True,
            )
        )
