"""A line as the exact bytes of a request to the Interactions API, all of its steps in it.

What is mapped on the way, and nothing else is: system and developer text to one string at the top;
results to directly behind their calls; empty texts, names, and thoughts that are not this model's
own left out; a refusal as the text that it is. Each is told to the manifest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from antiphon.adapters.gemini.line import GeminiLine, Start
from antiphon.adapters.gemini.profile import headers
from antiphon.adapters.gemini_interactions import steps
from antiphon.adapters.gemini_interactions.head import head
from antiphon.adapters.gemini_interactions.profile import Wire
from antiphon.adapters.naming.tool_names import ToolNames
from antiphon.core.blocks import (
    File,
    Message,
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

BETWEEN: Final = "\n\n"
"""Stands between texts of the system, which has one string to say them in."""

_encode: Final = msgspec.json.Encoder().encode


class StepsLine(GeminiLine):
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
        members, mappings = head(names.chosen(policy), names.declared, wire)
        told = headers(wire.key_header, stream=policy.stream)
        start = Start(wire.url(policy.endpoint), told, members, mappings, names)
        super().__init__(profile, policy, tools, start, key=key, conversation=conversation)

    def _opening(self) -> bytes:
        system = _encode({"system_instruction": BETWEEN.join(self._system)})[1:-1]
        return (system + b"," if self._system else b"") + b'"input":['

    def _instruct(self, message: Message) -> None:
        texts = len(self._system)
        super()._instruct(message)
        if texts and len(self._system) > texts:
            self._map("system_joined", message.id, "to the text before it, in one string")

    def _add(self, message: Message, content: list[bytes]) -> None:
        for step in content:
            self._seal(step)

    def _add_results(self, last: Message) -> None:
        for result in self._results.values():
            self._seal(result)

    # Content: one message of ours as steps of theirs.

    def _content(self, message: Message) -> list[bytes]:
        made: list[bytes] = []
        run: list[steps.Json] = []
        kind = "model_output" if message.role is Role.ASSISTANT else "user_input"
        for order, block in enumerate(message.blocks):
            at = block_id(message.id, order)
            step: bytes | None = None
            match block:
                case ToolCall():
                    step = steps.call(block, self._arguments(at, block))
                case Reasoning():
                    step = self._reasoning(at, block)
                case Text(text=""):
                    self._map("empty_text_dropped", at)
                case _:
                    if isinstance(block, Refusal):
                        self._map("refusal_as_text", at)
                    if isinstance(block, File) and block.filename is not None:
                        self._map("filename_dropped", at)
                    run.append(steps.content(block))
            if step is not None:
                made += [steps.said(kind, run), step] if run else [step]
                run = []
        return [*made, steps.said(kind, run)] if run else made

    def _reasoning(self, at: str, block: Reasoning) -> bytes | None:
        state = block.opaque
        reason = "nobody signed it" if state is None else self._foreign(state)
        if state is None or reason:
            self._map("reasoning_dropped", at, reason)
            return None
        return bytes(state.value)

    def _result(self, block: ToolResult, name: str) -> bytes:
        if any(isinstance(inner, File) and inner.filename is not None for inner in block.content):
            self._map("filename_dropped", block.call_id)
        return steps.result(block, name)
