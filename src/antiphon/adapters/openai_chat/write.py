"""Our answer as a client of Chat Completions expects it: chunks, or one object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from antiphon.adapters.base import Ending
from antiphon.core.answers.deltas import Channel, Usage
from antiphon.core.blocks import Block, Opaque, Reasoning, Refusal, Text, ToolCall
from antiphon.errors import OutcomeUnknown

FINISH: Final = {
    Ending.STOP: "stop",
    Ending.LENGTH: "length",
    Ending.CALLS: "tool_calls",
}
FIELDS: Final = {
    Channel.TEXT: "content",
    Channel.REFUSAL: "refusal",
    # OpenAI shows no reasoning; this is the name that the servers have which do.
    Channel.REASONING: "reasoning_content",
}
DONE: Final = b"data: [DONE]\n\n"


class ChatWriter:
    """Writes one answer. `created_s` is a Unix time in seconds."""

    def __init__(
        self, answer_id: str, model: str, created_s: int, *, include_usage: bool = False
    ) -> None:
        self._head = {"id": answer_id, "created": created_s, "model": model}
        self._include_usage = include_usage

    def begin(self) -> bytes:
        """Return the chunk that says who speaks."""
        return self._chunk({"role": "assistant", "content": ""})

    def show(self, channel: Channel, text: str) -> bytes:
        """Return a piece of text."""
        return self._chunk({FIELDS[channel]: text})

    def think(self, text: str, state: Opaque) -> bytes:
        """Return nothing: thought was shown as it came, and this dialect signs none."""
        return b""

    def ask(self, calls: Sequence[ToolCall]) -> bytes:
        """Return the calls, each whole in a chunk of its own."""
        return b"".join(
            self._chunk({"tool_calls": [{"index": n, **_call(call)}]})
            for n, call in enumerate(calls)
        )

    def end(self, ending: Ending, usage: Usage) -> bytes:
        """Return the finish, the usage where it was asked for, and the end of the stream."""
        closing = self._chunk({}, FINISH[ending])
        if self._include_usage:
            closing += self._frame({"choices": [], "usage": _usage(usage)})
        return closing + DONE

    def fail(self, code: str, message: str) -> bytes:
        """Return an error chunk. No `[DONE]` follows: nothing is done.

        A chunk has no header that says whether trying again may do harm. Clients that decide it by
        the type leave alone what is of the request's own making, as they do with our 424.
        """
        kind = "invalid_request_error" if code == OutcomeUnknown.default_code else "server_error"
        error = {"message": message, "type": kind, "param": None, "code": code}
        return _data({"error": error})

    def whole(self, blocks: Sequence[Block], ending: Ending, usage: Usage) -> bytes:
        """Return the answer as one object."""
        calls = [_call(block) for block in blocks if isinstance(block, ToolCall)]
        texts = [block.text for block in blocks if isinstance(block, Text)]
        refusals = [block.text for block in blocks if isinstance(block, Refusal)]
        thoughts = [block.text for block in blocks if isinstance(block, Reasoning) and block.text]
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(texts) if texts and not (calls and not any(texts)) else None,
            "refusal": "".join(refusals) or None,
        }
        if thoughts:
            message["reasoning_content"] = "".join(thoughts)
        if calls:
            message["tool_calls"] = calls
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": FINISH[ending],
        }
        told = {"object": "chat.completion", "choices": [choice], "usage": _usage(usage)}
        return msgspec.json.encode({**self._head, **told})

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        told: dict[str, Any] = {"choices": [choice]}
        if self._include_usage:
            told["usage"] = None
        return self._frame(told)

    def _frame(self, told: dict[str, Any]) -> bytes:
        return _data({**self._head, "object": "chat.completion.chunk", **told})


def _data(value: object) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}


def _usage(usage: Usage) -> dict[str, Any]:
    given, made = usage.whole_input or 0, usage.output or 0
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made,
        "prompt_tokens_details": {"cached_tokens": usage.cached or 0},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning or 0},
    }
