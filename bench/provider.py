"""Providers that cost nothing: recorded streams, and a transport that answers from memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from antiphon.core.manifest import WireRequest
from antiphon.engine.catalogue.models import Model, Models
from antiphon.engine.ports import Reply
from bench.talk import arguments, words

USAGE = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
DONE = b"data: [DONE]\n\n"
TURNS = 3000
"""How many turns a `MemoryTransport` is good for, where nobody says."""


def roomy_models() -> Models:
    """Return one model that holds every conversation of the benchmarks whole.

    It says how much it holds, so that what is asked of it is counted as for a model in use.
    """
    model = Model(
        name="bench",
        profile="openai-chat",
        model="bench",
        base_url="http://127.0.0.1/v1",
        context_window=100_000_000,
    )
    return Models(named={"bench": model}, default="bench")


def chat_event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    """Return one event of an OpenAI Chat stream, with all that the provider sends along."""
    return _chat(choices=[{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])


def _chat(**more: Any) -> bytes:  # noqa: ANN401 - it becomes JSON
    whole = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "bench",
        **more,
    }
    return b"data: " + json.dumps(whole, separators=(",", ":")).encode() + b"\n\n"


def chat_text(pieces: Iterable[str]) -> list[bytes]:
    """Return the events of a streamed text."""
    return [
        chat_event({"role": "assistant", "content": ""}),
        *(chat_event({"content": piece}) for piece in pieces),
        chat_event({}, "stop"),
        _chat(choices=[], usage=USAGE),
        DONE,
    ]


def chat_call(call_id: str, name: str, pieces: Iterable[str]) -> list[bytes]:
    """Return the events of a streamed tool call."""
    return chat_calls([(call_id, name, pieces)])


def chat_calls(calls: Iterable[tuple[str, str, Iterable[str]]]) -> list[bytes]:
    """Return the events of streamed tool calls: id, name and arguments of each."""
    events = [chat_event({"role": "assistant", "content": None})]
    for index, (call_id, name, pieces) in enumerate(calls):
        function = {"name": name, "arguments": ""}
        opened = {"index": index, "id": call_id, "type": "function", "function": function}
        said = ({"index": index, "function": {"arguments": piece}} for piece in pieces)
        events += (chat_event({"tool_calls": [part]}) for part in (opened, *said))
    return [
        *events,
        chat_event({}, "tool_calls"),
        _chat(choices=[], usage=USAGE),
        DONE,
    ]


def anthropic_events(block: dict[str, Any], deltas: Iterable[dict[str, Any]]) -> list[bytes]:
    """Return the same in Anthropic's dialect, for the rival that speaks only that."""

    def event(kind: str, **more: Any) -> bytes:  # noqa: ANN401 - it becomes JSON
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n".encode()

    usage = {"input_tokens": 9, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "bench",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    reason = "tool_use" if block["type"] == "tool_use" else "end_turn"
    ending = {"stop_reason": reason, "stop_sequence": None}
    return [
        event("message_start", message=message),
        event("content_block_start", index=0, content_block=block),
        *(event("content_block_delta", index=0, delta=delta) for delta in deltas),
        event("content_block_stop", index=0),
        event("message_delta", delta=ending, usage={"output_tokens": 9}),
        event("message_stop"),
    ]


class MemoryTransport:
    """Stands where the HTTP client stands: asks for the tool, then answers, turn after turn."""

    def __init__(self, *, calls: int = 1, turns: int = TURNS) -> None:
        self._bodies = _bodies(calls, turns)
        self.sent = 0

    async def send(
        self,
        request: WireRequest,
        *,
        api_key: str | None,
        connect_timeout_s: float,
        on_written: Callable[[], None],
    ) -> Reply:
        """Take the bytes as a socket would, and answer at once."""
        self.sent += sum(map(len, request.chunks))
        on_written()
        return _Reply(next(self._bodies))

    async def close(self) -> None:
        """Hold nothing."""


def _bodies(calls: int, turns: int) -> Iterator[bytes]:
    """Return turn after turn of answers made beforehand: a line may not hold a call id twice."""
    asked = iter(range(calls * turns))
    return iter(
        [
            body
            for _ in range(turns)
            for body in (
                b"".join(
                    chat_calls(
                        (f"call_t{number}", "forecast", [arguments(number)])
                        for number in islice(asked, calls)
                    )
                ),
                b"".join(chat_text([words()])),
            )
        ]
    )


class _Reply:
    status = 200

    def __init__(self, body: bytes) -> None:
        self.headers = {"content-type": "text/event-stream"}
        self._body = body

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body

    async def close(self) -> None:
        pass
