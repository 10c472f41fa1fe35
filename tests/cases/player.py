"""The process that plays a case: the real engine over the real store, steered from outside.

It is a process of its own so that `crash` is SIGKILL: nothing is cleaned up, nothing is written,
and the lock is released by the kernel as any dead process's. A zygote imports the product once
and forks a player for each start.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from antiphon.adapters.openai_chat import OpenAIChat
from antiphon.core.asking import Ask, Output
from antiphon.core.blocks import (
    Block,
    Message,
    Origin,
    Outcome,
    Role,
    Status,
    Text,
    ToolCall,
    ToolResult,
    default_trust,
)
from antiphon.core.commands import StartKey
from antiphon.core.digests import NO_KEY, digest
from antiphon.core.events import CaughtUp, Committed, Durable, MessagesAdded, Preview, Withdrawn
from antiphon.core.ids import CallId, ConversationId, MessageId, RunId
from antiphon.core.manifest import ToolDeclaration
from antiphon.core.records import Call, CallState
from antiphon.core.recovery import Resend
from antiphon.engine.assembly import open_world
from antiphon.engine.catalogue.models import Model, Models
from antiphon.engine.dispatch.lines import LineCache
from antiphon.engine.edge.http import HttpTransport
from antiphon.engine.engine import Engine
from antiphon.engine.live import Broker
from antiphon.engine.settings import Settings
from antiphon.engine.tools.toolbox import Toolbox
from antiphon.engine.world import World
from antiphon.errors import AntiphonError
from tests.cases.gates import Gates, HeldFunction, HeldStore, HeldTransport
from tests.support.clock import SimulatedClock, settle

QUIET_ROUNDS = 3
ROUND_S = 0.001


class Start(msgspec.Struct, kw_only=True):
    """How a player begins."""

    db: str
    effects: str
    now_ms: int
    base_urls: dict[str, str]
    functions: dict[str, dict[str, bool]]
    client_tools: list[str]
    retries: int
    resend: bool
    closing_ends: bool
    free: bool = False


@dataclass(slots=True)
class _Playing:
    """An engine under way."""

    engine: Engine
    gates: Gates
    clock: SimulatedClock
    tools: tuple[ToolDeclaration, ...]


class Player:
    """Carries out one command after the other, and tells what clients are shown."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._clients: dict[str, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Play until the other side leaves."""
        start = msgspec.json.decode(await self._reader.readline(), type=Start)
        OpenAIChat.closing_ends = start.closing_ends
        clock, gates = SimulatedClock(start.now_ms), Gates(all_free=start.free)
        asyncio.get_running_loop().set_default_executor(_Threads(gates))
        settings = _settings(start)
        transport = HttpTransport(keepalive_s=settings.idle_timeout_s)
        async with open_world(
            start.db, settings=settings, transport=transport, clock=clock
        ) as world:
            store = HeldStore(world.store, gates)
            engine = Engine(_held(world, store, gates, start))
            await engine.start()
            declared = [f.declaration for f in engine.world.functions.values()]
            declared += [_client_tool(name) for name in start.client_tools]
            playing = _Playing(engine, gates, clock, tuple(declared))
            self._send({"id": 0, "done": {"pid": os.getpid()}})
            while line := await self._reader.readline():
                await self._answer(playing, json.loads(line))
            os._exit(0)

    async def _answer(self, playing: _Playing, command: dict[str, Any]) -> None:
        number, name, given = command["id"], command["do"], command["with"]
        answer: dict[str, Any] = {"id": number}
        try:
            done = getattr(self, f"do_{name}")(playing, **given)
            answer["done"] = await done if isinstance(done, Awaitable) else done
        except AntiphonError as error:
            answer["refused"] = {"code": error.code, "at": error.at, "message": str(error)}
        except Exception:  # noqa: BLE001  # told to the other side, which fails the case with it
            answer["failed"] = traceback.format_exc()
        self._send(answer)

    def _send(self, value: dict[str, Any]) -> None:
        self._writer.write(json.dumps(value).encode() + b"\n")

    # Conversations and runs.

    async def do_create(
        self, on: _Playing, conversation: str, messages: list[dict[str, Any]], head: str | None
    ) -> None:
        row = await on.engine.create_conversation(conversation=conversation)
        nodes = [_message(row.id, fields) for fields in messages]
        await on.engine.add_messages(row.id, nodes, MessageId(head) if head else None)

    async def do_send(
        self,
        on: _Playing,
        conversation: str,
        text: str,
        parent: str | None,
        message: str | None,
        key: str | None,
    ) -> str:
        run = await on.engine.send(
            ConversationId(conversation),
            text,
            self._ask(on, conversation),
            parent=MessageId(parent) if parent else None,
            message=message,
            key=_key(on, key, text),
        )
        return run.id

    async def do_edit(
        self, on: _Playing, conversation: str, edited: str, text: str, message: str | None
    ) -> str:
        run = await on.engine.edit(
            ConversationId(conversation),
            MessageId(edited),
            text,
            self._ask(on, conversation),
            message=message,
        )
        return run.id

    async def do_regenerate(
        self, on: _Playing, conversation: str, message: str, key: str | None
    ) -> str:
        run = await on.engine.regenerate(
            ConversationId(conversation),
            MessageId(message),
            self._ask(on, conversation),
            key=_key(on, key, message),
        )
        return run.id

    async def do_answer(
        self, on: _Playing, conversation: str, run: str, outputs: dict[str, dict[str, Any]]
    ) -> None:
        given = {
            call: Output(text=fields.get("content") or "", error=fields["outcome"] != "success")
            for call, fields in outputs.items()
        }
        await on.engine.answer(ConversationId(conversation), RunId(run), given)

    async def do_cancel(self, on: _Playing, conversation: str, run: str, reason: str) -> str:
        row = await on.engine.cancel(ConversationId(conversation), RunId(run), reason=reason)
        on.gates.free(f"accept {run}")  # it will be denied; nobody has to wait for that
        for call in await on.engine.world.store.calls(row.conversation, row.id):
            on.gates.free(f"call {call.call_id}")
        return row.status

    async def do_delete(self, on: _Playing, conversation: str, messages: list[str]) -> None:
        before = await on.engine.world.store.open_runs()
        await on.engine.delete(ConversationId(conversation), [MessageId(m) for m in messages])
        for run in before:
            if not (await on.engine.world.store.find_run(run.id)).open:
                on.gates.free(f"accept {run.id}")

    async def do_keep(self, on: _Playing, conversation: str, message: str) -> None:
        await on.engine.keep(ConversationId(conversation), MessageId(message))

    async def do_look(self, on: _Playing, conversation: str, head: str | None) -> None:
        leaf = MessageId(head) if head else None
        await on.engine.move_head(ConversationId(conversation), leaf)

    def _ask(self, on: _Playing, conversation: str) -> Ask:
        return Ask(model=conversation, tools=on.tools)

    # Time, gates and what is under way.

    async def do_advance(self, on: _Playing, seconds: float) -> None:
        await on.clock.advance(seconds)
        await self.do_quiet(on)

    async def do_sweep(self, on: _Playing) -> None:
        # What is late is seen by the clock: nothing here waits for somebody to look.
        await self.do_quiet(on)

    async def do_open(self, on: _Playing, gate: str, value: Any = None) -> bool:
        opened = on.gates.open(gate, value)
        await self.do_quiet(on)
        return opened

    async def do_quiet(self, on: _Playing) -> dict[str, Any]:
        """Wait until the engine waits for somebody else: the provider, a gate, the clock."""
        calm = 0
        while calm < QUIET_ROUNDS:
            await settle()
            await asyncio.sleep(ROUND_S)
            calm = 0 if on.gates.busy else calm + 1
        return {
            "held": on.gates.held,
            "now_ms": on.clock.now_ms(),
            "failures": [repr(failure) for failure in on.engine.failures],
        }

    async def do_row(self, on: _Playing, run: str) -> dict[str, Any]:
        store = on.engine.world.store
        row = await store.find_run(RunId(run))
        operations = await store.operations(row.conversation, row.id)
        attempts = await store.attempts(operations[-1]) if operations else []
        return {
            "status": row.status.value,
            "attempt": attempts[-1].state.value if attempts else None,
            "error_code": row.error_code,
            "leaf": row.leaf,
            "seq": row.seq,
        }

    # Clients.

    async def do_follow(self, on: _Playing, client: str, conversation: str, after: int) -> None:
        await self.do_unfollow(on, client)
        follow = self._follow(on, client, ConversationId(conversation), after)
        self._clients[client] = asyncio.create_task(follow)
        await self.do_quiet(on)

    async def do_unfollow(self, on: _Playing, client: str) -> None:
        task = self._clients.pop(client, None)
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    async def _follow(
        self, on: _Playing, client: str, conversation: ConversationId, after: int
    ) -> None:
        async for item in on.engine.follow(conversation, after):
            shown: dict[str, Any]
            match item:
                case Preview():
                    shown = {"preview": msgspec.to_builtins(item)}
                case CaughtUp(seq):
                    shown = {"caught_up": seq}
                case Durable(seq=seq, event=Committed(run=run, message=message)):
                    told = await on.engine.world.store.message(conversation, message)
                    shown = {"seq": seq, "committed": told.text, "run": run}
                case Durable(seq=seq, event=Withdrawn(run=run, generation=generation)):
                    shown = {"seq": seq, "withdrawn": generation, "run": run}
                case Durable(seq=seq, event=MessagesAdded(messages=added)):
                    nodes = [await on.engine.world.store.message(conversation, m) for m in added]
                    kept = [m for m in nodes if m.status is Status.CANCELED and m.run]
                    shown = {"seq": seq}
                    if kept:
                        shown |= {"kept": kept[0].text, "run": kept[0].run}
                case Durable(seq=seq):
                    shown = {"seq": seq}
            self._send({"client": client, "shown": shown})


class _Threads(ThreadPoolExecutor):
    """Threads that count as busy: while one works for the engine, the engine is not waiting."""

    def __init__(self, gates: Gates) -> None:
        super().__init__(max_workers=4)
        self._gates = gates

    def submit(self, work: Any, /, *args: Any, **named: Any) -> Any:
        loop = asyncio.get_running_loop()
        self._gates.busy += 1
        future = super().submit(work, *args, **named)
        future.add_done_callback(lambda _: loop.call_soon_threadsafe(self._done))
        return future

    def _done(self) -> None:
        self._gates.busy -= 1


def _settings(start: Start) -> Settings:
    models = {
        name: Model(name=name, profile="openai-chat", model="m", base_url=f"{url}/v1")
        for name, url in start.base_urls.items()
    }
    return Settings(
        db=start.db,
        retries=start.retries,
        resend_after_unknown=Resend.SAME_PROCESS if start.resend else Resend.NEVER,
        models=Models(named=models, default=next(iter(models))),
    )


def _held(world: World, store: HeldStore, gates: Gates, start: Start) -> World:
    """Return the world with the case's gates in it."""
    held: Any = store

    async def executing() -> list[Call]:
        found: list[Call] = []
        for run in await held.open_runs():
            found += await held.calls(run.conversation, run.id)
        return [call for call in found if call.state is CallState.EXECUTING]

    functions = Toolbox(
        HeldFunction(name, gates=gates, effects=Path(start.effects), executing=executing).declared(
            **facts
        )
        for name, facts in start.functions.items()
    )
    return replace(
        world,
        store=held,
        transport=HeldTransport(world.transport, gates, store),
        broker=Broker(held),
        lines=LineCache(held),
        functions=functions,
    )


def _client_tool(name: str) -> ToolDeclaration:
    return ToolDeclaration(name=name, parameters=msgspec.Raw(b'{"type":"object"}'))


def _key(on: _Playing, key: str | None, body: str) -> StartKey | None:
    if key is None:
        return None
    return StartKey(
        scope="case",
        key=key,
        body_digest=digest(NO_KEY, "body", body.encode()),
        expires_ms=on.clock.now_ms() + 86_400_000,
    )


def _message(conversation: ConversationId, fields: dict[str, Any]) -> Message:
    role = Role(fields["role"])
    blocks: list[Block] = []
    if fields["text"] or not (fields["calls"] or fields["results"]):
        blocks.append(Text(text=fields["text"]))
    for call in fields["calls"]:
        arguments = json.dumps(call["arguments"])
        blocks.append(ToolCall(call_id=CallId(call["id"]), name=call["name"], arguments=arguments))
    blocks += [
        ToolResult(
            call_id=CallId(result["call"]),
            content=(Text(text=result["content"]),),
            outcome=Outcome(result["outcome"]),
        )
        for result in fields["results"]
    ]
    origin = Origin.IMPORTED
    return Message(
        id=MessageId(fields["id"]),
        conversation=conversation,
        parent=MessageId(fields["parent"]) if fields["parent"] else None,
        role=role,
        blocks=tuple(blocks),
        origin=origin,
        trust=default_trust(role, origin),
        status=Status(fields["status"]),
    )


def play(address: str) -> None:
    """Be a player for whoever listens at `address`."""

    async def serve() -> None:
        reader, writer = await asyncio.open_unix_connection(address, limit=64 * 2**20)
        await Player(reader, writer).serve()

    try:
        asyncio.run(serve())
    except BaseException:  # noqa: BLE001  # the last frame of a child: it must not go on as the zygote
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(1)


PRELOADED = (
    "aiohttp",
    "antiphon.adapters.registry",
    "antiphon.core.answers.schemas",
    "antiphon.stores.sqlite",
    "jsonschema",
    "sqlite3",
)
"""What the product loads when first needed: loaded once here, for all players."""


def zygote(fork: Callable[[], int] = os.fork) -> None:
    """Fork a player for each address on standard input, and end with it."""
    for name in PRELOADED:
        import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    logging.getLogger("antiphon").setLevel(logging.ERROR)
    for line in sys.stdin:
        pid = fork()
        if pid == 0:
            play(line.strip())
        print(pid, flush=True)


if __name__ == "__main__":
    zygote()
