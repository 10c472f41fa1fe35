"""A line as the exact bytes of an OpenAI Chat Completions request.

The body begins with everything that does not change from turn to turn, and `messages` comes
last: a history that grows leaves every byte before its new messages as it was. Each message
becomes bytes once.

What is mapped on the way, and nothing else is: system and developer text into the role that
the model knows, neighbours of one role into one message where a template insists on turns,
call ids and the names of speakers into a spelling that the provider takes, results to directly behind their calls,
media out of results into a user message behind the last of them, reasoning left out that the
model does not want back or never said, and what a dialect has no place for: names, refusals,
text beside calls, answers of nothing. Each is told to the manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self, assert_never

import msgspec

from antiphon.adapters.base import Closed, GrowingBody
from antiphon.adapters.contents import failure
from antiphon.adapters.line import Line
from antiphon.adapters.naming.tool_names import ToolNames
from antiphon.adapters.openai_chat.head import Json, head
from antiphon.adapters.openai_chat.profile import NOT_IN_NAMES, OPENAIS, Wire, same_upstream
from antiphon.core.blocks import (
    Audio,
    Block,
    File,
    Image,
    Message,
    Opaque,
    Outcome,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
    Unknown,
    block_id,
)
from antiphon.core.ids import CallId, ConversationId, MessageId
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.rules.profile import Echo, Profile
from antiphon.core.rules.profile_reading import reading_of
from antiphon.errors import InternalError

INSTRUCTIONS: Final = MessageId("instructions")

_encode: Final = msgspec.json.Encoder().encode
_decode_list: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Rest(msgspec.Struct, frozen=True, kw_only=True):
    """What a line goes on by where it rests: the system's message, and the turn that is open."""

    front: Json | None
    turn: Json | None


_decode_rest: Final = msgspec.json.Decoder(_Rest).decode


class ChatLine(Line):
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
        accept = "text/event-stream" if policy.stream else "application/json"
        headers = {"accept": accept, "content-type": "application/json"}
        if wire.key_header is not None:
            headers[wire.key_header] = ""  # the key is put there at the socket
        names = ToolNames(profile, tools)
        super().__init__(
            profile,
            policy,
            tools,
            names,
            url=wire.url(policy.endpoint, policy.model),
            headers=tuple(sorted(headers.items())),
            key=key,
            conversation=conversation,
        )
        self._wire = wire.at(policy.endpoint or wire.home)
        self._tools: dict[CallId, str] = {}
        self._spoken = reading_of(profile, mapped=True).spoken
        self._refusals = "refusal" in profile.kinds.get(Role.ASSISTANT, ())
        self._head, mapped = head(names.chosen(policy), names.declared, self._wire)
        self._mappings += mapped
        self._body = self._begun(self._head)
        self._empty = True
        self._front: Json | None = None
        self._behind_front: list[bytes] = []
        self._turn: Json | None = None
        self._waiting: list[Message] = []
        self._media: list[Json] = []
        if policy.instructions:
            self._place(INSTRUCTIONS, Role.SYSTEM, None, (Text(text=policy.instructions),))

    def copy(self) -> Self:
        """Return a line that stands where this one stands, for another branch."""
        other = super().copy()
        other._tools = self._tools.copy()
        other._body = self._body.copy()
        other._front = self._front and {**self._front}
        other._behind_front = self._behind_front.copy()
        other._turn = self._turn and {**self._turn}
        other._waiting = self._waiting.copy()
        other._media = self._media.copy()
        return other

    def _closed(self) -> Closed:
        return self._body.finish(self._ending())

    def _growing(self) -> tuple[GrowingBody, int]:
        return self._body, len(_encode(self._front)) if self._front is not None else 0

    def _rest(self) -> _Rest | None:
        rest = _Rest(front=self._front, turn=self._turn)
        if self._waiting or self._media:
            return None
        # What a provider wants back as it came may not come back as it is from here.
        return rest if _decode_rest(_encode(rest)) == rest else None

    def _stand(self, items: bytes, rest: bytes) -> None:
        stood = _decode_rest(rest)
        self._front, self._turn = stood.front, stood.turn
        self._body = self._begun(self._head)
        self._body.append(_encode(self._front) if self._front is not None else b"")
        self._body.append(items)
        self._empty = self._front is None and not items
        self._behind_front = [items] if items and self._profile.system_first else []

    # Order: what goes out after what.

    def _take(self, message: Message, owed: bool) -> None:
        if self._wire.result_names and message.role is Role.ASSISTANT:
            self._tools |= {call.call_id: call.name for call in message.calls}
        if owed and message.role is not Role.TOOL:
            self._waiting.append(message)  # its calls are owed their results first
            return
        if message.role is Role.TOOL:
            for order, block in enumerate(message.blocks):
                if isinstance(block, ToolResult):
                    self._result(message, order, block)
            if not self._checker.waiting:
                self._results_are_in(message.id)
        else:
            self._place(message.id, message.role, message.name, message.blocks)

    def _results_are_in(self, last: MessageId) -> None:
        if self._media:
            self._add({"role": "user", "content": self._media}, last)
            self._media = []
        for message in self._waiting:
            self._map("result_hoisted", message.id, "sent after the results that it stood before")
            self._place(message.id, message.role, message.name, message.blocks)
        self._waiting.clear()

    def _add(self, turn: Json, at: MessageId) -> None:
        """Put `turn` at the end; where turns alternate it may join the one before it."""
        if not self._profile.alternation:
            self._seal(turn)
            return
        last = self._turn
        if last is None:
            self._turn = turn
        elif turn["role"] == last["role"] != "tool":
            self._map("merged_same_role", at, f"into the {turn['role']} message before it")
            if turn.get("name") != last.get("name"):
                self._map("name_dropped", at)
                last.pop("name", None)
            self._turn = _joined(last, turn, self._wire.reasoning_field)
        else:
            self._seal(last)
            self._turn = turn

    def _seal(self, turn: Json) -> None:
        piece = _encode(turn)
        if not self._empty:
            piece = b"," + piece
        self._empty = False
        self._body.append(piece)
        if self._profile.system_first:
            self._behind_front.append(piece)

    def _ending(self) -> bytes:
        if self._turn is None:
            return b"]}"
        return (b"" if self._empty else b",") + _encode(self._turn) + b"]}"

    def _to_front(self, turn: Json, at: MessageId) -> None:
        """Join system text to the one system message. What stands behind it has to move."""
        behind = bool(self._behind_front) or self._turn is not None
        if behind or self._front is not None:
            self._map(
                "system_hoisted" if behind else "merged_same_role", at, "into the first message"
            )
        first, field = self._front, self._wire.reasoning_field
        self._front = turn if first is None else _joined(first, turn, field)
        self._body = self._begun(self._head)
        self._body.append(_encode(self._front))
        self._empty = False
        for piece in self._behind_front:
            self._body.append(piece if piece[:1] == b"," else b"," + piece)

    # Content: one message of ours as one of theirs.

    def _speaker(self, at: MessageId, name: str) -> str:
        """Return the name of a speaker as the provider takes it."""
        if self._profile.name not in OPENAIS or not NOT_IN_NAMES.search(name):
            return name
        spelled = NOT_IN_NAMES.sub("_", name)
        self._map("name_respelled", at, f"{name} as {spelled}")
        return spelled

    def _place(self, at: MessageId, role: Role, name: str | None, blocks: Sequence[Block]) -> None:
        spoken = self._spoken[role]
        if spoken is None:
            raise InternalError(f"{role} passed the rules of {self._profile.name}.", at=at)
        if spoken is not role:
            self._map(f"{role}_as_{spoken}", at)
        turn: Json = {"role": spoken.value}
        if name is not None and self._wire.names:
            turn["name"] = self._speaker(at, name)
        elif name is not None:
            self._map("name_dropped", at)
        reasoning: list[Reasoning] = []
        if len(blocks) == 1 and isinstance(blocks[0], Text):
            turn["content"] = blocks[0].text
        else:
            reasoning = self._fill(turn, at, blocks)
        if role is Role.ASSISTANT:
            self._answer(turn, at, reasoning)
        elif self._profile.system_first and (spoken is Role.SYSTEM or spoken is Role.DEVELOPER):
            self._to_front(turn, at)
        else:
            self._add(turn, at)

    def _answer(self, turn: Json, at: MessageId, reasoning: list[Reasoning]) -> None:
        """Place what the assistant said, as one message or as two."""
        if self._profile.reasoning is not Echo.NEVER:
            self._echo(turn, at, reasoning)
        if "tool_calls" in turn and turn["content"] is not None:
            if not self._profile.text_with_calls:
                self._map("text_apart_from_calls", at, "in a message before theirs")
                self._add({"role": turn["role"], "content": turn["content"]}, at)
                turn["content"] = None
        elif turn["content"] == "" and not self._wire.empty_answers:
            self._map("empty_message_dropped", at)
            return
        self._add(turn, at)

    def _fill(self, turn: Json, at: MessageId, blocks: Sequence[Block]) -> list[Reasoning]:
        """Put content and calls into `turn`, and return the reasoning that may go with them."""
        parts: list[Json] = []
        calls: list[Json] = []
        reasoning: list[Reasoning] = []
        for order, block in enumerate(blocks):
            match block:
                case Text() if block.text and not calls:  # what most blocks are
                    parts.append(_text(block.text))
                case ToolCall():
                    calls.append(self._call(at, order, block))
                case Reasoning() if self._profile.reasoning is Echo.NEVER:
                    self._map("reasoning_dropped", block_id(at, order))
                case Reasoning(opaque=Opaque(profile=other)) if other != self._profile.name:
                    self._map("reasoning_dropped", block_id(at, order), f"of a model by {other}")
                case Reasoning(opaque=Opaque(model=other)) if not same_upstream(other, self._model):
                    self._map("reasoning_dropped", block_id(at, order), f"of {other}")
                case Reasoning():
                    reasoning.append(block)
                case Refusal(text=text) if not self._refusals:
                    self._map("refusal_as_text", block_id(at, order))
                    parts.append(_text(text))
                case Text(text=""):
                    if len(blocks) > 1:
                        self._map("empty_text_dropped", block_id(at, order))
                case _:
                    if calls:
                        self._map("text_before_calls", block_id(at, order))
                    parts.append(_part(block, at, self._wire))
        turn["content"] = _content(parts, empty=None if calls else "")
        if calls:
            turn["tool_calls"] = calls
        return reasoning

    def _echo(self, turn: Json, at: MessageId, reasoning: list[Reasoning]) -> None:
        """Send reasoning where it is wanted, an empty one where there has to be one."""
        echo, field = self._profile.reasoning, self._wire.reasoning_field
        if echo is Echo.WITH_CALLS and "tool_calls" not in turn:
            if reasoning:
                self._map("reasoning_dropped", at)
        elif field == "reasoning_details":
            state = [item for block in reasoning for item in _details(block)]
            if state:
                turn[field] = state
            elif reasoning:
                self._map("reasoning_dropped", at, "nothing was kept that could go back")
        elif reasoning or echo is not Echo.KEPT:
            turn[field] = "".join(block.text for block in reasoning)

    def _call(self, at: MessageId, order: int, call: ToolCall) -> Json:
        call_id = self._ids.sent_as(call.call_id)
        if call_id != call.call_id:
            detail = f"{call.call_id} as {call_id}"
            self._map("call_id_respelled", block_id(at, order), detail)
        arguments = call.arguments
        if not arguments.strip():
            self._map("empty_arguments", block_id(at, order), "as an empty object")
            arguments = "{}"
        function = {"name": call.name, "arguments": arguments}
        return {"id": call_id, "type": "function", "function": function}

    def _result(self, message: Message, order: int, result: ToolResult) -> None:
        """One tool message. It has no flag for failure, so its text says so.

        Its content is one string: servers that take an array here do not agree on what it is.
        """
        call_id = self._ids.sent_as(result.call_id)
        content, fine = result.content, result.outcome is Outcome.SUCCESS
        if fine and len(content) == 1 and isinstance(content[0], Text):
            said = content[0].text
        else:
            at = block_id(message.id, order)
            texts = [part.text for part in content if isinstance(part, Text) and part.text]
            media = [_part(part, at, self._wire) for part in content if not isinstance(part, Text)]
            if len(texts) > 1:
                self._map("result_joined", at, "its texts as lines of one")
            if media:
                self._map("media_hoisted", at, "behind the results")
                self._media += (_text(f"Returned by the tool call {call_id}:"), *media)
                texts.append("The tool returned media; it stands in the next user message.")
            said = "\n".join(texts if fine else (failure(result), *texts))
        turn: Json = {"role": "tool", "tool_call_id": call_id, "content": said}
        if self._wire.result_names:
            turn["name"] = self._tools[result.call_id]
        self._add(turn, message.id)


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _details(block: Reasoning) -> list[msgspec.Raw]:
    """Return the kept state of a block as it came; nothing where only its text was kept."""
    kept = block.opaque.value if block.opaque is not None else msgspec.Raw(b"null")
    try:
        return _decode_list(kept)
    except msgspec.DecodeError:
        return []


def _part(block: Block, at: str, wire: Wire) -> Json:
    """Return a block as a content part."""
    match block:
        case Text(text=text):
            return _text(text)
        case Refusal(text=text):
            return {"type": "refusal", "refusal": text}
        case Image():
            return _image(block, wire)
        case Audio(data=data, format=form):
            return {"type": "input_audio", "input_audio": {"data": data, "format": form}}
        case File():
            return _file(block)
        case Reasoning() | ToolCall() | ToolResult() | Unknown():
            raise InternalError(f"{type(block).__name__} is no content part.", at=at)
        case _ as never:
            assert_never(never)


def _content(parts: list[Json], *, empty: str | None) -> object:
    """Return content as the wire has it. A single text is a string, which every server reads."""
    if not parts:
        return empty
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _joined(first: Json, second: Json, reasoning: str) -> Json:
    """Return two messages of one role as one, each text still a part of its own."""
    parts = [*_parts(first), *_parts(second)]
    joined = {**first, "content": _content(parts, empty=None if "tool_calls" in second else "")}
    if reasoning in first and reasoning in second:
        joined[reasoning] = first[reasoning] + second[reasoning]  # type: ignore[operator]  # both are texts, or both are lists
    elif reasoning in second:
        joined[reasoning] = second[reasoning]
    if "tool_calls" in second:
        joined["tool_calls"] = second["tool_calls"]
    return joined


def _parts(message: Json) -> list[Json]:
    content = message["content"]
    if isinstance(content, list):
        return content
    return [_text(content)] if isinstance(content, str) and content else []


def _image(image: Image, wire: Wire) -> Json:
    url = image.url or f"data:{image.media_type or 'image/png'};base64,{image.data or ''}"
    if image.detail is None and not wire.image_objects:
        return {"type": "image_url", "image_url": url}
    inner: Json = {"url": url}
    if image.detail is not None:
        inner["detail"] = image.detail
    return {"type": "image_url", "image_url": inner}


def _file(file: File) -> Json:
    inner: Json = {}
    if file.file_id is not None:
        inner["file_id"] = file.file_id
    if file.data is not None:
        media = file.media_type
        inner["file_data"] = f"data:{media};base64,{file.data}" if media else file.data
    if file.filename is not None:
        inner["filename"] = file.filename
    return {"type": "file", "file": inner}
