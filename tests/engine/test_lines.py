"""Warm lines: what is rendered once is not rendered, and not even read, again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from antiphon.adapters.base import RenderedLine
from antiphon.core.blocks import Message
from antiphon.core.ids import ConversationId, MessageId
from antiphon.engine.dispatch.lines import LineCache
from antiphon.engine.dispatch.warm import Warm
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


class Kept(LineCache):
    """Warm lines that remember which line was brought to them, and which they gave."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.brought: list[RenderedLine] = []
        self.given: list[RenderedLine] = []

    def keep(self, *args: Any, **kwargs: Any) -> None:
        self.brought.append(args[1])
        super().keep(*args, **kwargs)

    async def line(self, *args: Any, **kwargs: Any) -> Warm:
        warm = await super().line(*args, **kwargs)
        self.given.append(warm.line)
        return warm


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/responses", {"input": "Go on."}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Go on."}]}),
    ],
)
async def test_what_a_first_message_was_judged_by_is_what_it_is_sent_by(
    tmp_path: Path, path: str, said: dict[str, Any]
) -> None:
    provider = ScriptedProvider(says("Fine."))
    async with served(tmp_path / "a.db", provider) as stage:
        world = stage.engine.world
        world.lines = lines = Kept(world.store)
        told = await stage.client.post(path, {"model": "rehearsal", **said})
        assert told.status == 200, told.body
        assert lines.given
        assert lines.given[0] is lines.brought[0]
        assert provider.messages() == [{"role": "user", "content": "Go on."}]
