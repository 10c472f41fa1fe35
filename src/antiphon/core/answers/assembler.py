"""The assembler: deltas of one attempt in, one answer out, the same for every dialect.

Rule 1: what may be withdrawn and what is true have different types. `feed` returns pieces of
preview; blocks exist only in the answer of `end`, and only where it may be committed.
Rule 2: arguments are nobody's preview. They wait in a private buffer and are read once, when
the answer has ended, so that half a call can neither run nor be seen as one.
Rule 3: an answer may be committed only with a finish that was said and is understood.
Whatever is missing, doubled or contradictory is refused with a code, never repaired.

It knows no provider and no socket. Generations are its caller's: an assembler lives as long
as one attempt, and what a foreign attempt sends never reaches it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias, assert_never

from msgspec import structs

from antiphon.core.answers.answer import Answer, PartialCall, Piece
from antiphon.core.answers.arguments import Worth, worth
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
from antiphon.core.answers.schemas import SchemaCheck
from antiphon.core.blocks import Block, Opaque, Reasoning, Refusal, Text, ToolCall
from antiphon.core.digests import NO_KEY, digest
from antiphon.core.ids import CallId
from antiphon.core.wire.limits import DEFAULT_LIMITS, Limits

__all__ = ["Answer", "Assembler", "PartialCall", "Piece"]

SETTLED: Final = frozenset({Meaning.COMPLETE, Meaning.NEEDS_TOOL})
"""Finishes that do not contradict each other: whether calls came decides between them."""


@dataclass(slots=True)
class _Text:
    channel: Channel
    parts: list[str] = field(default_factory=list)
    length: int = 0
    half: str = ""  # first half of a character that was cut in two
    opaque: Opaque | None = None


@dataclass(slots=True)
class _Call:
    call_id: str | None
    name: str | None
    needs_stop: bool
    parts: list[str] = field(default_factory=list)
    size_bytes: int = 0
    half: str = ""
    stopped: bool = False
    opaque: Opaque | None = None


_Held: TypeAlias = _Text | _Call

_AS_THEY_ARE: Final[Mapping[str, str]] = MappingProxyType({})


class _Uncommittable(Exception):  # never leaves this module
    """Why the answer may not be committed."""

    def __init__(self, code: str, message: str, *, retryable: bool, definite: bool = True) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retryable = retryable
        self.definite = definite


class Assembler:
    """Assembles one attempt's answer. Feed it every delta, then say `end` once."""

    def __init__(
        self,
        *,
        tools: Mapping[str, SchemaCheck] | None = None,
        limits: Limits = DEFAULT_LIMITS,
        commit_truncated: bool = True,
        known_call_ids: Container[str] = (),
        tool_name_pattern: str | None = None,
        tool_names: Mapping[str, str] = _AS_THEY_ARE,
        max_output_tokens: int | None = None,
    ) -> None:
        """Start with nothing.

        Args:
            tools: What the request declared; None judges no call by its name or schema.
            limits: Bounds; passing one fails the answer.
            commit_truncated: Whether text alone that the length limit cut is an answer.
            known_call_ids: Ids that earlier calls of the line bear. A call that comes with one
                of them is given another: servers that count from zero in every answer are
                common, and two calls of one line may not share an id.
            tool_name_pattern: What the profile takes as the name of a tool. A call by another
                name is none that the provider meant, unless a tool is declared by it.
            tool_names: Whose each name is that a tool was sent by. A call is a call of that tool.
            max_output_tokens: The limit on the answer that was asked for.
        """
        self._tools = tools
        self._limits = limits
        self._commit_truncated = commit_truncated
        self._known_call_ids = known_call_ids
        self._names = None if tool_name_pattern is None else re.compile(tool_name_pattern)
        self._tool_names = tool_names
        self._max_output_tokens = max_output_tokens
        self._blocks: dict[int, _Held] = {}
        self._size_bytes = 0
        self._handle: str | None = None
        self._finish: Finished | None = None
        self._went_on = False  # content came after the finish
        self._usage = Usage()
        self._ended = False
        self._notes: dict[str, None] = {}
        self._duplicates = 0
        self._failure: _Uncommittable | None = None

    @property
    def failed(self) -> bool:
        """Whether the answer can no longer be committed: reading on is a waste."""
        return self._failure is not None

    @property
    def finished(self) -> bool:
        """Whether the provider has said how it finished, and nothing since."""
        return self._finish is not None and not self._went_on

    @property
    def ended(self) -> bool:
        """Whether the provider has said that no more comes."""
        return self._ended

    @property
    def handle(self) -> str | None:
        """The provider's name for the response, once it was told."""
        return self._handle

    def feed(self, delta: Delta) -> Piece | None:
        """Take one delta; return the preview that it adds, if any."""
        match delta:
            case TextDelta():
                return self._add_text(delta)
            case ArgumentsDelta():
                self._add_arguments(delta)
            case CallOpened():
                self._open_call(delta)
            case BlockStopped(block):
                self._stop(block)
            case OpaqueState(block, opaque):
                self._keep(block, opaque)
            case Opened(handle):
                if self._handle not in (None, handle):
                    self._fail("malformed_event", "The stream changed to another response.")
                self._handle = self._handle or handle
            case Finished():
                self._finished(delta)
            case Usage():
                self._usage = delta
            case Failed(code, message, retryable, definite):
                self._fail(code, message, retryable=retryable, definite=definite)
            case Note(word):
                self._notes[word] = None
            case Ended():
                self._ended = True
            case _:
                assert_never(delta)
        return None

    def end(self, cut: str | None = None) -> Answer:
        """Nothing more will come: return what it came to.

        `cut` is the code of the transport's failure where the body did not reach its own end.
        It does not matter once the provider has said how it finished and kept to it: every
        block was whole by then, and what is lost is an end marker or the usage.
        """
        answer = Answer(
            committable=True,
            text=self._joined(Channel.TEXT),
            reasoning=self._joined(Channel.REASONING) or None,
            refusal=self._joined(Channel.REFUSAL) or None,
            finish=None if self._finish is None else self._finish.word,
            meaning=None if self._finish is None else self._finish.meaning,
            usage=self._usage,
            handle=self._handle,
            duplicates_dropped=self._duplicates,
        )
        try:
            answer = self._judged(answer, cut)
        except _Uncommittable as reason:
            answer = structs.replace(
                answer,
                committable=False,
                error=reason.code,
                error_message=reason.message,
                retryable=reason.retryable,
                # After its finish word the provider is done, whatever was wrong.
                definite=reason.definite or self._finish is not None,
                partial_calls=tuple(
                    PartialCall(call_id=c.call_id, name=c.name, arguments="".join(c.parts))
                    for _, c in self._held_calls()
                ),
            )
        return structs.replace(answer, diagnostics=tuple(self._notes))

    # Taking deltas.

    def _add_text(self, delta: TextDelta) -> Piece | None:
        held = self._blocks.get(delta.block)
        if held is None:
            held = _Text(delta.channel)
            if not self._place(delta.block, held):
                return None
        elif type(held) is not _Text or held.channel is not delta.channel:
            self._fail("malformed_event", f"Block {delta.block} changed what it is.")
            return None
        text = delta.text
        if delta.seq is not None and not self._is_next(held, delta.seq, text):
            return None
        size_bytes = len(text)
        if held.half or not text.isascii():
            text, size_bytes = self._mended(held, text)
        if not self._fits(size_bytes):
            return None
        held.parts.append(text)
        if not text:
            return None
        offset = held.length
        held.length = offset + len(text)
        return Piece(delta.block, delta.channel, offset, text)

    def _add_arguments(self, delta: ArgumentsDelta) -> None:
        held = self._blocks.get(delta.block)
        if type(held) is not _Call:
            self._fail("orphan_argument_delta", "Arguments came for a call that was never opened.")
            return
        text = delta.text
        if delta.seq is not None and not self._is_next(held, delta.seq, text):
            return
        if held.stopped:
            self._fail("malformed_event", f"Block {delta.block} went on after its end.")
            return
        size_bytes = len(text)
        if held.half or not text.isascii():
            text, size_bytes = self._mended(held, text)
        held.size_bytes += size_bytes
        if self._fits(size_bytes, held.size_bytes):
            held.parts.append(text)

    def _open_call(self, delta: CallOpened) -> None:
        held = self._blocks.get(delta.block)
        if held is None:
            self._place(delta.block, _Call(delta.call_id, delta.name, delta.needs_stop))
        elif type(held) is not _Call or (held.call_id, held.name) != (delta.call_id, delta.name):
            self._fail("malformed_event", f"Block {delta.block} was opened twice.")
        else:
            self._duplicates += 1

    def _stop(self, block: int) -> None:
        held = self._blocks.get(block)
        if type(held) is _Call:
            held.stopped = True

    def _keep(self, block: int, opaque: Opaque) -> None:
        held = self._blocks.get(block)
        if held is None:
            held = _Text(Channel.REASONING)
            if not self._place(block, held):
                return
        if type(held) is _Text and held.channel is Channel.REFUSAL:
            self._fail("malformed_event", f"Block {block} is a refusal and can keep no state.")
        elif held.opaque == opaque:
            self._duplicates += 1
        elif held.opaque is not None:
            self._fail("malformed_event", f"The state of block {block} came twice, and differs.")
        elif self._fits(len(opaque.value)):
            held.opaque = opaque

    def _finished(self, delta: Finished) -> None:
        before = self._finish
        both = {delta.meaning} if before is None else {delta.meaning, before.meaning}
        if before is not None and before.word != delta.word and not both <= SETTLED:
            self._fail(
                "malformed_event",
                f"The provider finished twice, with {before.word!r} and with {delta.word!r}.",
            )
            return
        self._finish = delta
        self._went_on = False

    def _place(self, block: int, held: _Held) -> bool:
        if len(self._blocks) >= self._limits.max_blocks:
            return self._overflow(f"The answer has more than {self._limits.max_blocks} blocks.")
        self._blocks[block] = held
        return True

    def _is_next(self, held: _Held, seq: int, text: str) -> bool:
        """Say whether delta `seq` of a block is new; parts are kept at their own number."""
        if seq == len(held.parts):
            return True
        if seq < len(held.parts) and held.parts[seq] == text:
            self._duplicates += 1
        elif seq < len(held.parts):
            self._fail("malformed_event", f"Part {seq} of a block came twice, with other content.")
        else:
            self._fail("malformed_event", f"Part {len(held.parts)} of a block is missing.")
        return False

    def _mended(self, held: _Held, text: str) -> tuple[str, int]:
        """Return `text` with characters whole, and its size in bytes.

        Some servers count in UTF-16 and end a delta inside a character. Its first half waits
        for the second; a half that stays alone is an error of the stream.
        """
        text = held.half + text
        held.half = ""
        try:
            return text, len(text.encode())
        except UnicodeEncodeError:
            self._notes["split_character"] = None
        if "\ud800" <= text[-1] <= "\udbff":
            text, held.half = text[:-1], text[-1]
        try:
            text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            self._fail("malformed_event", "A delta holds half a character.")
            text = ""
        return text, len(text.encode())

    def _fits(self, size_bytes: int, arguments_bytes: int = 0) -> bool:
        if self._finish is not None and size_bytes:
            self._went_on = True
            self._notes["content_after_finish"] = None
        self._size_bytes += size_bytes
        if arguments_bytes > self._limits.max_arguments_bytes:
            limit = self._limits.max_arguments_bytes
            return self._overflow(f"The arguments of a call are larger than {limit} bytes.")
        if self._size_bytes > self._limits.max_answer_bytes:
            limit = self._limits.max_answer_bytes
            return self._overflow(f"The answer is larger than {limit} bytes.")
        return True

    def _overflow(self, message: str) -> bool:
        self._fail("answer_too_large", message, retryable=False)
        return False

    def _fail(
        self, code: str, message: str, *, retryable: bool = True, definite: bool = False
    ) -> None:
        if self._failure is None:
            self._failure = _Uncommittable(code, message, retryable=retryable, definite=definite)

    # Judging the whole.

    def _judged(self, answer: Answer, cut: str | None) -> Answer:
        """Return `answer` with the blocks that may be committed.

        Raises:
            _Uncommittable: The first reason why it may not.
        """
        if self._failure is not None:
            raise self._failure
        if self._finish is None:
            raise self._unfinished(cut)
        if cut is not None:
            if self._went_on:
                raise self._unfinished(cut)
            self._notes["cut_after_finish"] = None
        meaning = self._meaning(self._finish)
        if meaning is Meaning.ERROR:
            raise self._finished_badly()
        if any(held.half for held in self._blocks.values()):
            raise _malformed("The answer ends inside a character.", code="malformed_event")
        settled = meaning not in (Meaning.TRUNCATED, Meaning.FILTERED)
        arguments = [self._closed_arguments(held, settled) for _, held in self._held_calls()]
        self._weigh(meaning, calls=bool(arguments), said=answer.text or answer.refusal)
        calls = self._whole_calls(arguments)
        return structs.replace(
            answer,
            blocks=self._whole_blocks(calls),
            calls=calls,
            problems=self._problems(calls),
            meaning=Meaning.NEEDS_TOOL if calls and meaning is Meaning.COMPLETE else meaning,
        )

    def _meaning(self, finish: Finished) -> Meaning:
        """Return what the finish means, beside the tokens where it does not tell by itself."""
        limit, used = self._max_output_tokens, self._usage.output
        cut = limit is not None and used is not None and used >= limit
        if finish.meaning is Meaning.COMPLETE and not finish.tells_cut and cut:
            self._notes["cut_not_told"] = None
            return Meaning.TRUNCATED
        return finish.meaning

    def _unfinished(self, cut: str | None) -> _Uncommittable:
        if self._ended:
            return _Uncommittable(
                "missing_finish_reason",
                "The provider ended its stream without saying how it finished.",
                retryable=True,
            )
        how = "The body ended" if cut is None else f"The connection was cut ({cut})"
        return _Uncommittable(
            "stream_incomplete",
            f"{how} before the provider said that it had finished.",
            retryable=True,
            definite=False,
        )

    def _finished_badly(self) -> _Uncommittable:
        assert self._finish is not None
        word = self._finish.word
        return _Uncommittable(word, f"The provider finished with {word!r}.", retryable=True)

    def _weigh(self, meaning: Meaning, *, calls: bool, said: str | None) -> None:
        """Compare the finish with what was sent.

        Raises:
            _Uncommittable: It does not mean this, or does not allow a commit.
        """
        match meaning:
            case Meaning.COMPLETE | Meaning.PAUSED:
                pass
            case Meaning.NEEDS_TOOL:
                if not calls:
                    raise _malformed("The provider finished for a tool call and sent none.")
            case Meaning.TRUNCATED:
                if calls or not said or not self._commit_truncated:
                    raise _Uncommittable(
                        "truncated_by_length",
                        "The answer was cut by the limit on its length.",
                        retryable=False,
                    )
            case Meaning.FILTERED:
                raise _Uncommittable(
                    "content_filter", "The provider withheld the answer.", retryable=False
                )
            case Meaning.ERROR | Meaning.UNKNOWN:
                raise self._finished_badly()
            case _:
                assert_never(meaning)

    def _closed_arguments(self, held: _Call, settled: bool) -> str:
        """Return the argument text of a call, parsed for the first time here.

        Raises:
            _Uncommittable: It is half, no object, or nothing that can be kept exactly.
        """
        text = "".join(held.parts)
        if settled and not text.strip():
            text = "{}"
        name = held.name or "a tool"
        stopped = held.stopped or not held.needs_stop
        match worth(text) if stopped else Worth.OPEN:
            case Worth.WHOLE:
                return text
            case Worth.OPEN:
                raise _Uncommittable(
                    "unclosed_arguments",
                    f"The arguments for {name} are not complete.",
                    retryable=settled,
                )
            case Worth.UNFIT:
                raise _malformed(
                    f"The arguments for {name} are no object that can be kept exactly."
                )

    def _whole_calls(self, arguments: list[str]) -> tuple[ToolCall, ...]:
        """Return the calls as blocks.

        Raises:
            _Uncommittable: One has no name, or none that the provider takes back, or an id that
                is not its own.
        """
        calls: list[ToolCall] = []
        seen: set[str] = set()
        for (block, held), text in zip(self._held_calls(), arguments, strict=True):
            if not held.name:
                raise _malformed("A call came without the name of its tool.")
            name = self._tool_names.get(held.name, held.name)
            check = None if self._tools is None else self._tools.get(name)
            if check is None and not self._takes_name(held.name):
                raise _malformed(f"{held.name[:80]!r} is no name for a tool.")
            call_id = held.call_id or self._made_id(block, "missing_call_id")
            if call_id in seen:
                raise _Uncommittable(
                    "duplicate_call_id",
                    f"Two calls of the answer have the id {call_id!r}.",
                    retryable=True,
                )
            seen.add(call_id)
            if call_id in self._known_call_ids:
                call_id = self._made_id(block, "reused_call_id")
            calls.append(
                ToolCall(
                    call_id=CallId(call_id),
                    name=name,
                    arguments=text,
                    schema_digest=None if check is None else check.digest,
                    opaque=held.opaque,
                )
            )
        return tuple(calls)

    def _takes_name(self, name: str) -> bool:
        return self._names is None or self._names.fullmatch(name) is not None

    def _made_id(self, block: int, why: str) -> str:
        """Return an id for a call that came without one of its own: the same for the same answer.

        Where the line has that id already the next one is taken, since servers that leave out
        or repeat ids tend to repeat their handles too.
        """
        self._notes[why] = None
        turn = 0
        while True:
            place = f"{self._handle or ''}\n{block}\n{turn}".encode()
            made = f"call_{digest(NO_KEY, 'call_id', place)[:24]}"
            if made not in self._known_call_ids:
                return made
            turn += 1

    def _problems(self, calls: tuple[ToolCall, ...]) -> dict[CallId, str]:
        if self._tools is None:
            return {}
        problems: dict[CallId, str] = {}
        for call in calls:
            check = self._tools.get(call.name)
            problem = "there is no such tool" if check is None else check.problem(call.arguments)
            if problem is not None:
                problems[call.call_id] = problem
        return problems

    def _whole_blocks(self, calls: tuple[ToolCall, ...]) -> tuple[Block, ...]:
        waiting = iter(calls)
        blocks: list[Block] = []
        for _, held in sorted(self._blocks.items()):
            if type(held) is _Call:
                blocks.append(next(waiting))
            elif type(held) is _Text and (held.length or held.opaque):
                blocks.append(_block(held))
        if all(type(block) is Reasoning for block in blocks):
            blocks.append(Text(text=""))
        return tuple(blocks)

    def _held_calls(self) -> list[tuple[int, _Call]]:
        return [(n, held) for n, held in sorted(self._blocks.items()) if type(held) is _Call]

    def _joined(self, channel: Channel) -> str:
        held = [b for _, b in sorted(self._blocks.items()) if type(b) is _Text]
        return "".join("".join(b.parts) for b in held if b.channel is channel)


def _block(held: _Text) -> Block:
    text = "".join(held.parts)
    match held.channel:
        case Channel.TEXT:
            return Text(text=text, opaque=held.opaque)
        case Channel.REASONING:
            return Reasoning(text=text, opaque=held.opaque)
        case Channel.REFUSAL:
            return Refusal(text=text)
        case _:
            assert_never(held.channel)


def _malformed(message: str, *, code: str = "malformed_function_call") -> _Uncommittable:
    return _Uncommittable(code, message, retryable=True)
