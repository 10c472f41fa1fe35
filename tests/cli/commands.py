"""Running the real command line, in this process or in one of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import antiphon
from antiphon.cli import run
from antiphon.engine.edge.rehearsal import Received, RehearsalServer
from antiphon.engine.settings import Settings

PATIENCE_S = 20.0


@dataclass(frozen=True)
class Told:
    """What a command came to."""

    code: int
    out: str
    err: str
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.strip().split("\n")]


@dataclass
class Place:
    """A folder with a database, where commands are run."""

    folder: Path
    db: Path = field(init=False)
    config: Path | None = None

    def __post_init__(self) -> None:
        self.db = self.folder / "talk.db"

    @property
    def env(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ANTIPHON_", "OPENAI_"))
        }
        found = {
            "ANTIPHON_DB": str(self.db),
            "ANTIPHON_REHEARSAL_DELAY_S": "0",
            "ANTIPHON_CANCEL_GRACE_S": "0",
            "NO_COLOR": "1",
            "COLUMNS": "100",
            "TERM": "xterm",
        }
        if self.config is not None:
            found["ANTIPHON_CONFIG"] = str(self.config)
        return kept | found

    def do(self, *arguments: str, given: str | bytes = "") -> Told:
        """Run a command in this process, through everything but the process itself."""
        env: dict[str, str | None] = {name: None for name in os.environ if name not in self.env}
        runner = CliRunner()
        with runner.isolation(input=given, env=env | self.env) as (out, err, _):
            code = run(list(arguments))
            sys.stdout.flush()
            raw = out.getvalue()
            return Told(
                code, raw.decode("utf-8", "replace"), err.getvalue().decode("utf-8", "replace"), raw
            )

    def files(self) -> dict[str, bytes]:
        """Return what lies in the folder, but for the files that SQLite keeps for its readers."""
        return {
            path.name: path.read_bytes()
            for path in self.folder.iterdir()
            if not path.name.endswith(("-shm", "-wal"))
        }

    def say(self, *lines: str, more: tuple[str, ...] = ()) -> Told:
        """Type lines into a chat that goes on in the newest conversation."""
        return self.do("chat", "-c", *more, given="".join(f"{line}\n" for line in lines))

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Run a command in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "antiphon", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env,
            cwd=self.folder,
        )

    def stop_in_mid_answer(self, question: str = "/hold") -> None:
        """Ask in the newest conversation, and stop the answer once a part of it was shown."""

        async def work() -> None:
            settings = Settings.load(env=self.env)
            async with antiphon.open(settings=settings) as app:
                chat = await app.latest()
                assert chat is not None
                run = await chat.send(question)
                async for event in run.events():
                    if isinstance(event, antiphon.Preview):
                        await run.cancel()

        asyncio.run(asyncio.wait_for(work(), PATIENCE_S))

    def tree(self) -> dict[str, Any]:
        """Return the newest conversation as `show --json` tells it."""
        rows = self.do("show", "--json").json
        found: dict[str, Any] = self.do("show", rows[0]["id"], "--json").json
        return found

    def messages(self, **wanted: str) -> list[dict[str, Any]]:
        """Return the messages of the newest conversation that have these values."""
        return [
            m
            for m in self.tree()["messages"]
            if all((m.get(name) or "success") == value for name, value in wanted.items())
        ]


def text(message: dict[str, Any]) -> str:
    """Return the text of a message in JSON."""
    return "".join(block.get("text", "") for block in message["blocks"])


@contextmanager
def killed_in_mid_answer(place: Place, question: str, seen: str = "") -> Iterator[str]:
    """Ask in a process that is killed once its preview holds `seen`; give what it showed."""
    chat = place.start("chat", "-c", "--json", question)
    assert chat.stdout is not None
    assert chat.stdin is not None
    assert chat.stderr is not None
    shown = ""
    try:
        for line in chat.stdout:
            event = json.loads(line)
            if event["event"] == "preview":
                shown += event["text"]
                if seen in shown:
                    break
        chat.send_signal(signal.SIGKILL)
        assert chat.wait(PATIENCE_S) == -signal.SIGKILL
    finally:
        chat.kill()
        chat.wait(PATIENCE_S)
        for pipe in (chat.stdin, chat.stdout, chat.stderr):
            pipe.close()
    yield shown


@dataclass(frozen=True)
class Serving:
    """The rehearsal model on a socket, in a thread of its own."""

    server: RehearsalServer
    loop: asyncio.AbstractEventLoop

    def release(self) -> None:
        """Let an answer go on that stands at its hold."""
        self.loop.call_soon_threadsafe(self.server.release)


@contextmanager
def serving(place: Place, *, delay_s: float = 0.0) -> Iterator[Serving]:
    """Serve the rehearsal model, and make it the default model of `place`."""
    server = RehearsalServer(delay_s=delay_s)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.address(), loop).result(PATIENCE_S)
        place.config = place.folder / "antiphon.toml"
        place.config.write_text(
            f'[models.away]\nmodel = "rehearsal"\nbase_url = "{server.url}"\n', encoding="utf-8"
        )
        yield Serving(server, loop)
        asyncio.run_coroutine_threadsafe(server.close(), loop).result(PATIENCE_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()


@contextmanager
def upstream(place: Place, *, delay_s: float = 0.0) -> Iterator[list[Received]]:
    """Serve the rehearsal model; give what it receives."""
    with serving(place, delay_s=delay_s) as away:
        yield away.server.received
