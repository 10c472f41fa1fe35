"""`antiphon demo`: a conversation is begun, its process killed in mid-answer, and taken up again.

Nothing here is staged: the upstream and both chats are processes of their own, the kill is
SIGKILL, and every claim at the end is measured on what the upstream received and what the
database holds.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import click

from antiphon.cli.demo.claims import LAST_TURN, LONG_TURN, TOOL_TURN, Claim, Facts, judge
from antiphon.cli.opening import reading, run
from antiphon.cli.output import json_option, print_json
from antiphon.cli.view.run import explained
from antiphon.cli.view.text import Ink, cells, clip, one_line, screen_width
from antiphon.core.dispatch import ACTIVE
from antiphon.core.ids import LOCAL_TENANT
from antiphon.core.manifest import Manifest
from antiphon.core.records import Attempt, Run
from antiphon.engine.keeping.explain import verified_request
from antiphon.engine.settings import Settings
from antiphon.engine.world import World
from antiphon.errors import InternalError

MODEL: Final = "stand-in"
SEEN: Final = 12
"""Pieces of the preview that have to be on the screen before the process is killed."""

PATIENCE_S: Final = 30.0
WORD_S: Final = 0.02


@click.command()
@click.option("--keep", is_flag=True, help="Keep the folder, to look around in it afterwards.")
@json_option
def command(keep: bool, as_json: bool) -> int:
    """Watch a run crash in mid-answer and come back: offline, in a folder of its own.

    A model that is a script answers in one process, a chat runs in another and is really killed
    while an answer streams, and a third one takes the conversation up. Then what the upstream
    received is compared with what the database holds.

    The exit code is 0 only if every claim held.
    """
    folder = Path(tempfile.mkdtemp(prefix="antiphon-demo-"))
    began = time.monotonic()
    stage = _Stage(folder, quiet=as_json, ink=Ink())
    try:
        claims = run(stage.play())
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    seconds = time.monotonic() - began
    held = all(claim.held for claim in claims)
    if as_json:
        print_json(
            {
                "ok": held,
                "seconds": round(seconds, 2),
                "claims": [
                    {"claim": c.claim, "held": c.held, "measured": c.measured} for c in claims
                ],
            }
        )
    else:
        stage.verdict(claims, seconds)
        if keep:
            stage.tell(f"Look around: antiphon show --db {folder / 'demo.db'}", "dim")
    return 0 if held else 1


class _Stage:
    """The three processes and what is told about them."""

    def __init__(self, folder: Path, *, quiet: bool, ink: Ink) -> None:
        self._folder = folder
        self._quiet = quiet
        self._ink = ink
        self._config = folder / "antiphon.toml"
        self._db = folder / "demo.db"
        self._settings = Settings.load({"db": str(self._db)}, env={})
        self._said: dict[str, str] = {}  # every message that a chat reported as saved
        self._half = ""  # what the killed chat had shown

    # Telling.

    def tell(self, text: str = "", *styles: str) -> None:
        """Say a line."""
        if not self._quiet:
            click.echo(self._ink(text, *styles))

    def _scene(self, number: int, title: str) -> None:
        self.tell()
        self.tell(f"{number}  {title}", "bold")

    def _line(self, who: str, text: str, note: str = "", style: str = "plain") -> None:
        aside = self._ink(f"   {note}", "dim") if note else ""
        text = clip(text, screen_width() - 14 - cells(note))
        if not self._quiet:
            click.echo(f"   {self._ink(f'{who:<7}', 'dim')}{self._ink(text, style)}{aside}")

    def verdict(self, claims: list[Claim], seconds: float) -> None:
        """Tell what was measured."""
        self._scene(4, "What was measured")
        for claim in claims:
            mark = self._ink("✓", "good") if claim.held else self._ink("✗", "bad")
            if not self._quiet:
                click.echo(f"   {mark} {claim.claim:<16} {claim.measured}")
        self.tell(f"   {seconds:.1f} s", "dim")

    # The play.

    async def play(self) -> list[Claim]:
        """Do it all and return what was measured."""
        self.tell("A conversation is begun, killed in mid-answer, and taken up again.")
        self.tell("Nothing leaves this machine.", "dim")
        async with self._upstream() as url:
            await asyncio.to_thread(self._configure, url)
            self._line("model", f"a script that speaks OpenAI's dialect, at {url}")
            self._line("data", str(self._db))
            await self._killed_chat()
            await self._second_chat()
            received = await asyncio.to_thread(_received, url)
        return await self._measure(received)

    async def _killed_chat(self) -> None:
        async with self._chat() as chat:
            self._scene(1, f"A chat with a tool, in process {chat.pid}")
            await self._turn(chat, TOOL_TURN)
            self._scene(2, "Killed in mid-answer")
            self._line("you", LONG_TURN)
            _say(chat, LONG_TURN)
            pieces = 0
            async for event in _events(chat):
                if event["event"] == "preview":
                    self._half += event["text"]
                    pieces += 1
                    if pieces == SEEN:
                        break
            chat.send_signal(signal.SIGKILL)
            code = await chat.wait()
        self._line("model", f"{one_line(self._half)} …", "a preview: not saved", "dim")
        self._line("kill", f"SIGKILL; process {chat.pid} is gone, exit {code}", style="warn")
        async with reading(self._settings) as world:
            for attempt in await world.store.attempts_in(ACTIVE):
                self._line("store", f"{attempt.state}: nobody knows what the model did")

    async def _second_chat(self) -> None:
        async with self._chat("-c") as chat:
            self._scene(3, f"Process {chat.pid} comes back")
            async for event in _events(chat):
                if event["event"] == "conversation":
                    break
            async with reading(self._settings) as world:
                for told, attempt in await _newest(world):
                    self._line("store", f"{attempt.state}; {attempt.proof or 'no proof'}")
                    self._line("run", f"{told.status}: {explained(told.error_code)}")
            await self._turn(chat, LAST_TURN)
            assert chat.stdin is not None
            chat.stdin.close()
            await asyncio.wait_for(chat.wait(), PATIENCE_S)

    async def _turn(self, chat: asyncio.subprocess.Process, text: str) -> None:
        """Say something and hear the whole answer."""
        self._line("you", text)
        _say(chat, text)
        async for event in _events(chat):
            match event:
                case {"event": "committed", "message": message}:
                    said = _text(message)
                    self._said[message["id"]] = said
                    for block in message["blocks"]:
                        if block["kind"] == "tool_call":
                            self._line("model", f"→ {block['name']} {block['arguments']}")
                    if said:
                        self._line("model", one_line(said), "saved", "good")
                case {"event": "call_finished", "call": call}:
                    self._line("tool", f"← {call['content'][0]['text']}")
                case {"event": "ended"}:
                    return
                case _:
                    pass

    # What is there afterwards.

    async def _measure(self, received: list[bytes]) -> list[Claim]:
        async with reading(self._settings) as world:
            (row,) = await world.store.conversations(LOCAL_TENANT)
            tree = await world.store.tree(row.id)
            runs = await world.store.runs(row.id)
            calls = [call for r in runs for call in await world.store.calls(row.id, r.id)]
            dispatched = [
                (await verified_request(world, manifest)).body
                for r in runs
                for manifest in await _sent(world, r)
            ]
        return judge(
            Facts(
                said=self._said,
                half=self._half,
                stored={message.id: message.text for message in tree},
                tool_starts=[call.attempt for call in calls],
                dispatched=dispatched,
                received=received,
            )
        )

    # Processes.

    def _configure(self, url: str) -> None:
        self._config.write_text(
            f'[models.{MODEL}]\nprofile = "openai-chat"\nmodel = "rehearsal"\nbase_url = "{url}"\n',
            encoding="utf-8",
        )

    @asynccontextmanager
    async def _upstream(self) -> AsyncIterator[str]:
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "antiphon.engine.edge.rehearsal", "--stdin"),
            *("--delay", str(WORD_S)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=_environment(),
        )
        try:
            assert server.stdout is not None
            yield (await asyncio.wait_for(server.stdout.readline(), PATIENCE_S)).decode().strip()
        finally:
            await _end(server)

    @asynccontextmanager
    async def _chat(self, *more: str) -> AsyncIterator[asyncio.subprocess.Process]:
        chat = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "antiphon", "chat", "--json", "--tools", "demo"),
            *("-m", MODEL, "--db", str(self._db), "--config", str(self._config), *more),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=_environment(),
        )
        try:
            yield chat
        finally:
            await _end(chat)


def _environment() -> dict[str, str]:
    """Return the environment without what would lead the children elsewhere."""
    return {name: v for name, v in os.environ.items() if not name.startswith("ANTIPHON_")}


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


def _say(chat: asyncio.subprocess.Process, text: str) -> None:
    assert chat.stdin is not None
    chat.stdin.write(f"{text}\n".encode())


async def _events(chat: asyncio.subprocess.Process) -> AsyncIterator[dict[str, Any]]:
    """Yield what the chat reports.

    Raises:
        InternalError: It ended before it should.
    """
    assert chat.stdout is not None
    while line := await asyncio.wait_for(chat.stdout.readline(), PATIENCE_S):
        yield json.loads(line)
    raise InternalError("The chat ended too early.", at=f"process {chat.pid}")


def _text(message: dict[str, Any]) -> str:
    return "".join(block["text"] for block in message["blocks"] if block["kind"] == "text")


async def _sent(world: World, row: Run) -> list[Manifest]:
    """Return the manifests of a run that were accepted."""
    return [
        (await world.store.manifest(operation))[0]
        for operation in await world.store.operations(row.conversation, row.id)
        if any(attempt.generation for attempt in await world.store.attempts(operation))
    ]


async def _newest(world: World) -> list[tuple[Run, Attempt]]:
    """Return the newest run with its newest attempt."""
    (row,) = await world.store.conversations(LOCAL_TENANT)
    newest = (await world.store.runs(row.id))[-1]
    operations = await world.store.operations(row.id, newest.id)
    return [(newest, (await world.store.attempts(operations[-1]))[-1])]


def _received(url: str) -> list[bytes]:
    """Return the bodies of all requests that the upstream received, in their order."""
    address = f"{url.removesuffix('/v1')}/rehearsal/received"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(address, timeout=PATIENCE_S) as answer:
        return [base64.b64decode(one["body"]) for one in json.load(answer)]
