"""How a provider is asked what a request costs, where it has an endpoint that counts.

The question is made of the request itself, so that what is counted is what would leave: the same
head and messages, without what only steers the answer, which these endpoints refuse. Nothing is
generated and nothing is billed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from antiphon.core.manifest import WireRequest

Members: TypeAlias = dict[str, msgspec.Raw]

_decode: Final = msgspec.json.Decoder(Members).decode
_encode: Final = msgspec.json.encode

ANTHROPIC: Final = frozenset(
    {"model", "messages", "system", "tools", "tool_choice", "thinking", "output_config"}
)
RESPONSES: Final = frozenset(
    {"model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning"}
    | {"text", "truncation", "previous_response_id", "conversation"}
)


class Count(msgspec.Struct, frozen=True, rename={"total": "totalTokens"}):
    """What such an endpoint answers; each calls it by one of these names."""

    input_tokens: int | None = None
    total: int | None = None


def asked_to_count(dialect: str, request: WireRequest) -> WireRequest | None:
    """Return the question what `request` costs; None where its dialect has no endpoint that counts."""
    made = _QUESTIONS.get(dialect)
    return None if made is None else made(request)


def count_of(body: bytes) -> int | None:
    """Return the count that an answer holds; None where it holds none."""
    try:
        told = msgspec.json.decode(body, type=Count)
    except msgspec.DecodeError:
        return None
    count = told.input_tokens if told.input_tokens is not None else told.total
    return count if count is not None and count > 0 else None


def _anthropic(request: WireRequest) -> WireRequest:
    return _asked(request, f"{request.url}/count_tokens", _only(ANTHROPIC, request))


def _responses(request: WireRequest) -> WireRequest:
    return _asked(request, f"{request.url}/input_tokens", _only(RESPONSES, request))


def _llamacpp(request: WireRequest) -> WireRequest:
    return _asked(request, f"{request.url}/input_tokens", request.body)


def _gemini(request: WireRequest) -> WireRequest:
    path, _, _ = request.url.rpartition(":")
    model = f"models/{path.rpartition('/models/')[2]}"
    whole: Members = {"model": msgspec.Raw(_encode(model)), **_decode(request.body)}
    return _asked(request, f"{path}:countTokens", _encode({"generateContentRequest": whole}))


def _only(names: frozenset[str], request: WireRequest) -> bytes:
    members = _decode(request.body)
    return _encode({name: value for name, value in members.items() if name in names})


def _asked(request: WireRequest, url: str, body: bytes) -> WireRequest:
    return replace(request, url=url, chunks=(body,))


_QUESTIONS: Final[Mapping[str, Callable[[WireRequest], WireRequest]]] = MappingProxyType(
    {
        "anthropic": _anthropic,
        "gemini": _gemini,
        "llamacpp": _llamacpp,
        "openai-responses": _responses,
    }
)
