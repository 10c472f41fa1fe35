"""Reads answers of OpenAI Chat Completions, streamed or whole: events in, deltas out.

Many servers speak this dialect and few speak it exactly. What can be understood without
guessing is taken, with a note: calls without an index, an id on every fragment, whole calls
in one chunk, the id `null`, names in pieces, arguments as an object, reasoning under either
of its names, the legacy `function_call`, an answer's id made anew for every chunk. What cannot
be understood ends the reading, and so does what another answer says in the same stream.

Only choice 0 is read. The dialect numbers nothing, so its deltas carry no sequence numbers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from antiphon.adapters.answers import AnswerReader
from antiphon.adapters.json_text import is_cut
from antiphon.adapters.openai_chat.errors import stream_failure
from antiphon.core.answers.deltas import (
    ArgumentsDelta,
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

# A message of this dialect has one text per channel and then its calls, so a block's number
# says what it is, however the fragments interleave.
REASONING_BLOCK: Final = 0
TEXT_BLOCK: Final = 1
REFUSAL_BLOCK: Final = 2
FIRST_CALL_BLOCK: Final = 3

FINISH: Final[Mapping[str, Meaning]] = {
    "stop": Meaning.COMPLETE,
    "eos": Meaning.COMPLETE,  # Together
    "tool_calls": Meaning.NEEDS_TOOL,
    "function_call": Meaning.NEEDS_TOOL,
    "length": Meaning.TRUNCATED,
    "model_length": Meaning.TRUNCATED,  # Mistral
    "content_filter": Meaning.FILTERED,
    "refusal": Meaning.FILTERED,  # gateways in front of Anthropic
    "sensitive": Meaning.FILTERED,  # GLM
    "error": Meaning.ERROR,  # Mistral, OpenRouter
    "network_error": Meaning.ERROR,  # GLM
    "insufficient_system_resource": Meaning.ERROR,  # DeepSeek
    # Words of other APIs, which gateways pass on: Bedrock's and Anthropic's.
    "end_turn": Meaning.COMPLETE,
    "stop_sequence": Meaning.COMPLETE,
    "end": Meaning.COMPLETE,
    "tool_use": Meaning.NEEDS_TOOL,
    "max_tokens": Meaning.TRUNCATED,
}

DONE: Final = b"[DONE]"
SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _CallPart(msgspec.Struct):
    index: int | str | None = None
    id: str | int | None = None
    function: _Function | None = None


class _Part(msgspec.Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None
    thinking: list[_Part] | str | None = None


class _Said(msgspec.Struct):
    content: str | list[_Part] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: Any = None
    tool_calls: list[_CallPart] | None = None
    function_call: _Function | None = None

    @property
    def adds(self) -> bool:
        """Whether it adds to the answer: a role or an end alone does not."""
        return bool(
            self.content
            or self.tool_calls
            or self.reasoning_content
            or self.reasoning
            or self.reasoning_details
            or self.refusal
            or self.function_call
        )


class _Choice(msgspec.Struct):
    index: int | None = 0
    delta: _Said | list[Any] | None = None  # a list where PHP wrote an empty object
    message: _Said | None = None
    finish_reason: str | None = None
    usage: Any = None  # Kimi tells it here
    error: Any = None  # OpenRouter may tell it here


class _Chunk(msgspec.Struct):
    """A chunk of a stream, or the one object of a whole answer."""

    id: str | int | None = None
    object: str | None = None
    model: Any = None
    choices: list[_Choice] | None = None
    usage: Any = None
    x_groq: Any = None
    error: Any = None
    message: Any = None
    type: Any = None
    code: Any = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Tokens(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek


@dataclass(slots=True)
class _Call:
    block: int
    id: str | None
    name: str
    told: bool = False  # whether its opening has been passed on
    held: list[str] = field(default_factory=list)  # arguments that came before its id

    @property
    def begun(self) -> bool:
        """Whether any of its arguments have come: then its name is whole."""
        return self.told or bool(self.held)


_decode = msgspec.json.Decoder(_Chunk).decode


class Reader(AnswerReader):
    """Reads one answer. Feed it the body as it comes, then say `end`.

    With an `origin` each block of reasoning is marked as that profile's, with the name of the
    field that it came in, or the state that goes back in place of its text.
    """

    def __init__(
        self,
        content_type: str = EVENT_STREAM,
        limits: Limits = DEFAULT_LIMITS,
        *,
        origin: str | None = None,
    ) -> None:
        super().__init__(content_type, limits)
        self._origin = origin
        self._model: str | None = None
        self._thought: object = None
        self._handle: str | None = None
        self._ids_seen: set[str | int] = set()
        self._speakers: set[str | int] = set()  # those of them that added something
        self._only: str | int | None = None  # the one that came again, and speaks
        self._calls: list[_Call] = []
        self._by_index: dict[int | str | None, _Call] = {}  # never at None
        self._by_id: dict[str, _Call] = {}
        self._said_anything = False

    def _event(self, event: Event, deltas: list[Delta]) -> None:
        if event.name == "error":
            self._error_event(event, deltas)
            return
        try:
            chunk = _chunk(event.data)
        except ValueError as error:
            self._no_chunk(event, error, deltas)
            return
        if event.unterminated:
            deltas.append(Note("unterminated_event"))
        self._take(chunk, deltas)

    def _no_chunk(self, event: Event, error: ValueError, deltas: list[Delta]) -> None:
        if event.data == DONE:
            self._rest(deltas)
            deltas.append(Ended())
            self._closed = True
        elif not event.data.strip():
            pass  # some servers keep the line alive with empty data
        elif not event.unterminated:
            self._fail(deltas, "malformed_event", f"An event cannot be read: {error}")
        # Half an event at the end of the body is a cut, and the missing finish will say so.

    def _error_event(self, event: Event, deltas: list[Delta]) -> None:
        try:
            value = msgspec.json.decode(event.data)
        except (ValueError, RecursionError):
            if event.unterminated:
                return
            value = event.data.decode()
        error = value.get("error", value) if isinstance(value, dict) else value
        deltas.append(stream_failure(error))
        self._closed = True

    def _failure(self, error: object) -> Failed:
        return stream_failure(error)

    def _whole(self, data: bytes, deltas: list[Delta]) -> None:
        try:
            chunk = _chunk(data)
        except ValueError as error:
            code = "stream_incomplete" if is_cut(data, error) else "malformed_event"
            self._fail(deltas, code, f"The answer cannot be read: {error}")
            return
        self._take(chunk, deltas)
        if self._closed:
            return
        if not chunk.choices:
            self._fail(deltas, "malformed_event", "The answer holds no choices.")
            return
        deltas.append(Ended())

    def _take(self, chunk: _Chunk, deltas: list[Delta]) -> None:
        if chunk.id != self._handle and chunk.id:
            handle = str(chunk.id)
            if self._handle is None:
                self._handle = handle
                deltas.append(Opened(handle))
            elif handle != self._handle:
                deltas.append(Note("handle_changed"))
        if self._model is None and isinstance(chunk.model, str):
            self._model = chunk.model
        error = chunk.error
        for choice in chunk.choices or ():
            if not choice.index:
                error = error or choice.error
                if not self._is_ours(chunk.id, choice.delta):
                    self._fail(deltas, "malformed_event", "The stream changed to another answer.")
                    return
                self._choice(choice, deltas)
                if choice.usage is not None and chunk.usage is None:
                    self._usage(choice.usage, deltas)
            else:
                deltas.append(Note("further_choice"))
        if chunk.usage is not None:
            self._usage(chunk.usage, deltas)
        if chunk.x_groq is not None:
            self._usage(_member(chunk.x_groq, "usage"), deltas)
            error = error or _member(chunk.x_groq, "error")
        if chunk.object == "error":  # Mistral, older vLLM: the whole object is the error
            error = {"message": chunk.message, "type": chunk.type, "code": chunk.code}
        if error:
            deltas.append(stream_failure(error))
            self._closed = True

    def _is_ours(self, chunk_id: str | int | None, said: object) -> bool:
        """Say whether what a chunk of this id says belongs to the answer that is being read.

        One id for all chunks is the rule, and some servers make a new one for each. Where one
        that has spoken comes twice and another one speaks too, there are two answers in the
        stream, as when a gateway lost its provider and asked again.
        """
        if not chunk_id or chunk_id == self._only:
            return True
        speaks = type(said) is _Said and said.adds
        if speaks:
            self._speakers.add(chunk_id)
        if chunk_id in self._ids_seen and chunk_id in self._speakers:
            if speaks and len(self._speakers) > 1:
                return False
            self._only = self._only or chunk_id
        self._ids_seen.add(chunk_id)
        return not speaks or self._only in (None, chunk_id)

    def _choice(self, choice: _Choice, deltas: list[Delta]) -> None:
        if isinstance(choice.delta, _Said):
            self._said(choice.delta, deltas)
        elif choice.message is not None:
            # Servers that close a stream with the whole message have said it all before.
            if self._said_anything:
                deltas.append(Note("repeated_message"))
            else:
                for index, part in enumerate(choice.message.tool_calls or ()):
                    part.index = index
                self._said(choice.message, deltas)
        word = choice.finish_reason
        if word and word != "null":
            self._rest(deltas)
            deltas.append(Finished(word, FINISH.get(word, Meaning.UNKNOWN)))

    def _said(self, said: _Said, deltas: list[Delta]) -> None:
        reasoning = said.reasoning_content or said.reasoning
        if said.reasoning_details:
            reasoning = self._details(said.reasoning_details, deltas) or reasoning
        elif reasoning and self._thought is None:
            self._thought = "reasoning_content" if said.reasoning_content else "reasoning"
        if reasoning:
            self._said_anything = True
            deltas.append(TextDelta(REASONING_BLOCK, Channel.REASONING, reasoning))
        content = said.content
        if content:
            self._said_anything = True
            if type(content) is str:
                deltas.append(TextDelta(TEXT_BLOCK, Channel.TEXT, content))
            else:
                self._parts(content, deltas)
        if said.refusal:
            self._said_anything = True
            deltas.append(TextDelta(REFUSAL_BLOCK, Channel.REFUSAL, said.refusal))
        if said.tool_calls:
            self._said_anything = True
            for part in said.tool_calls:
                self._call_part(part, deltas)
        if said.function_call is not None:
            self._said_anything = True
            deltas.append(Note("legacy_function_call"))
            self._call_part(_CallPart(0, None, said.function_call), deltas)

    def _parts(self, parts: str | list[_Part], deltas: list[Delta]) -> None:
        """Read content that came as a list of typed parts, as Mistral sends its thinking."""
        for part in parts:
            assert isinstance(part, _Part)
            thinking = part.thinking
            if thinking and self._thought is None:
                self._thought = "thinking"
            if isinstance(thinking, str):
                deltas.append(TextDelta(REASONING_BLOCK, Channel.REASONING, thinking))
            elif thinking is not None:
                deltas.extend(
                    TextDelta(REASONING_BLOCK, Channel.REASONING, thought.text)
                    for thought in thinking
                    if thought.text
                )
            elif part.refusal:
                deltas.append(TextDelta(REFUSAL_BLOCK, Channel.REFUSAL, part.refusal))
            elif part.text:
                deltas.append(TextDelta(TEXT_BLOCK, Channel.TEXT, part.text))
            elif part.type not in ("text", "refusal"):
                deltas.append(Note("skipped_part"))

    def _details(self, details: object, deltas: list[Delta]) -> str:
        """Keep OpenRouter's state, and return what of it is for people."""
        if not isinstance(details, list) or not all(isinstance(item, dict) for item in details):
            deltas.append(Note("unreadable_reasoning"))
            return ""
        self._said_anything = True
        if not isinstance(self._thought, list):
            self._thought = []
        for item in details:
            _gather(self._thought, item)
        shown = (item.get("text") or item.get("summary") for item in details)
        return "".join(text for text in shown if isinstance(text, str))

    # Tool calls.

    def _call_part(self, part: _CallPart, deltas: list[Delta]) -> None:
        function = part.function or _Function()
        arguments = function.arguments
        if isinstance(arguments, dict):
            deltas.append(Note("arguments_object"))
            arguments = msgspec.json.encode(arguments).decode()
        if part.id not in (None, "") or function.name or part.index not in self._by_index:
            # A number is an id too, but "null" is what Mistral calls none.
            call_id = None if part.id in (None, "", "null") else str(part.id)
            call = self._call_of(part.index, call_id, function.name or "", deltas)
        else:
            call = self._by_index[part.index]  # what nearly every fragment is: more of the same
        if not arguments:
            return
        if call is None:
            # To a block that was never opened: the assembler knows what that means.
            deltas.append(ArgumentsDelta(FIRST_CALL_BLOCK + len(self._calls), arguments))
            return
        if call.id is None and not call.told:
            call.held.append(arguments)  # some servers give the id later, and some none
            return
        if not call.told:
            self._tell(call, deltas)
        deltas.append(ArgumentsDelta(call.block, arguments))

    def _call_of(
        self, index: int | str | None, call_id: str | None, name: str, deltas: list[Delta]
    ) -> _Call | None:
        """Return the call that a fragment belongs to; None where it opens none and continues none."""
        known = None if call_id is None else self._by_id.get(call_id)
        if index is None:
            deltas.append(Note("missing_index"))
            if call_id is None and not name:
                known = self._calls[-1] if self._calls else None
        else:
            at_index = self._by_index.get(index)
            if at_index is not None and known is None:
                if self._opens_another(at_index, call_id, name):
                    deltas.append(Note("index_reused"))
                else:
                    known = at_index
            elif at_index is None and known is not None:
                known = None  # the same id at another index: a second call, for better or worse
        if known is None and (call_id is not None or name):
            known = _Call(FIRST_CALL_BLOCK + len(self._calls), call_id, "")
            self._calls.append(known)
            if call_id is not None:
                self._by_id.setdefault(call_id, known)
        if known is not None:
            if index is not None:
                self._by_index[index] = known
            self._identify(known, call_id, name, deltas)
        return known

    def _opens_another(self, call: _Call, call_id: str | None, name: str) -> bool:
        """Say whether a fragment at a call's index begins a new call all the same.

        Some servers send every call at index 0, and some a new id with every fragment: a new
        id with a name is a new call, a new id alone is not.
        """
        if not name:
            return False
        if call_id is not None and call.id is not None:
            return call_id != call.id
        return call.begun and name != call.name

    def _identify(self, call: _Call, call_id: str | None, name: str, deltas: list[Delta]) -> None:
        if call_id is not None and call_id != call.id:
            if call.id is None and not call.told:
                call.id = call_id
                self._by_id.setdefault(call_id, call)
            else:
                deltas.append(Note("changed_call_id"))
        if not name or name == call.name:
            return
        if call.begun:
            self._fail(deltas, "malformed_function_call", "A call changed the name of its tool.")
            return
        if call.name:
            deltas.append(Note("split_name"))
        call.name += name

    def _tell(self, call: _Call, deltas: list[Delta]) -> None:
        call.told = True
        deltas.append(CallOpened(call.block, call.id, call.name or None))
        deltas += (ArgumentsDelta(call.block, arguments) for arguments in call.held)
        call.held.clear()

    def _rest(self, deltas: list[Delta]) -> None:
        """Tell what is only whole when the answer is: calls without arguments, kept state."""
        for call in self._calls:
            if not call.told:
                self._tell(call, deltas)
        if self._thought is not None and self._origin is not None:
            state = msgspec.Raw(msgspec.json.encode(self._thought))
            # Plain text may be read by any model of the dialect, what is signed only by its own.
            maker = self._model if isinstance(self._thought, list) else None
            kept = Opaque(profile=self._origin, value=state, model=maker)
            deltas.append(OpaqueState(REASONING_BLOCK, kept))
            self._origin = None  # once

    def _usage(self, value: object, deltas: list[Delta]) -> None:
        if value is None:
            return
        try:
            tokens = msgspec.convert(value, _Tokens, strict=False)
        except msgspec.ValidationError:
            deltas.append(Note("unreadable_usage"))
            return
        prompt = tokens.prompt_tokens_details or _Details()
        cached = prompt.cached_tokens
        deltas.append(
            Usage(
                input=tokens.prompt_tokens,
                output=tokens.completion_tokens,
                total=tokens.total_tokens,
                cached=tokens.prompt_cache_hit_tokens if cached is None else cached,
                cache_write=prompt.cache_write_tokens,
                reasoning=(tokens.completion_tokens_details or _Details()).reasoning_tokens,
            )
        )


def _gather(state: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    """Add a piece to the state: to the entry that it continues, or as one of its own.

    Readable entries come in pieces, their signature last; what is encrypted comes whole.
    """
    for name in ("text", "summary"):
        if piece.get("type") != f"reasoning.{name}":
            continue
        for entry in state:
            if entry["type"] == piece["type"] and entry.get("index") == piece.get("index"):
                texts = [v for v in (entry.get(name), piece.get(name)) if isinstance(v, str)]
                entry |= {key: value for key, value in piece.items() if value is not None}
                if texts:
                    entry[name] = "".join(texts)
                return
    state.append(dict(piece))


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _chunk(data: bytes) -> _Chunk:
    """Return one chunk.

    Raises:
        ValueError: It is no chunk: not JSON, or with a field of the wrong type.
    """
    try:
        return _decode(data)
    except RecursionError:
        raise ValueError("nested too deep") from None
    except ValueError:
        if SURROGATE.search(data) is None:
            raise
        # Half a character, escaped: legal in JSON, and joined again by the assembler.
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            value = None
        if value is None:
            raise
    return msgspec.convert(value, _Chunk)
