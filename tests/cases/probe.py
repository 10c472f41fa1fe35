"""What would be sent next: asked of a copy of the database, so that asking changes nothing.

The copy is served by a process of its own, as after a restart. What is still under way there is
answered with a text that no case contains; then a plain follow-up is sent and its bytes are what
the provider received.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.cases.facts import PROBE_ANSWER, Asked, text_of
from tests.cases.player import Start
from tests.cases.provider import Exchange, HeldProvider
from tests.cases.stage import Refused, Stage

FOLLOW_UP: Final = "(a plain follow-up)"
TRIES: Final = 8
DEADLINE_S: Final = 601.0


async def follow_up(start: Start, conversation: str, now_ms: int) -> Asked:
    """Return the request that a plain follow-up in `conversation` would produce."""
    with tempfile.TemporaryDirectory(prefix="probe-") as folder:
        copy = Path(folder) / "copy.db"
        await asyncio.to_thread(_copy, start.db, copy)
        async with HeldProvider(_answer) as provider:
            return await _ask(start, provider, Path(folder), copy, conversation, now_ms)


def _copy(db: str, copy: Path) -> None:
    with (
        closing(sqlite3.connect(f"file:{db}?mode=ro", uri=True)) as there,
        closing(sqlite3.connect(copy)) as here,
    ):
        there.backup(here)


async def _answer(exchange: Exchange) -> None:
    await exchange.say(PROBE_ANSWER)
    await exchange.finish("stop")


async def _ask(
    start: Start,
    provider: HeldProvider,
    folder: Path,
    copy: Path,
    conversation: str,
    now_ms: int,
) -> Asked:
    stage = Stage(folder, lambda _client, _shown: None)
    urls = {name: provider.base_url(name) for name in start.base_urls}
    await stage.start(
        msgspec.structs.replace(
            start,
            db=str(copy),
            effects=str(folder / "effects"),
            now_ms=now_ms,
            base_urls=urls,
            free=True,
        )
    )
    try:
        given: dict[str, Any] = {"conversation": conversation, "text": FOLLOW_UP}
        await stage.do("send", **given, parent=None, message=None, key=None)
        for number in range(TRIES):
            await stage.do("quiet")
            for exchange in provider.exchanges:
                if text_of(exchange.messages[-1]) == FOLLOW_UP:
                    return Asked(exchange)
            await provider.changed(0.2)
            if number == TRIES // 2:
                # What nobody can know before its deadline is settled after it.
                await stage.do("advance", seconds=DEADLINE_S)
                await stage.do("sweep")
        return Asked(error="nothing_sent")
    except Refused as refused:
        return Asked(error=refused.code)
    finally:
        await stage.kill()
