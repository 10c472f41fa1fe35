"""Reads answers of generateContent, streamed or whole: chunks in, deltas out.

Parts arrive one after the other and have no number. A call arrives whole, or on Vertex in pieces where
that was asked for; text goes on from chunk to chunk until something else comes, and what is signed is a
part for itself. There is no end
marker: the finish reason is the end, and usage may follow it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from antiphon.adapters.answers import AnswerReader
from antiphon.adapters.gemini.errors import stream_failure
from antiphon.adapters.gemini.parts import SIGNATURE
from antiphon.adapters.gemini.streamed import Contradiction, Piece, StreamedCall
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

PROFILE: Final = "gemini"

FINISH: Final[Mapping[str, Meaning]] = {
    "STOP": Meaning.COMPLETE,  # also where calls were made
    "MAX_TOKENS": Meaning.TRUNCATED,
    "TOO_MANY_TOOL_CALLS": Meaning.TRUNCATED,
    "CONTINUATION": Meaning.PAUSED,
    "SAFETY": Meaning.FILTERED,
    "RECITATION": Meaning.FILTERED,
    "BLOCKLIST": Meaning.FILTERED,
    "PROHIBITED_CONTENT": Meaning.FILTERED,
    "SPII": Meaning.FILTERED,
    "MODEL_ARMOR": Meaning.FILTERED,
    "IMAGE_SAFETY": Meaning.FILTERED,
    "IMAGE_PROHIBITED_CONTENT": Meaning.FILTERED,
    "IMAGE_RECITATION": Meaning.FILTERED,
    "MALFORMED_FUNCTION_CALL": Meaning.ERROR,
    "UNEXPECTED_TOOL_CALL": Meaning.ERROR,
    "MISSING_THOUGHT_SIGNATURE": Meaning.ERROR,
    "MALFORMED_RESPONSE": Meaning.ERROR,
    "NO_IMAGE": Meaning.ERROR,
    "IMAGE_OTHER": Meaning.ERROR,
    "LANGUAGE": Meaning.ERROR,
    "OTHER": Meaning.ERROR,
    "ESCALATION": Meaning.ERROR,
    "PUP_LIMITED_DISABLED": Meaning.ERROR,
    "FINISH_REASON_UNSPECIFIED": Meaning.ERROR,
}


class _Call(msgspec.Struct, rename="camel"):
    id: str | None = None
    name: str | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")
    partial_args: list[Piece] | None = None
    will_continue: bool | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing: so a call ends that came in pieces."""
        says = self.id or self.name or self.partial_args or self.will_continue
        return not says and bytes(self.args) in (b"{}", b"null")


class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _Call | None = None


class _Content(msgspec.Struct):
    parts: list[msgspec.Raw] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    index: int | None = None
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None


class _Tokens(msgspec.Struct, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    total_token_count: int | None = None


class _Chunk(msgspec.Struct, rename="camel"):
    """One event of a stream, or a whole answer."""

    candidates: list[_Candidate] | None = None
    prompt_feedback: _Feedback | None = None
    usage_metadata: Any = None
    model_version: str | None = None
    response_id: str | None = None
    error: Any = None


_chunk: Final = msgspec.json.Decoder(_Chunk)
_chunks: Final = msgspec.json.Decoder(list[_Chunk])
_part: Final = msgspec.json.Decoder(_Part)
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode


class Reader(AnswerReader):
    """Reads one answer. Feed it the body as it comes, then say `end`."""

    def __init__(self, content_type: str = EVENT_STREAM, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(content_type, limits)
        self._handle: str | None = None
        self._model: str | None = None
        self._blocks = 0
        self._text: Channel | None = None  # what the last block is, where it may go on
        self._answered = False  # whether any candidate came
        self._streamed: StreamedCall | None = None  # the call whose pieces are coming
        self._was_streamed = False  # whether that is what the last block was

    def _event(self, event: Event, deltas: list[Delta]) -> None:
        try:
            chunk = decode_lenient(_chunk, event.data)
        except ValueError as error:
            self._no_event(event, error, deltas)
            return
        if event.unterminated:
            deltas.append(Note("unterminated_event"))
        self._take(chunk, deltas)

    def _failure(self, error: object) -> Failed:
        return stream_failure(error)

    def _whole(self, data: bytes, deltas: list[Delta]) -> None:
        """An answer in one piece, or the array of chunks that a stream without events is."""
        if data.lstrip()[:1] == b"[":
            chunks = self._read_whole(_chunks, data, deltas)
        else:
            chunk = self._read_whole(_chunk, data, deltas)
            chunks = None if chunk is None else [chunk]
        if chunks is None:
            return
        for chunk in chunks:
            self._take(chunk, deltas)
            if self._closed:
                return
        deltas.append(Ended())

    def _take(self, chunk: _Chunk, deltas: list[Delta]) -> None:
        if chunk.error is not None:
            deltas.append(stream_failure(chunk.error))
            self._closed = True
            return
        self._model = self._model or chunk.model_version
        if chunk.response_id and chunk.response_id != self._handle:
            deltas.append(Note("handle_changed") if self._handle else Opened(chunk.response_id))
            self._handle = self._handle or chunk.response_id
        foreign = bool(chunk.response_id) and chunk.response_id != self._handle
        self._count(chunk.usage_metadata, deltas)
        for candidate in chunk.candidates or ():
            if candidate.index:
                deltas.append(Note("other_candidate"))
                continue
            self._answered = True
            for part in (candidate.content and candidate.content.parts) or ():
                before = len(deltas)
                self._add(bytes(part), deltas)
                if foreign and len(deltas) > before:
                    del deltas[before:]
                    self._fail(deltas, "malformed_event", "The stream changed to another answer.")
                if self._closed:
                    return
            if candidate.finish_reason:
                self._finish(candidate.finish_reason, candidate.finish_message, deltas)
        blocked = chunk.prompt_feedback and chunk.prompt_feedback.block_reason
        if blocked and not self._answered:
            deltas.append(Finished(f"blockReason:{blocked}", Meaning.FILTERED))

    def _finish(self, word: str, message: str | None, deltas: list[Delta]) -> None:
        deltas.append(Finished(word, FINISH.get(word, Meaning.UNKNOWN)))
        if word == "MALFORMED_FUNCTION_CALL":
            deltas.append(
                Failed(
                    "malformed_function_call",
                    message or "The model made a call that cannot be read.",
                    retryable=True,
                )
            )

    # Parts.

    def _add(self, raw: bytes, deltas: list[Delta]) -> None:
        try:
            part = decode_lenient(_part, raw)
        except ValueError as error:
            self._fail(deltas, "malformed_event", f"A part cannot be read: {error}")
            return
        state = part.thought_signature
        if part.function_call is not None:
            self._call(part.function_call, state, deltas)
        elif part.text is not None or _members.decode(raw).keys() <= {SIGNATURE, "thought"}:
            channel = Channel.REASONING if part.thought else Channel.TEXT
            self._say(channel, part.text or "", state, deltas)
        else:
            # What the provider did by itself goes back as it came.
            kept = Opaque(profile=PROFILE, value=msgspec.Raw(raw), model=self._model, work=True)
            deltas.append(OpaqueState(self._next(), kept))

    def _say(self, channel: Channel, text: str, state: str | None, deltas: list[Delta]) -> None:
        if not state:
            if text:
                goes_on = self._text is channel
                block = self._blocks - 1 if goes_on else self._next(channel)
                deltas.append(TextDelta(block, channel, text))
            return
        block = self._next()
        fields: dict[str, object] = {SIGNATURE: state}
        if channel is Channel.REASONING:
            fields["thought"] = True
            if text:
                deltas.append(TextDelta(block, channel, text))
        elif text:
            deltas.append(TextDelta(block, channel, text))
            block = self._next()  # the state stands behind the text that it signs
        else:
            fields["text"] = ""
        deltas.append(OpaqueState(block, self._kept(fields)))

    def _call(self, call: _Call, state: str | None, deltas: list[Delta]) -> None:
        if self._streamed is not None or call.partial_args is not None or call.will_continue:
            self._in_pieces(call, state, deltas)
            return
        if call.is_empty and self._was_streamed:
            deltas.append(Note("repeated_call_end"))
            return
        block, arguments = self._next(), bytes(call.args).decode()
        deltas.append(CallOpened(block, call.id or None, call.name, needs_stop=True))
        deltas.append(ArgumentsDelta(block, "{}" if arguments == "null" else arguments))
        if state:
            deltas.append(OpaqueState(block, self._kept({SIGNATURE: state})))
        deltas.append(BlockStopped(block))

    def _in_pieces(self, call: _Call, state: str | None, deltas: list[Delta]) -> None:
        """Take a part of a call that is streamed: its beginning, pieces of its arguments, its end."""
        streamed = self._streamed
        try:
            if streamed is None:
                if not call.name:
                    raise Contradiction("Arguments came for a call that never began.")
                streamed = StreamedCall(self._next(), call.id or None, call.name, bytes(call.args))
                self._streamed = streamed
                deltas.append(
                    CallOpened(streamed.block, streamed.call_id, streamed.name, needs_stop=True)
                )
            elif call.name not in (None, "", streamed.name) or call.id not in (
                None,
                "",
                streamed.call_id,
            ):
                raise Contradiction(f"Another call began before {streamed.name!r} had ended.")
            if state:
                deltas.append(OpaqueState(streamed.block, self._kept({SIGNATURE: state})))
            for piece in call.partial_args or ():
                streamed.take(piece)
                streamed.size_bytes += len(piece.json_path) + len(piece.string_value or "")
            if streamed.size_bytes > self._limits.max_arguments_bytes:
                self._fail(deltas, "answer_too_large", "The arguments of a call are too large.")
            elif not call.will_continue:
                deltas.append(ArgumentsDelta(streamed.block, streamed.arguments()))
                deltas.append(BlockStopped(streamed.block))
                self._streamed, self._was_streamed = None, True
        except (Contradiction, msgspec.ValidationError) as problem:
            self._fail(deltas, "malformed_function_call", f"A call cannot be read: {problem}")

    def _next(self, text: Channel | None = None) -> int:
        """Return the number of a new block, which may be gone on with if it is `text`."""
        self._text = text
        self._was_streamed = False
        self._blocks += 1
        return self._blocks - 1

    def _kept(self, fields: Mapping[str, object]) -> Opaque:
        return Opaque(profile=PROFILE, value=msgspec.Raw(_encode(fields)), model=self._model)

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
        prompt = told.prompt_token_count
        deltas.append(
            Usage(
                input=None if prompt is None else prompt + (told.tool_use_prompt_token_count or 0),
                output=(told.candidates_token_count or 0) + (told.thoughts_token_count or 0),
                total=told.total_token_count,
                cached=told.cached_content_token_count,
                reasoning=told.thoughts_token_count,
            )
        )
