"""A server in the test's own process, over a real store and a scripted provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from antiphon.engine.engine import Engine
from antiphon.engine.ports import Clock
from antiphon.engine.settings import Settings
from antiphon.engine.tools.function import Function
from antiphon.server.app import build
from tests.support.asgi import Client
from tests.support.engines import app_on
from tests.support.provider import ScriptedProvider

ROOT = "/antiphon/v1"


@dataclass(frozen=True, slots=True)
class Served:
    """A server and a client of it."""

    engine: Engine
    app: Starlette
    client: Client

    async def conversation(self) -> str:
        made = await self.client.post(f"{ROOT}/conversations", {})
        assert made.status == 201, made.body
        name: str = made.json["id"]
        return name

    async def send(self, conversation: str, content: str, **more: Any) -> dict[str, Any]:
        """Send a message and return its run."""
        path = f"{ROOT}/conversations/{conversation}/messages"
        sent = await self.client.post(path, {"content": content, **more})
        assert sent.status == 202, sent.body
        run: dict[str, Any] = sent.json
        return run

    async def idle(self, conversation: str) -> None:
        from antiphon.core.ids import ConversationId

        await self.engine.idle(ConversationId(conversation))


@asynccontextmanager
async def served(
    db: Path | str,
    provider: ScriptedProvider | None = None,
    *,
    settings: Settings | None = None,
    functions: Iterable[Function] = (),
    clock: Clock | None = None,
) -> AsyncIterator[Served]:
    """Serve `db`; without a provider, nothing may be sent."""
    async with app_on(
        db,
        provider or ScriptedProvider(),
        settings=settings or Settings(retry_base_s=0.0, cancel_grace_s=0.0),
        functions=functions,
        clock=clock,
    ) as library:
        app = build(library.engine)
        yield Served(library.engine, app, Client(app))
