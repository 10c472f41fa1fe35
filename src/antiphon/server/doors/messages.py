"""Anthropic Messages: any client of it, by its base URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from antiphon.adapters.anthropic.parse import parse
from antiphon.adapters.anthropic.profile import ANTHROPIC
from antiphon.adapters.anthropic.write import MessagesWriter
from antiphon.core.traffic.keys import Right
from antiphon.engine.settings import Stateless
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.doors.relay import relayed
from antiphon.server.doors.turn import SESSION_LOG, begun, counted, streamed, whole
from antiphon.server.http.body import answer, decoded, engine_of

PATH: Final = "/v1/messages"

OURS: Final = ("metadata", "service_tier", *SESSION_LOG)
"""Fields that say nothing to the model: they are ours to keep or to leave."""


USUAL: Final[dict[str, object]] = {"thinking": {"type": "disabled"}}
"""What these fields are when they are left out; not every dialect has a word for it."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A request, as far as it is described here; any field of Anthropic's own may stand beside."""

    messages: list[dict[str, Any]]
    max_tokens: int
    model: str | None = None
    system: str | list[dict[str, Any]] | None = None
    stream: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    temperature: float | None = None


def _told(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a request the model is to be told."""
    return {k: v for k, v in body.items() if k not in OURS and USUAL.get(k, ...) != v}


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """A request whose tokens are to be counted, as far as it is described here."""

    messages: list[dict[str, Any]]
    model: str | None = None
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None


async def _create(request: Request) -> Response:
    """Answer a message, in one piece or as events."""
    body = await decoded(request, dict[str, Any])
    old = await relayed(request, ANTHROPIC.name, body, lambda asked: parse(_told(asked)))
    if old is not None:
        return old
    kept = engine_of(request).world.settings.stateless is Stateless.KEEP
    turn = await begun(request, parse(_told(body)), ANTHROPIC.name, stored=kept)
    writer = MessagesWriter(f"msg_{turn.run.id}", turn.run.options.model)
    if body.get("stream"):
        return streamed(request, turn, writer)
    return await whole(request, turn, writer)


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """How many tokens a request would send."""

    input_tokens: int


async def _count(request: Request) -> Response:
    """Count the tokens of what a message would send; nothing is sent."""
    body = await decoded(request, dict[str, Any])
    # The answer is not asked for here, but a request without its limit is none.
    parsed = parse(_told({"max_tokens": 1, **body}))
    return answer(Counted(input_tokens=await counted(request, parsed, ANTHROPIC.name)))


routes: Final = [
    Endpoint("POST", PATH, _create, body=Message, answer=dict[str, Any], starts=True),
    Endpoint("POST", PATH + "/count_tokens", _count, body=Count, answer=Counted, right=Right.READ),
]
