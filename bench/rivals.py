"""The vendors' SDKs, each with an HTTP client that answers from memory and keeps the request."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import anthropic
import openai

from bench.provider import USAGE

_ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1700000000,
    "model": "bench",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}
    ],
    "usage": USAGE,
}


def openai_client(events: Sequence[bytes] = ()) -> tuple[openai.OpenAI, dict[str, bytes]]:
    """Return a client of OpenAI's SDK whose answers are `events`, and the body it sent last."""
    http, kept = _client(_http_module("openai"), events, json.dumps(_ANSWER).encode())
    return (
        openai.OpenAI(api_key="x", base_url="http://memory/v1", http_client=http, max_retries=0),
        kept,
    )


def anthropic_client(events: Sequence[bytes]) -> anthropic.Anthropic:
    """Return a client of Anthropic's SDK whose answers are `events`."""
    http, _ = _client(_http_module("anthropic"), events, b"{}")
    return anthropic.Anthropic(
        api_key="x", base_url="http://memory", http_client=http, max_retries=0
    )


def _http_module(sdk: str) -> Any:  # noqa: ANN401 - httpx or httpx2, whichever the SDK took
    base = __import__(f"{sdk}._base_client", fromlist=["httpx"])
    return getattr(base, "httpx", None) or base.httpx2


def _client(http: Any, events: Sequence[bytes], answer: bytes) -> tuple[Any, dict[str, bytes]]:  # noqa: ANN401
    kept: dict[str, bytes] = {}

    class Stream(http.SyncByteStream):  # type: ignore[misc] # a base known at run time only
        def __iter__(self) -> Iterator[bytes]:
            yield from events

    class Transport(http.BaseTransport):  # type: ignore[misc] # the same
        def handle_request(self, request: Any) -> Any:  # noqa: ANN401
            kept["body"] = request.read()
            if events:
                headers = {"content-type": "text/event-stream"}
                return http.Response(200, headers=headers, stream=Stream(), request=request)
            headers = {"content-type": "application/json"}
            return http.Response(200, headers=headers, content=answer, request=request)

    return http.Client(transport=Transport()), kept


def openai_helper(events: Sequence[bytes]) -> Callable[[], Any]:
    """Return what assembles `events` with the helper of OpenAI's SDK."""
    client, _ = openai_client(events)

    def assemble() -> Any:  # noqa: ANN401 - the SDK's own type
        asked = [{"role": "user", "content": "x"}]
        with client.chat.completions.stream(model="bench", messages=asked) as stream:  # type: ignore[arg-type] # plain dicts are allowed
            for _ in stream:
                pass
            return stream.get_final_completion().choices[0].message

    return assemble


def anthropic_helper(events: Sequence[bytes]) -> Callable[[], Any]:
    """Return what assembles `events` with the helper of Anthropic's SDK."""
    client = anthropic_client(events)

    def assemble() -> Any:  # noqa: ANN401 - the SDK's own type
        asked = [{"role": "user", "content": "x"}]
        with client.messages.stream(model="bench", max_tokens=9, messages=asked) as stream:
            for _ in stream:
                pass
            return stream.get_final_message().content[0]

    return assemble
