"""The server as a process that kills itself at a point, forked from one that has imported all.

A config on standard input is one life: its process id and then its exit code are printed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path

import msgspec

import antiphon
from antiphon.engine.catalogue.models import Model, Models
from antiphon.engine.settings import Settings
from antiphon.server.app import build
from antiphon.server.http.serving import listen, serve, url_of
from tests.crash.hooks import Killer, install

WAIT_S = 60.0


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """One life of the server: where it keeps what, and the point at which it dies."""

    folder: str
    db: str
    base_url: str
    lease_s: float
    kill: str | None = None

    def path(self, name: str) -> Path:
        return Path(self.folder, name)


async def live(config: Config) -> None:
    """Serve until told to stop."""
    model = Model(name="m", profile="openai-chat", model="m", base_url=config.base_url)
    settings = Settings(
        port=0,
        drain_s=0.01,
        retry_base_s=0.0,
        lease_s=config.lease_s,
        models=Models(named={"m": model}, default="m"),
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with antiphon.open(config.db, settings=settings) as app:
        listener = listen(settings)
        half = config.path("url.half")
        half.write_text(url_of(listener), encoding="utf-8")
        half.rename(config.path("url.txt"))
        await serve(build(app.engine), listener, stop=stop)


def once(config: Config) -> int:
    """Live once and return the exit code."""
    install(Killer(config.kill, config.path("trace.txt")))
    try:
        asyncio.run(asyncio.wait_for(live(config), WAIT_S))
    except BaseException:  # noqa: BLE001  # the last frame of a forked child
        traceback.print_exc()
        return 1
    return 0


def zygote() -> None:
    """Fork one life for each config, and say how it ended."""
    for name in ("aiohttp", "uvicorn", "antiphon.adapters.registry"):
        import_module(name)
    for name in ("antiphon.stores.sqlite", "antiphon.stores.postgres"):
        import_module(name)
    for line in sys.stdin:
        config = msgspec.json.decode(line, type=Config)
        pid = os.fork()
        if pid == 0:
            log = os.open(config.path("log.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            code = once(config)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    zygote()
