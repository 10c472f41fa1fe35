"""Our answer as a client of Anthropic Messages expects it: events, or one message.

Thinking goes out as its provider signed it, and only then: a client has to send it back unchanged
with the calls that it led to, and no provider would take what nobody signed. So it is told when it
is whole. What a model of another dialect thought stays in the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from antiphon.adapters.anthropic.parts import kept
from antiphon.adapters.anthropic.profile import ANTHROPIC
from antiphon.adapters.base import Ending
from antiphon.core.answers.deltas import Channel, Usage
from antiphon.core.blocks import Block, Opaque, Reasoning, Refusal, Text, ToolCall

STOP: Final = {
    Ending.STOP: "end_turn",
    Ending.LENGTH: "max_tokens",
    Ending.CALLS: "tool_use",
}


class MessagesWriter:
    """Writes one answer. Text and refusals share a block; each call has one of its own."""

    def __init__(self, answer_id: str, model: str) -> None:
        self._message: dict[str, Any] = {
            "id": answer_id,
            "type": "message",
            "role": "assistant",
            "model": model,
        }
        self._blocks = 0
        self._open = False

    def begin(self) -> bytes:
        """Return the event that says who speaks."""
        opened: dict[str, Any] = {
            **self._message,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(Usage()),
        }
        return _event("message_start", message=opened)

    def show(self, channel: Channel, text: str) -> bytes:
        """Return a piece of text, and what opens its block where none is open."""
        if channel is Channel.REASONING:
            return b""
        opening = b"" if self._open else self._opened({"type": "text", "text": ""})
        return opening + self._delta({"type": "text_delta", "text": text})

    def think(self, text: str, state: Opaque) -> bytes:
        """Return a thought as a block of its own, as it came, where it was signed for this dialect."""
        if not _signed(state):
            return b""
        block = _fields(kept(text, state))
        signature = block.get("signature")
        if block["type"] != "thinking":
            return self._opened(block) + self._closed()
        return (
            self._opened({"type": "thinking", "thinking": "", "signature": ""})
            + self._delta({"type": "thinking_delta", "thinking": text})
            + self._delta({"type": "signature_delta", "signature": signature})
            + self._closed()
        )

    def ask(self, calls: Sequence[ToolCall]) -> bytes:
        """Return the calls, each a block of its own with its arguments in one piece."""
        told = self._closed()
        for call in calls:
            told += self._opened(_call(call, {}))
            told += self._delta({"type": "input_json_delta", "partial_json": call.arguments})
            told += self._closed()
        return told

    def end(self, ending: Ending, usage: Usage) -> bytes:
        """Return the stop reason with the usage, and the end of the message."""
        delta = {"stop_reason": STOP[ending], "stop_sequence": None}
        return (
            self._closed()
            + _event("message_delta", delta=delta, usage=_usage(usage))
            + _event("message_stop")
        )

    def fail(self, code: str, message: str) -> bytes:
        """Return an error event; the message never stops, since there is none."""
        return _event("error", error={"type": "api_error", "message": f"{code}: {message}"})

    def whole(self, blocks: Sequence[Block], ending: Ending, usage: Usage) -> bytes:
        """Return the answer as one message."""
        content: list[dict[str, Any]] = []
        for block in blocks:
            match block:
                case Text(text=text) | Refusal(text=text) if text:
                    content.append({"type": "text", "text": text})
                case Reasoning(text=text, opaque=Opaque() as state) if _signed(state):
                    content.append(_fields(kept(text, state)))
                case ToolCall():
                    content.append(_call(block, msgspec.Raw(block.arguments.encode())))
                case _:
                    pass
        return msgspec.json.encode(
            {
                **self._message,
                "content": content,
                "stop_reason": STOP[ending],
                "stop_sequence": None,
                "usage": _usage(usage),
            }
        )

    def _opened(self, block: dict[str, Any]) -> bytes:
        told = self._closed()
        self._open = True
        return told + _event("content_block_start", index=self._blocks, content_block=block)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._blocks, delta=delta)

    def _closed(self) -> bytes:
        if not self._open:
            return b""
        self._open = False
        self._blocks += 1
        return _event("content_block_stop", index=self._blocks - 1)


def _event(kind: str, **told: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (
        kind.encode(),
        msgspec.json.encode({"type": kind, **told}),
    )


_fields: Final = msgspec.json.Decoder(dict[str, Any]).decode
_SIGNED: Final = frozenset({"thinking", "redacted_thinking"})


def _signed(state: Opaque) -> bool:
    """Whether a state is thinking that a provider of this dialect takes back."""
    return state.profile == ANTHROPIC.name and _fields(state.value).get("type") in _SIGNED


def _call(call: ToolCall, arguments: object) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.call_id, "name": call.name, "input": arguments}


def _usage(usage: Usage) -> dict[str, int]:
    """Return counts as this dialect has them: what a cache gave or took stands beside the input."""
    cached, written = usage.cached or 0, usage.cache_write or 0
    return {
        "input_tokens": (usage.whole_input or 0) - cached - written,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": written,
        "output_tokens": usage.output or 0,
    }
