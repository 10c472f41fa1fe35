"""A line as a body whose neighbours of one role are one message, and whose system text stands apart.

The body begins with everything that does not change from turn to turn, system text last of it,
and `messages` ends it. The last message stays open, since what comes next may belong to it: a
history that grows leaves every byte before it as it was.

Several APIs are built like this. What is theirs alone, how a block is written and what of a
model's state may go back to it, is left to the dialect. Mapped here, and told to the manifest:
system and developer text to the top, or, where the model takes it there, behind the user's
message; neighbours of one role into one message; results to directly behind their calls; call
ids into the spelling of the wire; blank texts, names and reasoning that is not this model's own,
or not behind the line that it was made behind, left out; a refusal as the text that it is.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import msgspec

from antiphon.adapters.base import Closed, GrowingBody, Rendering
from antiphon.adapters.contents import is_blank
from antiphon.adapters.line import Line
from antiphon.adapters.naming.tool_names import ToolNames
from antiphon.core.blocks import (
    Block,
    Message,
    Opaque,
    Origin,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
    block_id,
)
from antiphon.core.ids import ConversationId, Digest, MessageId
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.rules.dialect import INSTRUCTING
from antiphon.core.rules.findings import Finding
from antiphon.core.rules.profile import Profile
from antiphon.errors import InternalError, SequenceRejected

USER: Final = "user"
ASSISTANT: Final = "assistant"


class Start(NamedTuple):
    """What of a request does not depend on its line: where it goes, and the body up to system text.

    `names` are those that its tools are declared by.
    """

    url: str
    headers: tuple[tuple[str, str], ...]
    head: bytes
    names: ToolNames


class _Rest(msgspec.Struct, frozen=True, kw_only=True):
    """What a line goes on by where it rests: its system text, and the message that is open."""

    system: list[str]
    speaker: str
    turn: list[str]


_decode_rest: Final = msgspec.json.Decoder(_Rest).decode


class TurnsLine(Line):
    """One line, checked and rendered as it grows. A dialect fills in what is its own."""

    def __init__(
        self,
        profile: Profile,
        policy: Policy,
        tools: Sequence[ToolDeclaration],
        start: Start,
        *,
        key: bytes,
        conversation: ConversationId | None,
    ) -> None:
        super().__init__(
            profile,
            policy,
            tools,
            start.names,
            url=start.url,
            headers=start.headers,
            key=key,
            conversation=conversation,
        )
        self._start = start
        self._between = Role.SYSTEM in profile.roles
        self._system: list[bytes] = []
        self._later: list[tuple[str, list[bytes]]] = []  # system text that waits for its place
        self._body: GrowingBody | None = None
        self._sealed: list[bytes] = []
        self._speaker: str | None = None
        self._turn: list[bytes] = []
        self._waiting: list[tuple[Message, Digest | None]] = []
        self._answered = False  # whether this turn has an answer
        self._in_loop = False  # whether the line ends in results
        self._unthought: MessageId | None = None  # this turn's first answer, without its thinking
        if policy.instructions and policy.instructions.strip():
            self._system.append(self._part(Text(text=policy.instructions), "instructions"))

    # What each dialect says in its own way.

    @abstractmethod
    def _part(self, block: Block, at: str) -> bytes:
        """Return a block that stands by itself."""

    @abstractmethod
    def _call(self, block: ToolCall, call_id: str, arguments: str) -> bytes:
        """Return a call under `call_id`; its arguments are one JSON object."""

    @abstractmethod
    def _result(self, block: ToolResult, call_id: str, at: str) -> bytes:
        """Return a result of the call `call_id`, without the texts of it that say nothing."""

    @abstractmethod
    def _kept(self, text: str, opaque: Opaque) -> bytes:
        """Return reasoning, or the provider's own work, as the provider had sent it."""

    @abstractmethod
    def _same_model(self, maker: str | None) -> bool:
        """Return whether what `maker` signed may be sent to the model that is asked."""

    def _is_of_text(self, opaque: Opaque) -> bool:
        """Return whether a state belongs to the text before it, such as what that cites."""
        return False

    def _citing(self, text: bytes, opaque: Opaque) -> bytes:
        """Return a text with its state; asked only of a dialect that has such."""
        raise InternalError("No state of this dialect belongs to a text.")

    def _closing(self) -> bytes:
        """Return what stands behind the last message."""
        return b"]}"

    def finish(self) -> Rendering:
        """Return the request for the line as it stands; it may be fed further afterwards.

        Raises:
            SequenceRejected: It may not be sent.
        """
        self._judge()
        if self._profile.reasoning_leads and self._in_loop and self._unthought is not None:
            raise SequenceRejected([_thinking_lost(self._unthought)])
        if self._later and self._speaker == ASSISTANT:
            # No user's message is left that it could stand behind.
            other = self.copy()
            other._all_to_the_top()
            return other.finish()
        return self._rendering()

    def _closed(self) -> Closed:
        return (self._body or self._new_body()).finish(self._ending())

    def _growing(self) -> tuple[GrowingBody, int] | None:
        return (self._body, 0) if self._body is not None else None

    def _rest(self) -> msgspec.Struct | None:
        if self._waiting or self._later or self._speaker is None:
            return None
        return _Rest(
            system=[part.decode() for part in self._system],
            speaker=self._speaker,
            turn=[part.decode() for part in self._turn],
        )

    def _stand(self, items: bytes, rest: bytes) -> None:
        stood = _decode_rest(rest)
        self._system = [part.encode() for part in stood.system]
        self._speaker, self._turn = stood.speaker, [part.encode() for part in stood.turn]
        self._sealed = [items] if items else []
        self._body = self._new_body()

    def copy(self) -> Self:
        """Return a line that stands where this one stands, for another branch."""
        other = super().copy()
        other._system = self._system.copy()
        other._later = self._later.copy()
        other._body = self._body and self._body.copy()
        other._sealed = self._sealed.copy()
        other._turn = self._turn.copy()
        other._waiting = self._waiting.copy()
        return other

    # Order: what goes out after what.

    def _take(self, message: Message, owed: bool) -> None:
        if message.role is Role.TOOL:
            self._in_loop = True
            for order, block in enumerate(message.blocks):
                if isinstance(block, ToolResult):
                    self._add(USER, [self._answer(block_id(message.id, order), block)])
            if not self._checker.waiting:
                for late, behind in self._waiting:
                    detail = "sent after the results that it stood before"
                    self._map("result_hoisted", late.id, detail)
                    self._place(late, behind)
                self._waiting.clear()
        elif owed and not message.calls:  # the calls before it are owed their results first
            self._waiting.append((message, self._sequence))
        else:
            # Its own calls go out before anything can answer them.
            for early, behind in self._waiting:
                self._place(early, behind)
            self._waiting.clear()
            self._place(message, self._sequence)

    def _place(self, message: Message, behind: Digest | None) -> None:
        """Put a message at the end; `behind` is the digest of the line that it followed."""
        self._in_loop = False
        if message.role is Role.USER:
            self._answered, self._unthought = False, None
        content = self._content(message, behind)
        self._answered = self._answered or message.role is Role.ASSISTANT
        if message.name is not None:
            self._map("name_dropped", message.id)
        if not content:
            self._map("empty_message_dropped", message.id)
        elif message.role in INSTRUCTING:
            self._instruct(message, content)
        else:
            speaker = ASSISTANT if message.role is Role.ASSISTANT else USER
            if speaker == self._speaker:
                detail = f"into the {speaker} message before it"
                self._map("merged_same_role", message.id, detail)
            self._add(speaker, content)

    def _instruct(self, message: Message, content: list[bytes]) -> None:
        if message.role is Role.DEVELOPER:
            self._map("developer_as_system", message.id)
        if self._speaker is None:
            self._system += content
        elif self._between:
            if self._speaker == ASSISTANT:
                self._map("system_moved", message.id, "behind the next user message")
            if self._later:
                self._map("merged_same_role", message.id, "into the system message before it")
            self._later.append((message.id, content))
        else:
            self._to_the_top(message.id, content)

    def _add(self, speaker: str, content: list[bytes]) -> None:
        """Put content at the end: into the open message of the same speaker, or a new one."""
        if speaker == self._speaker:
            if speaker == USER:
                for at, _ in self._later:
                    self._map("system_moved", at, "behind the next user message")
            self._turn += content
            return
        if self._speaker is not None:
            self._seal(_message(self._speaker, self._turn))
        if speaker == ASSISTANT and self._later:
            self._seal(self._said_later())
            self._later.clear()
        self._speaker, self._turn = speaker, content

    def _seal(self, piece: bytes) -> None:
        if self._sealed:
            piece = b"," + piece
        body = self._body = self._body or self._new_body()
        body.append(piece)
        self._sealed.append(piece)

    def _ending(self) -> bytes:
        open_ones = [_message(self._speaker, self._turn)] if self._speaker is not None else []
        if self._later:
            open_ones.append(self._said_later())
        comma = b"," if self._sealed and open_ones else b""
        return comma + b",".join(open_ones) + self._closing()

    def _said_later(self) -> bytes:
        """Return the system text that waits as the one message that it may be."""
        return _message("system", [part for _, content in self._later for part in content])

    def _new_body(self) -> GrowingBody:
        start = self._start
        fields = [start.head] if start.head != b"{" else []
        if self._system:
            fields.append(b'"system":[' + b",".join(self._system) + b"]")
        fields.append(b'"messages":[')
        body = self._begun((b"" if start.head in fields else start.head) + b",".join(fields))
        for piece in self._sealed:
            body.append(piece)
        return body

    def _to_the_top(self, at: str, content: list[bytes]) -> None:
        """Join system text to that at the top. All that was sent before moves."""
        self._map("system_hoisted", at, "to the top of the request")
        self._system += content
        self._body = self._new_body() if self._sealed else None

    def _all_to_the_top(self) -> None:
        for at, content in self._later:
            self._to_the_top(at, content)
        self._later.clear()

    # Content: one message of ours as parts of theirs.

    def _content(self, message: Message, behind: Digest | None) -> list[bytes]:
        content: list[bytes] = []
        for order, block in enumerate(message.blocks):
            at = block_id(message.id, order)
            match block:
                case Text() if block.text.strip():  # what most blocks are
                    content.append(self._part(block, at))
                case ToolCall():
                    content.append(self._asked(at, block))
                case Reasoning(opaque=state) if state is not None and self._is_of_text(state):
                    self._cite(message, order, state, content)
                case Reasoning():
                    kept = self._reasoning(message, at, block, behind)
                    if kept is not None:
                        content.append(kept)
                case _ if is_blank(block):
                    self._map("empty_text_dropped", at)
                case _:
                    if isinstance(block, Refusal):
                        self._map("refusal_as_text", at)
                    content.append(self._part(block, at))
        return content

    def _cite(self, message: Message, order: int, state: Opaque, content: list[bytes]) -> None:
        """Give the text before it what it cites."""
        text = message.blocks[order - 1] if order else None
        if isinstance(text, Text) and not is_blank(text):
            content[-1] = self._citing(content[-1], state)
        else:
            self._map("citations_dropped", block_id(message.id, order), "without their text")

    def _reasoning(
        self, message: Message, at: str, block: Reasoning, behind: Digest | None
    ) -> bytes | None:
        """Return reasoning as its model wants it back, or None where it is no longer valid there."""
        state = block.opaque
        if state is None:
            reason = "nobody signed it"
        elif state.profile != self._profile.name:
            reason = f"{state.profile} made it"
        elif state.work:
            return self._kept(block.text, state)
        elif message.origin is Origin.COPIED:
            reason = "it was signed for another history"
        elif not self._same_model(state.model):
            reason = f"{state.model} signed it"
        elif state.prefix is not None and state.prefix != behind:
            reason = "what came before it has changed"
        else:
            return self._kept(block.text, state)
        self._map("reasoning_dropped", at, reason)
        if not self._answered:
            self._unthought = message.id
        return None

    def _asked(self, at: str, block: ToolCall) -> bytes:
        call_id = self._ids.sent_as(block.call_id)
        if call_id != block.call_id:
            self._map("call_id_respelled", at, f"{block.call_id} as {call_id}")
        arguments = block.arguments
        if not arguments.strip():
            self._map("empty_arguments", at, "as an empty object")
            arguments = "{}"
        return self._call(block, call_id, arguments)

    def _answer(self, at: str, block: ToolResult) -> bytes:
        if any(is_blank(inner) for inner in block.content):
            self._map("empty_text_dropped", at)
        return self._result(block, self._ids.sent_as(block.call_id), at)


def _thinking_lost(at: MessageId) -> Finding:
    return Finding(
        code="thinking_missing",
        at=at,
        message="Thinking is enabled, and that of the calls under way cannot go back: it is not this model's, or what "
        "came before it has changed. Ask anew from the user's message, or turn thinking off.",
    )


def _message(role: str, content: list[bytes]) -> bytes:
    return b'{"role":"%s","content":[%s]}' % (role.encode(), b",".join(content))
