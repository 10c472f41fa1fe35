"""The Vercel AI SDK in a Node process of its own: it is told what to ask, and tells what it saw."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from tests.server.sdk import WAIT_S, Door
from tests.support.packages import installed

DOORS: Final = ("chat", "compatible", "responses", "messages")
"""Chat Completions by both of its packages, Responses, and Messages."""


class AISDK:
    """The process, which answers one job after the other."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ask(self, at: Door, door: str, *, stream: bool, **how: Any) -> dict[str, Any]:
        """Return what an application saw that asked about the weather, or sent other messages."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"url": at.url, "door": door, "stream": stream, **how}
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        async with asyncio.timeout(2 * WAIT_S):
            line = await self._process.stdout.readline()
        assert line, "the SDK's process ended"
        seen: dict[str, Any] = json.loads(line)
        assert "unhandled" not in seen, seen
        return seen


@asynccontextmanager
async def ai_sdk() -> AsyncIterator[AISDK]:
    """Start the process; it ends with its input."""
    folder = installed("clients")
    process = await asyncio.create_subprocess_exec(
        "node",
        "ai-sdk.mjs",
        cwd=folder,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=2**24,
    )
    try:
        yield AISDK(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(WAIT_S):
            await process.wait()
