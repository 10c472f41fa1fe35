"""What may be sent: the rules of the graph, as one pass over a line that can be continued.

`LineChecker` is fed message by message and may be asked for its verdict after each: asking
changes nothing, so a line that has been judged once costs one step per new message. These
rules hold for every provider; those of one dialect stand in `antiphon.core.rules.dialect`
and run beside them when a profile is given.

It knows blocks and their ids, not the text of a request: whoever parsed a request turns the
ids in a finding back into places of it.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec

from antiphon.core.blocks import (
    Audio,
    File,
    Image,
    Message,
    Reasoning,
    Refusal,
    Role,
    Status,
    Text,
    ToolCall,
    ToolResult,
    Trust,
    Unknown,
    block_id,
    part_id,
)
from antiphon.core.digests import NO_KEY
from antiphon.core.ids import CallId, ConversationId, Digest, MessageId
from antiphon.core.manifest import ToolDeclaration
from antiphon.core.rules.dialect import INSTRUCTING, ProfileRules
from antiphon.core.rules.findings import Finding, ordered
from antiphon.core.rules.media import MEDIA, unreadable
from antiphon.core.rules.profile import Profile
from antiphon.core.rules.profile_reading import KIND_NAMES
from antiphon.core.tools.ledger import arguments_digest
from antiphon.errors import InvalidInput

BELOW_INSTRUCTION: Final = frozenset({Trust.MODEL, Trust.TOOL, Trust.RETRIEVED})
ASSISTANT_KINDS: Final = frozenset({ToolCall, Reasoning, Refusal})

WORDS_OF_FORMS: Final = frozenset(
    {"text", "image", "document", "thinking", "tool_use", "tool_result", "image_url", "input_audio"}
    | {"file", "input_text", "output_text", "input_image", "input_file", "functionCall", "toolUse"}
    | {"functionResponse", "toolResult", "function_call", "function_call_output"}
)
"""What one provider's form calls a block that every form has: people bring one form to another."""

_is_json: Final = msgspec.json.Decoder(msgspec.Raw).decode


@dataclass(frozen=True, slots=True)
class _CallIds:
    """The ids of a line's calls, without copying them."""

    open: Container[str]
    answered: Container[str]

    def __contains__(self, call_id: object) -> bool:
        return call_id in self.open or call_id in self.answered


class Judged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What has passed the rules since a line last rested, and where it rests now.

    Attributes:
        messages: Those that came.
        answered: The calls that came, each with its result.
        position: How many blocks the whole line has.
    """

    messages: tuple[MessageId, ...]
    answered: tuple[CallId, ...] = ()
    position: int


class LineChecker:
    """Judges one line of messages, root first.

    Args:
        profile: The dialect that it is meant for; None judges by the graph rules alone.
        mapped: Whether what the profile can map safely will be mapped. False judges the line
            as it stands, as one does with a request that somebody else has made.
        tools: What is declared with it.
        key: The tenant's key, under which the results' argument digests were made.
        conversation: Whose line it is; None takes that of the first message.

    Example:
        >>> [finding.code for finding in LineChecker().finish()]
        ['empty_sequence']
    """

    __slots__ = (
        "_answered",
        "_conversation",
        "_early",
        "_findings",
        "_ids",
        "_key",
        "_last",
        "_open",
        "_pending",
        "_position",
        "_profile_rules",
        "_unlisted",
    )

    def __init__(
        self,
        profile: Profile | None = None,
        *,
        mapped: bool = True,
        tools: Collection[ToolDeclaration] = (),
        key: bytes = NO_KEY,
        conversation: ConversationId | None = None,
    ) -> None:
        self._key = key
        self._findings: list[Finding] = []
        self._position = 0
        self._ids: dict[MessageId, None] = {}  # in their order, as are those of calls
        self._conversation = conversation
        self._last: MessageId | None = None
        self._pending: Message | None = None
        self._open: dict[CallId, tuple[int, MessageId, int, ToolCall]] = {}
        self._answered: dict[CallId, None] = {}
        self._early: dict[CallId, Finding] = {}
        self._unlisted: set[CallId] = set()
        self._profile_rules = (
            ProfileRules(profile, mapped=mapped, tools=tools, findings=self._findings)
            if profile is not None
            else None
        )

    def copy(self) -> LineChecker:
        """Return a checker that stands where this one stands, for another branch."""
        other = LineChecker.__new__(LineChecker)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other._findings = self._findings.copy()
        other._ids = self._ids.copy()
        other._open = self._open.copy()
        other._answered = self._answered.copy()
        other._early = self._early.copy()
        other._unlisted = self._unlisted.copy()
        if self._profile_rules is not None:
            other._profile_rules = self._profile_rules.copy(other._findings)
        return other

    @property
    def open_calls(self) -> tuple[CallId, ...]:
        """The calls that wait for their result. While there are any, the run waits too."""
        return tuple(self._open)

    @property
    def call_ids(self) -> Container[str]:
        """The ids of all calls on the line, answered or not. A view: it grows with the line."""
        return _CallIds(self._open, self._answered)

    @property
    def waiting(self) -> bool:
        """Whether any call waits for its result."""
        return bool(self._open)

    @property
    def refused(self) -> bool:
        """Whether nothing that may still come can make the line legal."""
        return bool(self._findings or self._early)

    def rested(self, messages: int, answered: int) -> Judged | None:
        """Return what passed behind the first `messages` and `answered` calls; None unless it rests.

        A line rests where the assistant has spoken, everything before is legal and no call is
        open: nothing but these few facts decides what is legal behind it, once a user speaks.
        """
        rules = self._profile_rules
        rests = rules is not None and rules.rests and self._pending is None
        if not rests or self._open or self.refused:
            return None
        return Judged(
            messages=tuple(islice(self._ids, messages, None)),
            answered=tuple(islice(self._answered, answered, None)),
            position=self._position,
        )

    def resume(self, judged: Sequence[Judged], last: Message) -> None:
        """Stand where the line rested that these came of, behind `last`; to be asked of a new one.

        The next message has to be a user's.
        """
        for part in judged:
            self._ids.update(dict.fromkeys(part.messages))
            self._answered.update(dict.fromkeys(part.answered))
        self._position = judged[-1].position
        self._last, self._conversation = last.id, last.conversation
        if self._profile_rules is not None:
            self._profile_rules.resume(len(self._ids), last)

    def feed(self, message: Message) -> None:
        """Take the next message of the line."""
        start, blocks = self._position, message.blocks
        if not blocks and message.erased:
            # Not what its profile says of one that is empty: it was not, and nobody knows it now.
            self._find(
                "content_erased",
                message.id,
                start,
                "What this message said was erased. Go on from a message above it, or begin anew.",
            )
        elif self._profile_rules is not None:
            self._profile_rules.feed(message, start, self._open)
        self._position = start + (len(blocks) or 1)
        if self._pending is not None:
            self._follows_pending(message, self._pending, start)
        if message.status is not Status.SUCCESS:
            self._stands(message, start)
        if message.conversation != self._conversation or message.parent != self._last:
            self._belongs(message, start)
        self._last = message.id
        if message.id in self._ids:
            self._find(
                "message_id_conflict",
                message.id,
                start,
                "This message stands twice on one line. Keep one of the two.",
            )
        self._ids[message.id] = None
        role = message.role
        if role in INSTRUCTING and message.trust in BELOW_INSTRUCTION:
            self._find(
                "trust_violation",
                message.id,
                start,
                f"What a {message.trust} vouches for may not stand as {role} text. Put it into a user message.",
            )
        if role is Role.TOOL and not blocks and not message.erased:
            self._find(
                "malformed_item",
                message.id,
                start,
                "A tool message holds the result of one call; this one holds none.",
            )
        for order, block in enumerate(blocks):
            kind = type(block)
            if kind is Text and role is not Role.TOOL:
                continue
            if kind is ToolResult and role is Role.TOOL:
                self._result(message, order, start + order, block)  # type: ignore[arg-type]
            elif kind is ToolCall and role is Role.ASSISTANT:
                self._call(message, order, start + order, block)  # type: ignore[arg-type]
            else:
                self._other(message, order, start + order, kind)

    def finish(self) -> tuple[Finding, ...]:
        """Return what is wrong with the line as it stands; first reason first, () for nothing.

        A pending message is the run's input while it is the last one, unless it is the
        assistant's: nothing unfinished of a model is ever shown to a model.
        """
        found = [*self._findings, *self._early.values(), *self._missing()]
        if not self._position:
            found.append(
                Finding(
                    code="empty_sequence",
                    at="messages",
                    message="There is nothing to send. Add at least one message.",
                )
            )
        if self._pending is not None and self._pending.role is Role.ASSISTANT:
            found.append(_uncommitted(self._pending, self._position - 1))
        if self._profile_rules is not None:
            found += self._profile_rules.finish(self._position)
        return ordered(found)

    def _missing(self) -> Iterable[Finding]:
        by_message: dict[MessageId, tuple[int, int, list[CallId]]] = {}
        for call_id, (position, message_id, order, _) in self._open.items():
            if call_id not in self._unlisted:
                by_message.setdefault(message_id, (position, order, []))[2].append(call_id)
        for message_id, (position, order, call_ids) in by_message.items():
            yield Finding(
                code="missing_tool_result",
                at=block_id(message_id, order),
                position=position,
                call_ids=tuple(call_ids),
                message=f"{_calls(call_ids)} no result. Add one for each, if only to say that it did not run.",
            )

    def _stands(self, message: Message, start: int) -> None:
        if message.status is Status.PENDING:
            self._pending = message
        else:
            self._uncommitted(message, start)

    def _follows_pending(self, message: Message, pending: Message, start: int) -> None:
        """A run's first commit makes its input a success: what follows may prove the commit."""
        self._pending = None
        answers = message.role is Role.ASSISTANT and message.parent == pending.id
        if not (answers and message.run == pending.run and message.status is Status.SUCCESS):
            self._uncommitted(pending, start - 1)

    def _uncommitted(self, message: Message, position: int) -> None:
        self._findings.append(_uncommitted(message, position))

    def _belongs(self, message: Message, start: int) -> None:
        if self._conversation is None:
            self._conversation = message.conversation
        elif message.conversation != self._conversation:
            self._find(
                "foreign_branch",
                message.id,
                start,
                "This message belongs to another conversation. Send the ancestors of one leaf only.",
            )
        elif message.parent in self._ids and message.parent != self._last:
            self._find(
                "foreign_branch",
                message.id,
                start,
                f"It answers {message.parent}, not {self._last} before it: two branches stand on one line.",
            )

    def _call(self, message: Message, order: int, position: int, call: ToolCall) -> None:
        call_id = call.call_id
        if not call_id or not call.name:
            what = "no id, so no result could name it" if not call_id else "no tool's name"
            self._find(
                "malformed_item", block_id(message.id, order), position, f"This call has {what}."
            )
        if call_id in self._open or call_id in self._answered:
            self._find(
                "duplicate_call_id",
                block_id(message.id, order),
                position,
                f"Another call has the id {call_id} already. Give each call an id of its own, on the result too.",
                call_id,
            )
        elif call_id:
            self._open[call_id] = (position, message.id, order, call)
            if self._early:
                self._before(call_id)
        if not call.closed or not _parses(call.arguments):
            self._find(
                "unclosed_arguments",
                block_id(message.id, order),
                position,
                f"The arguments of {call.name or 'this call'} are not whole JSON, so the call was never finished. "
                "Drop the message or ask the model again.",
                call_id,
            )

    def _before(self, call_id: CallId) -> None:
        early = self._early.pop(call_id, None)
        if early is not None:
            self._unlisted.add(call_id)
            self._findings.append(
                msgspec.structs.replace(
                    early,
                    code="result_before_call",
                    message=f"The result of {call_id} stands before its call. Move it behind the message that asks for it.",
                )
            )

    def _result(self, message: Message, order: int, position: int, result: ToolResult) -> None:
        call_id = result.call_id
        for number, part in enumerate(result.content):
            if type(part) is not Text:
                self._media(part_id(block_id(message.id, order), number), position, part)
        entry = self._open.pop(call_id, None)
        if entry is not None:
            self._answered[call_id] = None
            if (
                result.name is not None
                or result.arguments_digest is not None
                or result.generation is not None
            ):
                self._matches(block_id(message.id, order), position, entry[3], result)
        elif not call_id:
            self._find(
                "malformed_item",
                block_id(message.id, order),
                position,
                "A tool result has to name the call that it answers; this one names none.",
            )
        elif call_id in self._answered or call_id in self._early:
            self._find(
                "duplicate_tool_result",
                block_id(message.id, order),
                position,
                f"The call {call_id} has its result already. A call has exactly one; remove the other.",
                call_id,
            )
        else:
            self._early[call_id] = Finding(
                code="orphan_tool_result",
                at=block_id(message.id, order),
                position=position,
                call_ids=(call_id,),
                message=f"No message before it makes the call {call_id}. Keep a call and its result together, or drop both.",
            )

    def _matches(self, at: str, position: int, call: ToolCall, result: ToolResult) -> None:
        call_id = call.call_id
        if result.name is not None and result.name != call.name:
            message = f"It answers {call_id} as {result.name}, but that call is of {call.name}."
            self._find("tool_mismatch", at, position, message, call_id)
        if result.arguments_digest is not None and result.arguments_digest != self._digest(call):
            message = f"The tool ran with other arguments than {call_id} has. Its result answers another call."
            self._find("arguments_mismatch", at, position, message, call_id)
        if None is not result.generation != call.generation is not None:
            message = (
                f"It is the result of generation {result.generation}, the call of generation {call.generation}: "
                "another attempt asked for it."
            )
            self._find("generation_mismatch", at, position, message, call_id)

    def _digest(self, call: ToolCall) -> Digest | None:
        try:
            return arguments_digest(self._key, call.name, call.arguments.strip() or "{}")
        except InvalidInput:
            return None  # unclosed_arguments says so already

    def _other(self, message: Message, order: int, position: int, kind: type) -> None:
        at, role = block_id(message.id, order), message.role
        if kind is Unknown:
            block = message.blocks[order]
            name = block.name if isinstance(block, Unknown) else ""
            sentence = (
                f"{name!r} is another form's word; this one has a word of its own for such a block."
                if name in WORDS_OF_FORMS
                else f"This release does not know blocks of kind {name!r}, and what it does not know it does not send."
            )
            self._find("unknown_block_kind", at, position, sentence)
        elif role is Role.TOOL:
            self._find(
                "malformed_item",
                at,
                position,
                f"A tool message holds results only, no {_kind(kind)} block.",
            )
        elif kind in MEDIA:
            self._media(at, position, message.blocks[order])
        elif kind is ToolResult or (kind in ASSISTANT_KINDS and role is not Role.ASSISTANT):
            owner = "tool" if kind is ToolResult else "assistant"
            self._find(
                "malformed_item",
                at,
                position,
                f"A {_kind(kind)} block stands in {owner} messages, not in {role} ones.",
            )

    def _media(self, at: str, position: int, block: object) -> None:
        if isinstance(block, Image | Audio | File) and unreadable(block):
            self._find(
                "malformed_item",
                at,
                position,
                f"The data of this {_kind(type(block))} is not base64. Encode its bytes, and nothing else.",
            )

    def _find(self, code: str, at: str, position: int, message: str, *call_ids: str) -> None:
        self._findings.append(
            Finding(code=code, at=at, position=position, message=message, call_ids=call_ids)
        )


def check(
    messages: Iterable[Message],
    profile: Profile | None = None,
    *,
    mapped: bool = True,
    tools: Collection[ToolDeclaration] = (),
    key: bytes = NO_KEY,
) -> tuple[Finding, ...]:
    """Return what is wrong with a whole line; see `LineChecker` for the arguments."""
    checker = LineChecker(profile, mapped=mapped, tools=tools, key=key)
    for message in messages:
        checker.feed(message)
    return checker.finish()


def _uncommitted(message: Message, position: int) -> Finding:
    what = (
        "is not committed yet" if message.status is Status.PENDING else f"ended as {message.status}"
    )
    return Finding(
        code="uncommitted_block",
        at=message.id,
        position=position,
        message=f"This message {what}, and a model may only see what is committed. Leave it out of the line.",
    )


def _parses(arguments: str) -> bool:
    try:
        _is_json(arguments)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return not arguments.strip()  # a call without arguments, as some servers spell it
    return True


def _calls(call_ids: list[CallId]) -> str:
    if len(call_ids) == 1:
        return f"The call {call_ids[0]} has"
    return f"The calls {', '.join(call_ids[:-1])} and {call_ids[-1]} have"


def _kind(kind: type) -> str:
    return KIND_NAMES.get(kind, kind.__name__.lower())
