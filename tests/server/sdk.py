"""The official SDK against a real server on loopback, over a scripted provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import APIStatusError, AsyncOpenAI, AsyncStream
from openai.types.responses import Response, ResponseStreamEvent

from antiphon.core.ids import ConversationId
from antiphon.engine.engine import Engine
from antiphon.engine.settings import Settings
from antiphon.engine.tools.function import Function
from antiphon.server.http.serving import listen, serve, url_of
from tests.server.stage import served
from tests.support.provider import ScriptedProvider

WAIT_S = 20.0
"""Longest wait for anything that a test expects; never reached by one that passes."""

LOOK: dict[str, Any] = {
    "type": "function",
    "name": "look",
    "description": "Looks out of the window.",
    "parameters": {"type": "object", "properties": {}},
    "strict": None,
}


@dataclass(frozen=True, slots=True)
class Door:
    """A server, its engine and provider, and the SDK's clients of it."""

    url: str
    engine: Engine
    provider: ScriptedProvider
    client: AsyncOpenAI

    async def say(self, text: Any, **more: Any) -> Response:
        """Create a response and return it."""
        told: Response = await self.client.responses.create(model="rehearsal", input=text, **more)
        return told

    async def stream(self, text: Any, **more: Any) -> AsyncStream[ResponseStreamEvent]:
        """Create a response and return its events."""
        told: AsyncStream[ResponseStreamEvent] = await self.client.responses.create(
            model="rehearsal", input=text, stream=True, **more
        )
        return told

    async def idle(self, conversation: str) -> None:
        await self.engine.idle(ConversationId(conversation))


@asynccontextmanager
async def door(
    db: Path | str,
    *scripts: Any,
    settings: Settings | None = None,
    functions: Iterable[Function] = (),
) -> AsyncIterator[Door]:
    """Serve `db` on loopback; each script answers one request to the provider."""
    provider = ScriptedProvider(*scripts)
    used = settings or Settings(retry_base_s=0.0, cancel_grace_s=0.0, port=0)
    async with served(db, provider, settings=used, functions=functions) as stage:
        listener, stop = listen(used), asyncio.Event()
        serving = asyncio.create_task(serve(stage.app, listener, stop=stop))
        url = url_of(listener)
        client = AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0, timeout=WAIT_S)
        try:
            async with client:
                yield Door(url, stage.engine, provider, client)
        finally:
            stop.set()
            await serving


def conversation_of(response: Response) -> str:
    assert response.conversation is not None
    return response.conversation.id


def error_of(error: APIStatusError) -> tuple[int, str | None, str | None]:
    """Return status, code and place of an error."""
    return error.status_code, error.code, error.param


def within(event: ResponseStreamEvent) -> Response:
    """Return the response that an event of the whole response holds."""
    response = getattr(event, "response", None)
    assert isinstance(response, Response), event.type
    return response


async def kinds(stream: AsyncIterator[ResponseStreamEvent]) -> list[str]:
    return [event.type async for event in stream]


def output(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}
