"""The small program that is killed: a chat through the public library, and its coming back.

What it was told is acknowledged it writes to a file at once, as a client would remember it. In its
second life it repeats what it cannot know to have arrived, answers what waits, asks one more
question and reports what it finds. Where the database is shared, that life is another node's, which
stands by while the first is killed; what nobody can know there, a person says.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec

import antiphon
from antiphon.core.blocks import Text
from antiphon.core.dispatch import State
from antiphon.core.ids import MessageId, OperationId, RunId
from antiphon.core.manifest import ToolDeclaration
from antiphon.core.records import TERMINAL_CALL, Approval, Call, CallState, Run, Runner, RunStatus
from antiphon.engine.catalogue.models import Model, Models
from antiphon.engine.keeping.explain import exact_request
from antiphon.engine.runs.startup import confirm_ended
from antiphon.engine.settings import Settings
from tests.crash.effects import functions
from tests.crash.hooks import Killer, install

WAIT_S: Final = 60.0
LIFE_S: Final = 170.0
"""How long a life may take: one that stands by lives as long as the one that is killed, too."""
OPEN: Final = {"queued", "pending", "unknown"}


class Config(msgspec.Struct, kw_only=True):
    """What one life of the program is given.

    Attributes:
        folder: Where the client keeps what it remembers, and the tools their effects.
        db: The address of the database.
        base_url: The provider's.
        scenario: What is played in the first life.
        returning: This life is the one that comes back.
        kill: The point at which it dies.
        lease_s: For how long a node may be silent.
        after: Before there is a file of this name it does nothing but say, by a file `ready`, that
            it waits.
        trace: Where it writes down which points it passes.
    """

    folder: str
    db: str
    base_url: str
    scenario: str
    returning: bool = False
    kill: str | None = None
    lease_s: float = 3.0
    after: str | None = None
    trace: str = "trace.txt"

    def path(self, name: str) -> Path:
        return Path(self.folder) / name


class Talk:
    """One life: the open library, and what the client is to remember."""

    def __init__(self, app: antiphon.Antiphon, chat: antiphon.Chat, config: Config) -> None:
        self.app = app
        self.chat = chat
        self._config = config

    def note(self, what: str, **fields: Any) -> None:
        """Remember what was acknowledged."""
        with self._config.path("notes.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"what": what, **fields}) + "\n")

    async def send(self, text: str, name: str, **named: Any) -> antiphon.RunHandle:
        """Send a message under an id of our own; it is acknowledged when this returns."""
        run = await self.chat.send(text, message=name, **named)
        self.note("sent", run=run.id, message=name, text=text)
        return run

    async def result(self, run: antiphon.RunHandle) -> None:
        """Wait for an answer; it is acknowledged once it is told of as committed."""
        async for event in run.events():
            match event:
                case antiphon.Committed(message=message):
                    self.note("committed", run=run.id, message=message.id, text=message.text)
                case antiphon.CallFinished(call=call):
                    self.note("finished", run=run.id, call=call.call_id, state=call.state)
                case antiphon.Ended(status=status, code=code):
                    self.note("ended", run=run.id, status=status, code=code)
                case _:
                    pass

    async def first(self, run: antiphon.RunHandle, kind: type[Any]) -> Any:
        """Wait for the first event of a kind."""
        async for event in run.events():
            if isinstance(event, kind):
                return event
        raise AssertionError(f"the run ended without {kind.__name__}")

    async def approve(self, run: antiphon.RunHandle, call: str) -> antiphon.RunHandle:
        """Let a call run; it may do so from the moment that we begin to say it."""
        self.note("approving", call=call)
        return await run.approve(call)

    async def cancel(self, run: antiphon.RunHandle) -> None:
        """Cancel a run; that is acknowledged when this returns."""
        await run.cancel("user")
        self.note("canceled", run=run.id)


async def text(talk: Talk) -> None:
    """A question and its answer, twice."""
    await talk.result(await talk.send("Name a tree.", "q1"))
    await talk.result(await talk.send("Name a bush.", "q2"))


async def tool(talk: Talk) -> None:
    """A question that needs a tool with an effect outside."""
    await talk.result(await talk.send("Ring the bell.", "q1"))


async def tools(talk: Talk) -> None:
    """Three calls at once; then one that the ledger answers, and one that waits for our word."""
    run = await talk.send("Do all of it.", "q1")
    waiting = await talk.first(run, antiphon.CallsWaiting)
    await talk.result(await talk.approve(run, waiting.calls[-1].call_id))


async def client(talk: Talk) -> None:
    """A question that needs a tool which the client runs."""
    run = await talk.send("What is on the list?", "q1")
    waiting = await talk.first(run, antiphon.CallsWaiting)
    call = waiting.calls[0].call_id
    run = await run.answer({call: "salt"})
    talk.note("answered", run=run.id, call=call, text="salt")
    await talk.result(run)


async def stop(talk: Talk) -> None:
    """A run that is canceled while it streams, its text kept, then another question."""
    run = await talk.send("Tell a long tale.", "q1")
    await talk.first(run, antiphon.Preview)
    await talk.cancel(run)
    kept = next((m for m in await talk.chat.tree() if m.status == "canceled"), None)
    if kept is not None:
        await talk.chat.keep(kept.id)
        talk.note("kept", message=kept.id)
    await talk.result(await talk.send("Name a tree.", "q2"))


async def stop_call(talk: Talk) -> None:
    """A run that is canceled while it waits for the client."""
    run = await talk.send("What is on the list?", "q1")
    await talk.first(run, antiphon.CallsWaiting)
    await talk.cancel(run)
    await talk.result(await talk.send("Name a tree.", "q2"))


async def refused(talk: Talk) -> None:
    """An attempt that is refused for now, and its retry."""
    await talk.result(await talk.send("Are you busy?", "q1"))


async def cut(talk: Talk) -> None:
    """An attempt that breaks in mid-stream, and the one second try that is allowed."""
    await talk.result(await talk.send("Are you there?", "q1"))


async def failed(talk: Talk) -> None:
    """A question that is refused for good, asked again, and again in vain."""
    run = await talk.send("May I?", "q1")
    await talk.result(run)
    again = await talk.chat.regenerate(MessageId("q1"))
    talk.note("sent", run=again.id, message=None, text="May I?")
    await talk.result(again)


async def queue(talk: Talk) -> None:
    """Three questions at once, the last withdrawn."""
    one = await talk.send("Name a tree.", "q1")
    two = await talk.send("Name a bush.", "q2")
    three = await talk.send("Name a herb.", "q3")
    await talk.cancel(three)
    await talk.result(one)
    await talk.result(two)


async def tree(talk: Talk) -> None:
    """Branches: an edit, another answer, a deletion, another line."""
    await talk.result(await talk.send("Name a tree.", "q1"))
    edited = await talk.chat.edit(MessageId("q1"), "Name a bush.")
    talk.note("sent", run=edited.id, message=None, text="Name a bush.")
    await talk.result(edited)
    answers = [m for m in await talk.chat.line() if m.role == "assistant"]
    again = await talk.chat.regenerate(answers[-1].id)
    talk.note("sent", run=again.id, message=None, text="Name a bush.")
    await talk.result(again)
    await talk.chat.rename("Plants")
    await talk.chat.look_at(MessageId("q1"))
    await talk.chat.delete([answers[-1].id])
    talk.note("deleted", message=answers[-1].id)


SCENARIOS: Final[dict[str, Callable[[Talk], Awaitable[None]]]] = {
    scenario.__name__: scenario
    for scenario in (text, tool, tools, client, stop, stop_call, refused, cut, failed, queue, tree)
}

FIRST: Final = {
    "text": "Name a tree.",
    "tool": "Ring the bell.",
    "tools": "Do all of it.",
    "client": "What is on the list?",
    "stop": "Tell a long tale.",
    "stop_call": "What is on the list?",
    "refused": "Are you busy?",
    "cut": "Are you there?",
    "failed": "May I?",
    "queue": "Name a tree.",
    "tree": "Name a tree.",
}
"""What each scenario says first."""

FOLLOW_UP: Final = "And now?"


async def come_back(talk: Talk) -> dict[str, Any]:
    """Repeat, wait, answer what waits, ask on, and report."""
    await _taken_over(talk)
    repeated = await talk.chat.send(FIRST[talk._config.scenario], message="q1")
    talk.note("repeated", run=repeated.id)
    await _settle(talk)
    told = before = await _told(talk)
    while waiting := [run for run in told["runs"] if run["status"] == "waiting"]:
        for run in waiting:
            await _go_on(talk, run)
        await _settle(talk)
        told = await _told(talk)
    follow_up = await talk.chat.send(FOLLOW_UP)
    await _settle(talk)
    return {**await _told(talk), "recovered": before, "follow_up": follow_up.id}


async def _go_on(talk: Talk, run: dict[str, Any]) -> None:
    """Bring what a run waits for: our word, or what became of its calls."""
    handle = await talk.chat.run(RunId(run["id"]))
    for call in run["calls"]:
        if call["lacks"] == "word":
            await talk.approve(handle, call["id"])
    results = {call["id"]: "told later" for call in run["calls"] if call["lacks"] == "result"}
    if results:
        await handle.answer(results)


async def _taken_over(talk: Talk) -> None:
    """Wait until this process has all that another one worked on."""
    world, row = talk.app.engine.world, await talk.chat.row()
    async with asyncio.timeout(WAIT_S):
        while any(  # noqa: ASYNC110 - a row tells nobody that it has changed
            run.status in (RunStatus.PENDING, RunStatus.UNKNOWN) and not world.owns(run)
            for run in await world.store.runs(row.id)
        ):
            await asyncio.sleep(0.02)


async def _settle(talk: Talk) -> None:
    """Wait until no run can go on by itself; one may wait for a word and work on another call."""
    store, row = talk.app.engine.world.store, await talk.chat.row()
    async with asyncio.timeout(WAIT_S):
        while True:
            runs = await store.runs(row.id)
            for run in runs:
                if run.status in OPEN:
                    async for event in (await talk.chat.run(run.id)).events():
                        if isinstance(event, antiphon.Unknown):
                            await _say_ended(talk, run)
            if not any([_goes_on(run, await store.calls(row.id, run.id)) for run in runs]):
                return
            await asyncio.sleep(0.02)


def _goes_on(run: Run, calls: list[Call]) -> bool:
    """Say whether a run goes on without anybody's word: one that was answered in full does, too."""
    answered = run.status is RunStatus.WAITING and all(c.state in TERMINAL_CALL for c in calls)
    return answered or any(_under_way(call) for call in calls)


def _under_way(call: Call) -> bool:
    """Say whether a call goes on without anybody's word."""
    ours = call.runner is not Runner.CLIENT and call.approval is not Approval.NEEDED
    return call.state is CallState.EXECUTING or (call.state is CallState.PENDING and ours)


async def _say_ended(talk: Talk, run: Run) -> None:
    """Say of a dead node's dispatch that it has ended: here nothing else tells another node."""
    world = talk.app.engine.world
    operations = await world.store.operations(run.conversation, run.id)
    attempt = (await world.store.attempts(operations[-1]))[-1]
    if not world.alone and attempt.state is State.UNKNOWN and attempt.node != world.fence.node:
        talk.note("said ended", operation=attempt.operation)
        await confirm_ended(world, attempt, "a person saw the process killed")
        talk.app.engine.kick(run.conversation)


async def _told(talk: Talk) -> dict[str, Any]:
    world, row = talk.app.engine.world, await talk.chat.row()
    runs = []
    for run in await world.store.runs(row.id):
        handle = await talk.chat.run(run.id)
        told = await handle.explain()
        operations = []
        for operation in told.operations:
            name = operation.manifest.operation
            request = await exact_request(world, run.id, OperationId(name))
            operations.append(
                {
                    "id": name,
                    "body": base64.b64encode(request.body).decode(),
                    "attempts": [[a.number, a.generation, a.state] for a in operation.attempts],
                }
            )
        sent = any(a.generation for o in told.operations for a in o.attempts)
        newest = base64.b64encode(await handle.request()).decode() if sent else None
        runs.append(
            {
                "id": run.id,
                "status": run.status,
                "error_code": run.error_code,
                "end_code": run.end_code,
                "operations": operations,
                "newest": newest,
                "calls": [_call(call) for call in told.calls],
            }
        )
    return {
        "runs": runs,
        "tree": [
            {
                "id": m.id,
                "parent": m.parent,
                "role": m.role,
                "status": m.status,
                "origin": m.origin,
                "text": m.text,
                "run": m.run,
                "results": [[r.call_id, r.outcome] for r in m.results],
            }
            for m in await talk.chat.tree()
        ],
        "line": [m.id for m in await talk.chat.line()],
        "deleted": sorted(row.deletions),
        "active_operation": row.active_operation,
        "slot": row.slot,
    }


def _call(call: Call) -> dict[str, Any]:
    theirs = call.state is CallState.PENDING and call.runner is Runner.CLIENT
    asks = call.state is CallState.PENDING and call.approval is Approval.NEEDED
    return {
        "id": call.call_id,
        "name": call.name,
        "state": call.state,
        "code": call.code,
        "key": call.idempotency_key,
        "lacks": "word" if asks else "result" if theirs or call.state == "UNKNOWN" else None,
        "reused": call.reused_from,
        "text": "".join(part.text for part in call.content if isinstance(part, Text)),
    }


async def live(config: Config, killer: Killer) -> None:
    """Live once."""
    model = Model(name="m", profile="openai-chat", model="m", base_url=config.base_url)
    settings = Settings(
        retry_base_s=0.0,
        cancel_grace_s=0.0,
        lease_s=config.lease_s,
        models=Models(named={"m": model}, default="m"),
    )
    ours = functions(config.path("effects.jsonl"), killer)
    reading = ToolDeclaration(name="read_list")
    ask = antiphon.Ask(model="m", tools=(*(one.declaration for one in ours), reading))
    async with antiphon.open(config.db, settings=settings, functions=ours) as app:
        if config.after is not None:
            await _until_there(config.path(config.after), config.path("ready"))
        chat = await app.latest(ask=ask) or await app.create(ask=ask)
        talk = Talk(app, chat, config)
        if not config.returning:
            await SCENARIOS[config.scenario](talk)
            return
        report = await come_back(talk)
        config.path("report.json").write_text(json.dumps(report), encoding="utf-8")


async def _until_there(file: Path, ready: Path) -> None:
    await asyncio.to_thread(ready.touch)
    while not await asyncio.to_thread(file.exists):  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.01)


def once(config: Config) -> int:
    """Live once and return the exit code; does not return if the config says where to die."""
    killer = Killer(config.kill, config.path(config.trace))
    install(killer)
    try:
        asyncio.run(asyncio.wait_for(live(config, killer), LIFE_S))
    except BaseException:  # noqa: BLE001  # the last frame of a forked child
        traceback.print_exc()
        return 1
    return 0


def zygote() -> None:
    """Fork a life for each config on standard input, and say which process it is; wait for one by
    its number, and say how it ended.
    """
    for name in (
        "aiohttp",
        "antiphon.stores.sqlite",
        "antiphon.stores.postgres",
        "antiphon.adapters.registry",
        "jsonschema",
    ):
        import_module(name)
    for line in sys.stdin:
        told = msgspec.json.decode(line, type=int | Config)
        if isinstance(told, int):
            print(os.waitstatus_to_exitcode(os.waitpid(told, 0)[1]), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            log = os.open(told.path("log.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(log, 1)
            os.dup2(log, 2)
            code = once(told)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        print(pid, flush=True)


if __name__ == "__main__":
    zygote()
