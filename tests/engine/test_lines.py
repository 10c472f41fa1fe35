"""Warm lines: what is rendered once is not rendered, and not even read, again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from antiphon.core.blocks import Message
from antiphon.core.ids import ConversationId, MessageId
from antiphon.engine.dispatch.lines import LineCache
from antiphon.stores.base import Store
from tests.server.stage import served
from tests.support.provider import ScriptedProvider, says


class Reading:
    """A store that counts the messages of every path that was read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.read = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def path(
        self, conversation: ConversationId, leaf: MessageId, **bounds: Any
    ) -> list[Message]:
        path = await self._store.path(conversation, leaf, **bounds)
        self.read += len(path)
        return path


async def test_a_brought_history_is_not_read_back_to_be_rendered_a_second_time(
    tmp_path: Path,
) -> None:
    history = [
        {"role": role, "content": f"{role} {n}"}
        for n in range(40)
        for role in ("user", "assistant")
    ]
    async with served(tmp_path / "a.db", ScriptedProvider(says("Fine."))) as stage:
        world = stage.engine.world
        reading = Reading(world.store)
        world.lines = LineCache(reading)
        body = {"model": "rehearsal", "messages": [*history, {"role": "user", "content": "Now"}]}
        told = await stage.client.post("/v1/chat/completions", body)
        assert told.status == 200, told.body
        assert reading.read == 0
