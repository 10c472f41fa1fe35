"""Reads answers of the Interactions API, streamed or whole: events in, deltas out.

An answer is made of numbered steps, each with a start and a stop; the interaction has ended with
`interaction.completed`, whose status is the finish. What an event is stands in its data. Thoughts
go back as the steps that they are, and so does what the provider did by itself. A stream that
was taken up again goes on inside a step; one that begins anew instead is skipped to where it broke.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from antiphon.adapters.answers import AnswerReader
from antiphon.adapters.gemini.errors import stream_failure
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
from antiphon.core.wire.body import EVENT_STREAM, Body
from antiphon.core.wire.events import Event
from antiphon.core.wire.limits import DEFAULT_LIMITS, Limits

PROFILE: Final = "gemini-interactions"

STATUS: Final[Mapping[str, Meaning]] = {
    "completed": Meaning.COMPLETE,
    "requires_action": Meaning.NEEDS_TOOL,
    "incomplete": Meaning.TRUNCATED,
    "budget_exceeded": Meaning.TRUNCATED,
    "requires_continuation": Meaning.ERROR,  # see CONTINUES
    "failed": Meaning.ERROR,
    "cancelled": Meaning.ERROR,
}

CONTINUES: Final = "requires_continuation"
"""It would go on for a token that has to come back with the very request that it belongs to. A line of
ours cannot carry one, and what was said so far is half an answer."""

RUNNING: Final = frozenset({"queued", "in_progress", "idle"})
"""Statuses of an interaction that was asked for before it had ended."""

SILENT: Final = frozenset({"text_annotation_delta"})
"""Deltas that add nothing to what a step says."""


class _Tokens(msgspec.Struct):
    total_input_tokens: int | None = None
    total_output_tokens: int | None = None
    total_thought_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_tool_use_tokens: int | None = None
    total_tokens: int | None = None


class _Interaction(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    status: str | None = None
    steps: list[msgspec.Raw] | None = None
    usage: Any = None
    error: Any = None
    errors: list[Any] | None = None


class _Event(msgspec.Struct):
    """Any event of a stream: its fields are those of its type."""

    event_type: str = ""
    event_id: str | None = None
    index: int = 0
    interaction: _Interaction | None = None
    step: msgspec.Raw = msgspec.Raw(b"{}")
    delta: msgspec.Raw = msgspec.Raw(b"{}")
    error: Any = None


class _Content(msgspec.Struct):
    type: str = ""
    text: str | None = None


class _Step(msgspec.Struct):
    """What a step says when it begins. `arguments` are kept as they are spelled."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    arguments: msgspec.Raw = msgspec.Raw(b"{}")
    content: list[msgspec.Raw] | None = None
    signature: str | None = None
    summary: list[_Content] | None = None


class _Delta(msgspec.Struct):
    type: str = ""
    text: str = ""
    arguments: Any = None
    signature: str = ""
    content: _Content | None = None


@dataclass(slots=True)
class _Open:
    """A step that has not stopped yet."""

    step: _Step
    raw: bytes
    block: int
    said: bool = False  # whether any of its arguments came in pieces
    signature: str = ""
    summary: list[str] = field(default_factory=list)
    more: dict[str, msgspec.Raw] = field(default_factory=dict)


_event: Final = msgspec.json.Decoder(_Event)
_interaction: Final = msgspec.json.Decoder(_Interaction)
_step: Final = msgspec.json.Decoder(_Step)
_delta: Final = msgspec.json.Decoder(_Delta)
_content: Final = msgspec.json.Decoder(_Content)
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode


class Reader(AnswerReader):
    """Reads one answer. Feed it the body as it comes, then say `end`."""

    def __init__(self, content_type: str = EVENT_STREAM, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(content_type, limits)
        self._last: str | None = None
        self._sought: str | None = None  # where it broke; nothing that a stream repeats is read
        self._anew = False  # whether the stream that was asked to go on begins again
        self._handle: str | None = None
        self._model: str | None = None
        self._open: dict[int, _Open] = {}
        self._blocks = 0

    @property
    def position(self) -> str | None:
        """The id of the last event that was read whole, or None where it had none."""
        return self._last

    def reopen(self, content_type: str) -> None:
        """Read on from another body, which begins behind `position`, at it or with the answer."""
        self._body = Body(content_type, self._limits)
        self._sought = self._last
        self._closed = False

    def _event(self, event: Event, deltas: list[Delta]) -> None:
        try:
            said = decode_lenient(_event, event.data)
        except ValueError as error:
            self._no_event(event, error, deltas)
            return
        if event.unterminated:
            deltas.append(Note("unterminated_event"))
        kind = said.event_type or event.name
        if (
            self._handle
            and said.interaction
            and said.interaction.id not in (None, "", self._handle)
        ):
            self._fail(deltas, "malformed_event", "The stream changed to another answer.")
            return
        if self._repeats(kind, said.event_id):
            deltas.append(Note("repeated_event"))
            return
        self._last = said.event_id or None
        match kind:
            case "step.delta":
                self._add(said.index, bytes(said.delta), deltas)
            case "step.start":
                self._begin(said.index, bytes(said.step), deltas)
            case "step.stop":
                self._stop(said.index, deltas)
            case "interaction.created" | "interaction.completed" if said.interaction is not None:
                self._opened(said.interaction, deltas)
                if kind == "interaction.completed":
                    self._finish(said.interaction, deltas)
            case "interaction.status_update":
                pass  # the last event has the last word
            case _ if kind == "error" or said.error is not None:
                deltas.append(stream_failure(said.error))
                self._closed = True
            case _:
                deltas.append(Note("unknown_event"))

    def _repeats(self, kind: str, name: str | None) -> bool:
        """Say whether an event was read before the connection broke."""
        if self._sought is None:
            return False
        here = name == self._sought
        self._anew = self._anew or kind == "interaction.created"
        if here or not self._anew:
            self._sought, self._anew = None, False
            return here
        return True

    def _failure(self, error: object) -> Failed:
        return stream_failure(error)

    def _whole(self, data: bytes, deltas: list[Delta]) -> None:
        said = self._read_whole(_interaction, data, deltas)
        if said is None:
            return
        if said.error is not None:
            deltas.append(stream_failure(said.error))
            self._closed = True
            return
        self._opened(said, deltas)
        if said.status in RUNNING:
            self._closed = True  # the body ends, and the interaction does not
            return
        for number, step in enumerate(said.steps or ()):
            self._begin(number, bytes(step), deltas)
            self._stop(number, deltas)
            if self._closed:
                return
        self._finish(said, deltas)

    def _opened(self, said: _Interaction, deltas: list[Delta]) -> None:
        self._model = self._model or said.model
        if said.id and said.id != self._handle:
            self._handle = said.id
            deltas.append(Opened(said.id))

    def _finish(self, said: _Interaction, deltas: list[Delta]) -> None:
        """The interaction is over: its status is the finish."""
        if any(step.step.type != "function_call" for step in self._open.values()):
            self._fail(deltas, "malformed_event", "The answer ended inside a step.")
            return
        self._count(said.usage, deltas)
        if said.status is not None:
            deltas.append(Finished(said.status, STATUS.get(said.status, Meaning.UNKNOWN)))
        if said.status == CONTINUES:
            sentence = (
                "The model stopped at the most that it decodes for one request, and goes on only for its "
                "continuation_token, which is not sent from here. Ask for a shorter answer."
            )
            deltas.append(Failed(CONTINUES, sentence))
        if said.status == "failed" and said.errors:
            deltas.append(stream_failure(said.errors[0]))
        deltas.append(Ended())
        self._closed = True

    # Steps.

    def _begin(self, index: int, raw: bytes, deltas: list[Delta]) -> None:
        try:
            step = decode_lenient(_step, raw)
        except ValueError as error:
            self._fail(deltas, "malformed_event", f"A step cannot be read: {error}")
            return
        if index in self._open:
            self._fail(deltas, "malformed_event", f"Step {index} was opened twice.")
            return
        opened = self._open[index] = _Open(step, raw, self._next())
        match step.type:
            case "function_call":
                deltas.append(CallOpened(opened.block, step.id or None, step.name, needs_stop=True))
            case "model_output":
                for piece in step.content or ():
                    self._say(opened, bytes(piece), deltas)
            case "thought":
                opened.signature = step.signature or ""
                for summary in step.summary or ():
                    self._think(opened, summary, deltas)
            case _:
                pass

    def _add(self, index: int, raw: bytes, deltas: list[Delta]) -> None:
        opened = self._open.get(index)
        if opened is None:
            self._fail(deltas, "malformed_event", f"Step {index} was never opened.")
            return
        try:
            delta = decode_lenient(_delta, raw)
        except ValueError as error:
            self._fail(deltas, "malformed_event", f"An event cannot be read: {error}")
            return
        match opened.step.type, delta.type:
            case "model_output", kind if kind not in SILENT:
                self._say(opened, raw, deltas)
            case "function_call", "arguments_delta":
                opened.said = True
                deltas.append(ArgumentsDelta(opened.block, str(delta.arguments or "")))
            case "thought", "thought_signature":
                opened.signature += delta.signature
            case "thought", "thought_summary":
                self._think(opened, delta.content, deltas)
            case kind, other if kind == other and kind not in ("function_call", "thought"):
                self._join(opened, raw, deltas)
            case _, kind if kind in SILENT:
                deltas.append(Note("skipped_delta"))
            case kind, other:
                self._fail(
                    deltas, "malformed_event", f"Nobody knows what {other!r} adds to a {kind}."
                )

    def _stop(self, index: int, deltas: list[Delta]) -> None:
        opened = self._open.pop(index, None)
        if opened is None:
            deltas.append(Note("missing_step_start"))
            return
        match opened.step.type:
            case "function_call":
                at_once = bytes(opened.step.arguments)
                if not opened.said and at_once != b"null":
                    deltas.append(ArgumentsDelta(opened.block, at_once.decode()))
                deltas.append(BlockStopped(opened.block))
            case "model_output":
                pass
            case "thought":
                self._keep_thought(opened, deltas)
            case _:
                self._keep(opened.block, _encode(_members.decode(opened.raw) | opened.more), deltas)

    def _say(self, opened: _Open, raw: bytes, deltas: list[Delta]) -> None:
        """Pass on a piece of content: text as it comes, what people cannot read as it is."""
        try:
            piece = decode_lenient(_content, raw)
        except ValueError as error:
            self._fail(deltas, "malformed_event", f"Content cannot be read: {error}")
            return
        if piece.type == "text" and piece.text is not None:
            if piece.text:
                deltas.append(TextDelta(opened.block, Channel.TEXT, piece.text))
            return
        step = {"type": "model_output", "content": [msgspec.Raw(raw)]}
        self._keep(self._next(), _encode(step), deltas)
        opened.block = self._next()  # what is said behind it stays behind it

    def _think(self, opened: _Open, content: _Content | None, deltas: list[Delta]) -> None:
        if content is not None and content.text:
            opened.summary.append(content.text)
            deltas.append(TextDelta(opened.block, Channel.REASONING, content.text))

    def _keep_thought(self, opened: _Open, deltas: list[Delta]) -> None:
        """Pass on a thought as the step that goes back. Without its signature it never may."""
        if not opened.signature:
            deltas.append(Note("missing_signature"))
            return
        step: dict[str, object] = {"type": "thought", "signature": opened.signature}
        if opened.summary:
            step["summary"] = [{"type": "text", "text": "".join(opened.summary)}]
        kept = Opaque(profile=PROFILE, value=msgspec.Raw(_encode(step)), model=self._model)
        deltas.append(OpaqueState(opened.block, kept))

    def _join(self, opened: _Open, raw: bytes, deltas: list[Delta]) -> None:
        """Take what the provider's own step was filled with; each field comes once."""
        fields = _members.decode(raw)
        fields.pop("type", None)
        if opened.more.keys() & fields.keys():
            self._fail(deltas, "malformed_event", "A step of the provider's own came in pieces.")
        opened.more |= fields

    def _keep(self, block: int, value: bytes, deltas: list[Delta]) -> None:
        kept = Opaque(profile=PROFILE, value=msgspec.Raw(value), model=self._model, work=True)
        deltas.append(OpaqueState(block, kept))

    def _next(self) -> int:
        self._blocks += 1
        return self._blocks - 1

    # Around them.

    def _count(self, usage: object, deltas: list[Delta]) -> None:
        if usage is None:
            return
        try:
            told = msgspec.convert(usage, _Tokens, strict=False)
        except msgspec.ValidationError:
            deltas.append(Note("unreadable_usage"))
            return
        given, made = told.total_input_tokens, told.total_output_tokens
        deltas.append(
            Usage(
                input=None if given is None else given + (told.total_tool_use_tokens or 0),
                output=None if made is None else made + (told.total_thought_tokens or 0),
                total=told.total_tokens,
                cached=told.total_cached_tokens,
                reasoning=told.total_thought_tokens,
            )
        )
