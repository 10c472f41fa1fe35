"""Starting, steering and killing the process that plays a case."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.cases.player import Start

ROOT: Final = Path(__file__).parents[2]
WAIT_S: Final = 30.0
"""Longest wait for anything; only a bug comes near it."""

Shown = Callable[[str, dict[str, Any]], None]


class Refused(Exception):
    """The product refused a command, with a code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class PlayerFailed(Exception):
    """The player itself broke: a bug in the product or in the case runner."""


class _Zygote:
    """One process that has imported everything and forks players."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._one_at_a_time = threading.Lock()

    def fork(self, address: str) -> int:
        """Start a player that connects to `address`; return its process id."""
        with self._one_at_a_time:
            return self._fork(address)

    def _fork(self, address: str) -> int:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.cases.player"],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            atexit.register(self._end)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(address + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def _end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.communicate(timeout=WAIT_S)


ZYGOTE: Final = _Zygote()


class Stage:
    """A player and the line to it. May be killed and started again on the same file."""

    def __init__(self, folder: Path, shown: Shown) -> None:
        self._address = str(folder / "player.sock")
        self._shown = shown
        self._pid: int | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0

    @property
    def alive(self) -> bool:
        """Whether a player is there to be spoken to."""
        return self._writer is not None

    async def start(self, start: Start) -> None:
        """Start a player; it has recovered when this returns."""
        connected: asyncio.Future[tuple[asyncio.StreamReader, asyncio.StreamWriter]]
        connected = asyncio.get_running_loop().create_future()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._address)
        server = await asyncio.start_unix_server(
            lambda reader, writer: connected.set_result((reader, writer)),
            self._address,
            limit=64 * 2**20,
        )
        self._pid = await asyncio.to_thread(ZYGOTE.fork, self._address)
        reader, writer = await asyncio.wait_for(connected, WAIT_S)
        self._writer = writer
        server.close()
        ready = self._waiting[0] = asyncio.get_running_loop().create_future()
        self._reading = asyncio.create_task(self._read(reader))
        writer.write(msgspec.json.encode(start) + b"\n")
        await asyncio.wait_for(ready, WAIT_S)

    async def do(self, name: str, **given: Any) -> Any:
        """Have the player do something and return what it says.

        Raises:
            Refused: The product refused it.
            PlayerFailed: It broke, or there is none.
        """
        if self._writer is None:
            raise PlayerFailed(f"{name}: the process is down")
        self._number += 1
        answer = self._waiting[self._number] = asyncio.get_running_loop().create_future()
        command = {"id": self._number, "do": name, "with": given}
        self._writer.write(json.dumps(command).encode() + b"\n")
        return await asyncio.wait_for(answer, WAIT_S)

    async def kill(self) -> None:
        """Kill the player as a power cut would, and return when nothing is left of it."""
        if self._pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        async with asyncio.timeout(WAIT_S):
            # Its parent is the zygote: there is no event of ours to wait for.
            while _exists(self._pid):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert self._writer is not None
        assert self._reading is not None
        self._writer.transport.abort()
        await asyncio.wait({self._reading})
        self._pid = self._writer = self._reading = None

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._take(json.loads(line))
        except (ConnectionError, asyncio.CancelledError):
            pass
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(PlayerFailed("the process ended"))
                waiting.exception()  # asked for, so that nobody has to
        self._waiting.clear()

    def _take(self, told: dict[str, Any]) -> None:
        if "client" in told:
            self._shown(told["client"], told["shown"])
            return
        waiting = self._waiting.pop(told["id"])
        if waiting.done():
            return
        if "refused" in told:
            waiting.set_exception(Refused(told["refused"]["code"], told["refused"]["message"]))
        elif "failed" in told:
            waiting.set_exception(PlayerFailed(told["failed"]))
        else:
            waiting.set_result(told["done"])


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
