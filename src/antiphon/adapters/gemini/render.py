"""A line as the exact bytes of a generateContent request.

Answers that follow each other are one content, so the model's last one stays open.

What is mapped on the way, and nothing else is: system and developer text to the top; answers that
follow each other into one content; results into one content, in the order of their calls and
directly behind them; empty texts, names, and state that is not this model's own left out; a
refusal as the text that it is; a published placeholder where a model insists on a signature and
a call has none. Each is told to the manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

import msgspec

from antiphon.adapters.gemini import parts
from antiphon.adapters.gemini.head import head
from antiphon.adapters.gemini.line import GeminiLine, Start
from antiphon.adapters.gemini.parts import Signed
from antiphon.adapters.gemini.profile import Wire
from antiphon.adapters.naming.tool_names import ToolNames
from antiphon.core.blocks import (
    Block,
    File,
    Message,
    Opaque,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
    block_id,
)
from antiphon.core.ids import ConversationId
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.rules.profile import Profile

_encode: Final = msgspec.json.Encoder().encode


class ContentsLine(GeminiLine):
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
        members, mappings = head(names.chosen(policy), names.declared)
        url = wire.url(policy.endpoint, policy.model, stream=policy.stream)
        start = Start(url, wire.headers(stream=policy.stream), members, mappings, names)
        super().__init__(profile, policy, tools, start, key=key, conversation=conversation)
        self._with_ids = wire.call_ids
        self._answer: list[bytes] = []  # the content of the model that is still open

    def copy(self) -> Self:
        """Return a line that stands where this one stands, for another branch."""
        other = super().copy()
        other._answer = self._answer.copy()
        return other

    def _opening(self) -> bytes:
        texts = [_encode({"text": text}) for text in self._system]
        system = b'"systemInstruction":{"parts":[' + b",".join(texts) + b"]}," if texts else b""
        return system + b'"contents":['

    def _open_end(self) -> bytes:
        return _content("model", self._answer) if self._answer else b""

    def _opened(self) -> list[str]:
        return [piece.decode() for piece in self._answer]

    def _open(self, pieces: list[str]) -> None:
        self._answer = [piece.encode() for piece in pieces]

    def _add(self, message: Message, content: list[bytes]) -> None:
        if message.role is Role.ASSISTANT:
            if self._answer:
                self._map("merged_same_role", message.id, "into the model's content before it")
            self._answer += content
        else:
            self._seal_answer()
            self._seal(_content("user", content))

    def _add_results(self, last: Message) -> None:
        if list(self._results) != list(self._calls):
            self._map("results_reordered", last.id, "to the order of their calls")
        self._seal_answer()
        self._seal(_content("user", [self._results[call_id] for call_id in self._calls]))

    def _seal_answer(self) -> None:
        if self._answer:
            self._seal(_content("model", self._answer))
            self._answer = []

    # Content: one message of ours as parts of theirs.

    def _content(self, message: Message) -> list[bytes]:
        content: list[bytes] = []
        first_call = True
        for order, block in enumerate(message.blocks):
            at = block_id(message.id, order)
            match block:
                case ToolCall():
                    content.append(self._call(at, block, first_call))
                    first_call = False
                case Reasoning():
                    kept = self._reasoning(at, block, message.blocks[:order])
                    if kept is not None:
                        content.append(kept)
                case _:
                    state = self._rides(message.blocks, order)
                    if state is None and isinstance(block, Text) and not block.text:
                        self._map("empty_text_dropped", at)
                        continue
                    if isinstance(block, Refusal):
                        self._map("refusal_as_text", at)
                    if isinstance(block, File) and block.filename is not None:
                        self._map("filename_dropped", at)
                    content.append(parts.part(block, state))
        return content

    def _rides(self, blocks: Sequence[Block], order: int) -> Opaque | None:
        """Return the state that signs a part, beside it or behind it, if it may go back."""
        block = blocks[order]
        if isinstance(block, Text) and block.opaque is not None and not self._foreign(block.opaque):
            return block.opaque
        after = blocks[order + 1] if order + 1 < len(blocks) else None
        if not isinstance(after, Reasoning) or after.opaque is None or self._foreign(after.opaque):
            return None
        return after.opaque if parts.signed(after.opaque) is Signed.TEXT else None

    def _reasoning(self, at: str, block: Reasoning, before: Sequence[Block]) -> bytes | None:
        """Return a part that people do not read, or None where it is none of its own."""
        state = block.opaque
        reason = "nobody signed it" if state is None else self._foreign(state)
        if state is None or reason:
            self._map("reasoning_dropped", at, reason)
            return None
        rides = bool(before) and not isinstance(before[-1], ToolCall | Reasoning)
        if rides and parts.signed(state) is Signed.TEXT:
            return None  # it went out on the part before it
        return parts.kept(block.text, state)

    def _call(self, at: str, block: ToolCall, first: bool) -> bytes:
        state, more = block.opaque, {}
        reason = "" if state is None else self._foreign(state)
        if reason:
            self._map("signature_dropped", at, reason)
        elif state is not None:
            more = parts.signature(state)
        if first and not more and self._profile.signed_calls:
            self._map("signature_replaced", at, "by the placeholder for calls that have none")
            more = {parts.SIGNATURE: parts.PLACEHOLDER}
        call_id = block.call_id if self._with_ids else None
        return parts.call(block, call_id, self._arguments(at, block), more)

    def _result(self, block: ToolResult, name: str) -> bytes:
        if any(isinstance(inner, File) and inner.filename is not None for inner in block.content):
            self._map("filename_dropped", block.call_id)
        return parts.result(block, name, block.call_id if self._with_ids else None)


def _content(role: str, content: Sequence[bytes]) -> bytes:
    return b'{"role":"%s","parts":[%s]}' % (role.encode(), b",".join(content))
