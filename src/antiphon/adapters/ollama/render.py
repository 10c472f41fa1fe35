"""A line as the exact bytes of a request to Ollama's chat API.

The body begins with everything that does not change from turn to turn, and `messages` comes
last: a history that grows leaves every byte before its new messages as it was.

What is mapped on the way, and nothing else is: the developer's text into the system's role,
texts of one message into one, results to directly behind their calls and into the order of
these, images out of results into a user message behind the last of them, reasoning left out
that this model did not make, names left out, and a refusal as the text that it is. Each is told
to the manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self, TypeAlias

import msgspec

from antiphon.adapters.base import Closed, GrowingBody
from antiphon.adapters.contents import failure
from antiphon.adapters.line import Line
from antiphon.adapters.naming.tool_names import ToolNames
from antiphon.adapters.ollama.head import head, headers, url
from antiphon.adapters.ollama.profile import Wire, same_model
from antiphon.core.blocks import (
    Image,
    Message,
    Outcome,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
    block_id,
)
from antiphon.core.ids import CallId, ConversationId
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.rules.profile import Profile
from antiphon.errors import InternalError

Json: TypeAlias = dict[str, object]

_encode: Final = msgspec.json.Encoder().encode


class _Rest(msgspec.Struct, frozen=True):
    """What a line goes on by where it rests: nothing is open here."""


class OllamaLine(Line):
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
        super().__init__(
            profile,
            policy,
            tools,
            names,
            url=url(policy.endpoint),
            headers=headers(policy),
            key=key,
            conversation=conversation,
        )
        before, mapped = head(names.chosen(policy), names.declared, wire)
        self._mappings += mapped
        self._head = before
        self._body = self._begun(before)
        self._empty = True
        self._asked: dict[CallId, str] = {}  # the open calls in their order, and their tools
        self._results: dict[CallId, tuple[str, ToolResult]] = {}
        self._waiting: list[Message] = []
        if policy.instructions:
            self._add({"role": "system", "content": policy.instructions})

    def copy(self) -> Self:
        """Return a line that stands where this one stands, for another branch."""
        other = super().copy()
        other._body = self._body.copy()
        other._asked = self._asked.copy()
        other._results = self._results.copy()
        other._waiting = self._waiting.copy()
        return other

    def _closed(self) -> Closed:
        return self._body.finish(b"]}")

    def _growing(self) -> tuple[GrowingBody, int]:
        return self._body, 0

    def _rest(self) -> _Rest | None:
        return None if self._asked or self._waiting else _Rest()

    def _stand(self, items: bytes, rest: bytes) -> None:
        self._body = self._begun(self._head)
        self._body.append(items)
        self._empty = not items

    # Order: what goes out after what.

    def _take(self, message: Message, owed: bool) -> None:
        if message.role is Role.TOOL:
            for order, block in enumerate(message.blocks):
                if isinstance(block, ToolResult):
                    self._results[block.call_id] = (block_id(message.id, order), block)
            if not self._checker.waiting:
                self._results_are_in()
        elif owed:
            self._waiting.append(message)  # its calls are owed their results first
        else:
            self._place(message)

    def _results_are_in(self) -> None:
        """Put the results of the open calls out, in the order of these, then what had waited."""
        came = list(self._results)
        images: list[str] = []
        for number, (call_id, name) in enumerate(self._asked.items()):
            at, result = self._results[call_id]
            if came[number] != call_id:
                self._map("result_reordered", at, "in the order of the calls")
            images += self._result(at, name, result)
        self._asked.clear()
        self._results.clear()
        if images:
            said = "These images were returned by the tools, in their order."
            self._add({"role": "user", "content": said, "images": images})
        for message in self._waiting:
            self._map("result_hoisted", message.id, "sent after the results that it stood before")
            self._place(message)
        self._waiting.clear()

    def _add(self, turn: Json) -> None:
        self._body.append((b"" if self._empty else b",") + _encode(turn))
        self._empty = False

    # Content: one message of ours as one of theirs.

    def _place(self, message: Message) -> None:
        role = Role.SYSTEM if message.role is Role.DEVELOPER else message.role
        if role is not message.role:
            self._map("developer_as_system", message.id)
        if message.name is not None:
            self._map("name_dropped", message.id)
        texts: list[str] = []
        turn: Json = {"role": role.value, "content": ""}
        thoughts: list[str] = []
        images: list[str] = []
        calls: list[Json] = []
        for order, block in enumerate(message.blocks):
            at = block_id(message.id, order)
            match block:
                case Text(text=text):
                    texts += [text] if text else []
                case Refusal(text=text):
                    self._map("refusal_as_text", at)
                    texts += [text] if text else []
                case Image():
                    images.append(block.data or "")
                case Reasoning():
                    thoughts += self._reasoning(at, block)
                case ToolCall():
                    calls.append(self._call(at, block, len(calls)))
                case _:
                    raise InternalError(f"{type(block).__name__} passed the rules.", at=at)
        if len(texts) > 1:
            self._map("texts_joined", message.id, "as paragraphs of one")
        turn["content"] = "\n\n".join(texts)
        if thoughts:
            turn["thinking"] = "\n\n".join(thoughts)
        if images:
            turn["images"] = images
        if calls:
            turn["tool_calls"] = calls
        self._add(turn)

    def _reasoning(self, at: str, block: Reasoning) -> list[str]:
        """Return what its model is told again of its own thinking."""
        state = block.opaque
        if state is None:
            reason = "nobody says whose it is"
        elif state.profile != self._profile.name:
            reason = f"{state.profile} made it"
        elif not same_model(state.model, self._model):
            reason = f"{state.model} made it"
        else:
            return [block.text] if block.text else []
        self._map("reasoning_dropped", at, reason)
        return []

    def _call(self, at: str, block: ToolCall, index: int) -> Json:
        """Return a call. Its arguments are the very text that the model wrote, numbers and all."""
        arguments = block.arguments
        if not arguments.strip():
            self._map("empty_arguments", at, "as an empty object")
            arguments = "{}"
        self._asked[block.call_id] = block.name
        raw = msgspec.Raw(arguments.encode())
        function = {"index": index, "name": block.name, "arguments": raw}
        return {"id": block.call_id, "function": function}

    def _result(self, at: str, name: str, result: ToolResult) -> list[str]:
        """Put one tool message out, and return the images that it has no place for.

        It has no flag for failure, so its text says so.
        """
        texts = [part.text for part in result.content if isinstance(part, Text) and part.text]
        images = [part.data or "" for part in result.content if isinstance(part, Image)]
        if result.outcome is not Outcome.SUCCESS:
            texts.insert(0, failure(result))
        if images:
            self._map("media_hoisted", at, "behind the results")
            texts.append("The tool returned an image; it stands in the next user message.")
        if len(texts) > 1:
            self._map("texts_joined", at, "as lines of one")
        turn: Json = {"role": "tool", "tool_name": name, "tool_call_id": result.call_id}
        self._add({**turn, "content": "\n".join(texts)})
        return images
