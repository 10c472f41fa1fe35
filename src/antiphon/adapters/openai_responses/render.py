"""A line as the exact bytes of an OpenAI Responses request.

The body begins with everything that does not change from turn to turn, instructions last of
it, and `input` ends it: a history that grows leaves every byte before its new items as it was.
Each message becomes items once.

What is mapped on the way, and nothing else is: the system text that leads a line to the
instructions, results to directly behind their calls, call ids into a length that the provider
takes, reasoning left out that is another model's, that cannot be read again, that was not thought
behind this line or that nothing followed, and then the ids of the items that had come with it, as are ids of a form that no item may have; a refusal as the text that it is;
names and empty texts left out. Each is told to the manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Self

import msgspec

from antiphon.adapters.base import Closed, GrowingBody, Rendering
from antiphon.adapters.line import Line
from antiphon.adapters.naming.tool_names import ToolNames
from antiphon.adapters.openai_responses import items
from antiphon.adapters.openai_responses.head import head
from antiphon.adapters.openai_responses.profile import Wire, same_model
from antiphon.core.blocks import (
    Block,
    File,
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
from antiphon.core.ids import ConversationId, Digest
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.rules.findings import Finding
from antiphon.core.rules.profile import Profile
from antiphon.errors import InternalError, SequenceRejected

NOTHING_SAID: Final = Finding(
    code="empty_sequence",
    at="messages",
    message="Nothing is left to send but empty texts. Add at least one message.",
)

_encode: Final = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Answer:
    """What an assistant's message comes to, item by item.

    Texts that came as parts of one item are one again; `named` says whether items go out under
    the names that they came with.
    """

    named: bool
    made: list[bytes] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    state: items.State = items.NOTHING

    def text(self, text: str, state: items.State) -> None:
        """Add a text, as a part of the item before it where both came in one."""
        if not (self.named and state.id is not None and state == self.state):
            self.close()
        self.texts.append(text)
        self.state = state

    def item(self, item: bytes) -> None:
        """Add an item of its own."""
        self.close()
        self.made.append(item)

    def close(self) -> None:
        """End the item of text that may still have grown."""
        if self.texts:
            name = self.state.id if self.named else None
            self.made.append(items.said(self.texts, self.state.phase, name))
            self.texts = []
            self.state = items.NOTHING


class _Rest(msgspec.Struct, frozen=True, kw_only=True):
    """What a line goes on by where it rests."""

    instructions: str | None


_decode_rest: Final = msgspec.json.Decoder(_Rest).decode


class ResponsesLine(Line):
    """One line, checked and rendered as it grows."""

    def __init__(
        self,
        profile: Profile,
        wire: Wire,
        policy: Policy,
        tools: Sequence[ToolDeclaration],
        *,
        key: bytes,
        conversation: ConversationId | None,
    ) -> None:
        names = ToolNames(profile, tools)
        accept = "text/event-stream" if policy.stream else "application/json"
        super().__init__(
            profile,
            policy,
            tools,
            names,
            url=wire.url(policy.endpoint),
            headers=(("accept", accept), ("content-type", "application/json")),
            key=key,
            conversation=conversation,
        )
        self._head = head(names.chosen(policy), names.declared, wire)
        self._instructions = policy.instructions or None
        self._leader: Message | None = None  # system text that nothing has followed yet
        self._body: GrowingBody | None = None
        self._empty = True
        self._waiting: list[tuple[Message, Digest | None]] = []

    def finish(self) -> Rendering:
        """Return the request for the line as it stands; it may be fed further afterwards.

        Raises:
            SequenceRejected: It may not be sent.
        """
        self._judge()
        if self._leader is not None:
            # Nothing follows that it could instruct: there has to be some input.
            other = self.copy()
            other._leader = None
            other._place(self._leader, None)
            return other.finish()
        if self._body is None:
            raise SequenceRejected([NOTHING_SAID])
        return self._rendering()

    def _closed(self) -> Closed:
        assert self._body is not None
        return self._body.finish(b"]}")

    def _growing(self) -> tuple[GrowingBody, int] | None:
        return (self._body, 0) if self._body is not None else None

    def _rest(self) -> _Rest | None:
        owed = self._waiting or self._leader is not None
        return None if owed else _Rest(instructions=self._instructions)

    def _stand(self, items: bytes, rest: bytes) -> None:
        self._instructions = _decode_rest(rest).instructions
        self._body = self._new_body()
        self._body.append(items)
        self._empty = not items

    def copy(self) -> Self:
        """Return a line that stands where this one stands, for another branch."""
        other = super().copy()
        other._body = self._body and self._body.copy()
        other._waiting = self._waiting.copy()
        return other

    # Order: what goes out after what.

    def _take(self, message: Message, owed: bool) -> None:
        if self._leads(message):
            self._leader = message
            return
        if self._leader is not None:
            self._instruct(self._leader)
        if message.role is Role.TOOL:
            for order, block in enumerate(message.blocks):
                if isinstance(block, ToolResult):
                    self._add(self._result(block_id(message.id, order), block))
            if not self._checker.waiting:
                for late, behind in self._waiting:
                    detail = "sent after the results that it stood before"
                    self._map("result_hoisted", late.id, detail)
                    self._place(late, behind)
                self._waiting.clear()
        elif owed and not message.calls:
            # The calls before it are owed their results first.
            self._waiting.append((message, self._sequence))
        else:
            # Its own calls go out before anything can answer them.
            for early, behind in self._waiting:
                self._place(early, behind)
            self._waiting.clear()
            self._place(message, self._sequence)

    def _leads(self, message: Message) -> bool:
        """Whether a message may be the instructions: the first, and a single text of the system."""
        free = self._body is None and self._leader is None and self._instructions is None
        blocks = message.blocks
        plain = len(blocks) == 1 and isinstance(blocks[0], Text) and bool(blocks[0].text)
        return free and plain and message.role is Role.SYSTEM

    def _instruct(self, leader: Message) -> None:
        if leader.name is not None:
            self._map("name_dropped", leader.id)
        self._instructions = leader.text
        self._leader = None

    def _place(self, message: Message, behind: Digest | None) -> None:
        """Put a message at the end; `behind` is the digest of the line that it followed."""
        if message.name is not None:
            self._map("name_dropped", message.id)
        if message.role is Role.ASSISTANT:
            self._answer(message, behind)
            return
        for order, block in enumerate(message.blocks):
            self._name(block_id(message.id, order), block)
        self._add(items.message(message.role, message.blocks, message.id))

    def _add(self, item: bytes) -> None:
        if self._body is None:
            self._body = self._new_body()
        self._body.append(item if self._empty else b"," + item)
        self._empty = False

    def _new_body(self) -> GrowingBody:
        said = self._instructions
        instructions = b',"instructions":' + _encode(said) if said is not None else b""
        return self._begun(self._head + instructions + b',"input":[')

    # Content: one message of ours as items of theirs.

    def _answer(self, message: Message, behind: Digest | None) -> None:
        """Place what the model said. Reasoning goes back with all that followed it, or not at all."""
        blocks = message.blocks
        thoughts = [n for n, block in enumerate(blocks) if isinstance(block, Reasoning)]
        blanks = [n for n, block in enumerate(blocks) if isinstance(block, Text) and not block.text]
        left_out = self._left_out(message, behind) if thoughts or blanks else {}
        answer = _Answer(named=bool(thoughts) and left_out.keys().isdisjoint(thoughts))
        for order, block in enumerate(blocks):
            at = block_id(message.id, order)
            state = items.NOTHING
            if isinstance(block, Text | ToolCall):
                state = items.state_of(block.opaque, self._profile.name)
            if order in left_out:
                rule = "reasoning_dropped" if order in thoughts else "empty_text_dropped"
                self._map(rule, at, left_out[order])
                continue
            begins = "fc" if isinstance(block, ToolCall) else "msg"
            fits = answer.named and items.goes_back(state.id, begins)
            if state.id is not None and not fits:
                self._map("item_id_dropped", at, state.id)
                state = msgspec.structs.replace(state, id=None)
            match block:
                case Reasoning(opaque=kept) if kept is not None:
                    answer.item(self._as_it_came(at, kept))
                case ToolCall():
                    answer.item(self._call(at, block, state.id))
                case Text(text=text):
                    answer.text(text, state)
                case Refusal(text=text):
                    self._map("refusal_as_text", at)
                    answer.text(text, items.NOTHING)
                case _:
                    raise InternalError(f"{type(block).__name__} passed the rules.", at=at)
        answer.close()
        if not answer.made:
            self._map("empty_message_dropped", message.id)
        for item in answer.made:
            self._add(item)

    def _as_it_came(self, at: str, kept: Opaque) -> bytes:
        """Return an item of the model's that goes back, without an id that would be refused."""
        item = bytes(kept.value)
        name = items.thought_of(kept).id
        if items.goes_back(name or None, "" if kept.work else "rs"):
            return item
        self._map("item_id_dropped", at, name)
        return items.unnamed(item)

    def _left_out(self, message: Message, behind: Digest | None) -> dict[int, str]:
        """Return which blocks of the model's are left out, and why."""
        left_out = {
            n: why for n in range(len(message.blocks)) if (why := self._unfit(message, n, behind))
        }
        kept = [
            (order, block.opaque)
            for order, block in enumerate(message.blocks)
            if isinstance(block, Reasoning) and block.opaque is not None
        ]
        thoughts = [order for order, state in kept if not state.work]
        if thoughts and left_out.keys() >= set(thoughts):
            # What the provider did in the course of it is only known together with it.
            for order, state in kept:
                if state.work and items.thought_of(state).type != "compaction":
                    left_out.setdefault(order, "the reasoning that led to it is not sent")
        return left_out

    def _unfit(self, message: Message, order: int, behind: Digest | None) -> str:
        """Return why a block of the model's is left out, or nothing."""
        block = message.blocks[order]
        if isinstance(block, Text):
            return "" if block.text else "it says nothing"
        if not isinstance(block, Reasoning):
            return ""
        state = block.opaque
        if state is None:
            return "nothing was kept that could go back"
        if state.profile != self._profile.name:
            return f"{state.profile} made it"
        if state.work:
            return ""
        if message.origin is Origin.COPIED:
            return "it was made for another history"
        if not same_model(state.model, self._model):
            return f"{state.model} made it"
        if state.prefix is not None and state.prefix != behind:
            return "what came before it has changed"
        if not items.thought_of(state).readable:
            return "only its name was kept"
        if not any(_follows(later) for later in message.blocks[order + 1 :]):
            return "nothing came of it"
        return ""

    def _call(self, at: str, block: ToolCall, item_id: str | None) -> bytes:
        call_id = self._ids.sent_as(block.call_id)
        if call_id != block.call_id:
            self._map("call_id_respelled", at, f"{block.call_id} as {call_id}")
        arguments = block.arguments
        if not arguments.strip():
            self._map("empty_arguments", at, "as an empty object")
            arguments = "{}"
        return items.call(block, call_id, arguments, item_id)

    def _result(self, at: str, block: ToolResult) -> bytes:
        for part in block.content:
            self._name(at, part)
        return items.result(block, self._ids.sent_as(block.call_id), at)

    def _name(self, at: str, block: Block) -> None:
        if isinstance(block, File) and block.data is not None and block.filename is None:
            self._map("file_named", at, items.UNNAMED_FILE)


def _follows(block: Block) -> bool:
    """Whether a block is an item that reasoning may have led to."""
    if isinstance(block, Reasoning):
        return block.opaque is not None and block.opaque.work
    return not isinstance(block, Text) or bool(block.text)
