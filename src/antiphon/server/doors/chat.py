"""OpenAI Chat Completions: any client of it, by its base URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from antiphon.adapters.openai_chat.dialects import OPENAI
from antiphon.adapters.openai_chat.parse import parse
from antiphon.adapters.openai_chat.write import ChatWriter
from antiphon.engine.settings import Stateless
from antiphon.errors import InvalidInput
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.doors.relay import relayed
from antiphon.server.doors.turn import SESSION_LOG, begun, streamed, whole
from antiphon.server.http.body import decoded, engine_of

PATH: Final = "/v1/chat/completions"

OURS: Final = (
    *("store", "metadata", "user", "safety_identifier", "prompt_cache_key", "service_tier"),
    *SESSION_LOG,
)
"""Fields that say nothing to the model: they are ours to keep or to leave."""

USUAL: Final[dict[str, object]] = {
    "n": 1,
    "logprobs": False,
    "top_logprobs": 0,
    "modalities": ["text"],
    "frequency_penalty": 0,
    "presence_penalty": 0,
    "top_p": 1,
}
"""What these fields are when they are left out; not every dialect has a word for it."""


UNTOLD: Final = ("logprobs", "top_logprobs", "modalities", "audio", "functions", "function_call")
"""What asks for an answer in a form that this door does not tell."""


class Chat(msgspec.Struct, frozen=True, kw_only=True):
    """A request, as far as it is described here; any field of OpenAI's own may stand beside."""

    messages: list[dict[str, Any]]
    model: str | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    temperature: float | None = None
    max_completion_tokens: int | None = None
    store: bool | None = None


def _told(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a request the model is to be told."""
    return {k: v for k, v in body.items() if k not in OURS and USUAL.get(k, ...) != v}


def _stored(request: Request, body: Mapping[str, Any]) -> bool:
    """Whether what is said is kept: as the request says, else as the server is set."""
    store = body.get("store")
    if isinstance(store, bool):
        return store
    return engine_of(request).world.settings.stateless is Stateless.KEEP


async def _create(request: Request) -> Response:
    """Answer a chat, in one piece or as chunks."""
    body = await decoded(request, dict[str, Any])
    old = await relayed(request, OPENAI.profile.name, body, lambda asked: parse(_told(asked)))
    if old is not None:
        return old
    told = _told(body)
    if told.get("n", 1) != 1:
        raise InvalidInput("One answer is made at a time.", code="unsupported_parameter", at="n")
    for name in UNTOLD:
        if told.get(name) is not None:
            raise InvalidInput(
                "An answer of this kind is not told here. Leave it out.",
                code="unsupported_parameter",
                at=name,
            )
    options = told.get("stream_options") or {}
    turn = await begun(request, parse(told), OPENAI.profile.name, stored=_stored(request, body))
    writer = ChatWriter(
        f"chatcmpl-{turn.run.id}",
        turn.run.options.model,
        turn.run.created_ms // 1000,
        include_usage=isinstance(options, dict) and options.get("include_usage") is True,
    )
    if body.get("stream"):
        return streamed(request, turn, writer)
    return await whole(request, turn, writer)


routes: Final = [Endpoint("POST", PATH, _create, body=Chat, answer=dict[str, Any], starts=True)]
