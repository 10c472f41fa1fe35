"""Two conversations that go on for months, and a judge of what each turn took: `make soak`.

    python -m tests.engine.long_talk --messages 5000 --store postgres

One changes its subject again and again, so sessions come and go by themselves; the other never
does, and older talk becomes one checkpoint after the other. What is counted is work, not time:
messages read from the store, messages rendered, bytes sent, blocks of memory held. Whatever grows
with the length of the talk, and whatever the plan says of the prefix that the two bodies do not,
is printed; the exit code is 1 if anything was.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from antiphon.core.blocks import Message
from antiphon.core.manifest import WireRequest
from antiphon.core.planning.trace import PromptTrace, Reason
from antiphon.engine.ports import Reply
from antiphon.handles.chat import Chat
from antiphon.library import Antiphon
from tests.engine.test_planning import holding
from tests.support.clock import SimulatedClock
from tests.support.engines import app_on
from tests.support.parts import PARTS
from tests.support.postgres import FAST, Server, new_server
from tests.support.provider import DONE, ScriptedProvider, chunk

WINDOW: Final = 2_500
STRETCH: Final = 12
"""Turns of one subject; what is compared is one stretch with another."""

SLACK: Final = 1.15
"""Most that a later stretch may take of what an earlier one took: checkpoints fall where they fall."""

STILL_OPEN: Final = 8
"""Bytes at the end of a body that close it: they move with every turn."""

ASKING: Final = re.compile(r"(red|blue)-(\d+)")
TALK: Final = "It was low water at six, and the berths by the north mole lay dry until noon. " * 2


class Companion(ScriptedProvider):
    """Answers turns, decides about sessions and writes summaries; keeps each talk's last two bodies."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: dict[str, tuple[bytes, bytes]] = {}
        self.sent: Counter[str] = Counter()

    async def send(
        self,
        request: WireRequest,
        *,
        api_key: str | None,
        connect_timeout_s: float,
        on_written: Callable[[], None],
    ) -> Reply:
        body = request.body
        messages = json.loads(body)["messages"]
        order = messages[0]["content"] if messages[0]["role"] == "system" else ""
        if order.startswith("You decide"):
            told = json.loads(messages[-1]["content"])
            anew = "Something else" in told.get("new_message", "")
            answer = json.dumps({"decision": "start_new", "goal": "Another task."} if anew else {"decision": "continue"})  # fmt: skip
        elif order.startswith("You "):
            answer = "They spoke of tides and berths."
        else:
            found = ASKING.search(messages[-1]["content"])
            assert found is not None, messages[-1]
            name, answer = found[1], f"Answer {found[2]}. {TALK}"
            self.turns[name] = (self.turns.get(name, (b"", b""))[1], body)
            self.sent[name] += len(body)
        self.scripts = [[chunk({"content": answer}), chunk({}, "stop"), DONE]]
        try:
            return await super().send(
                request,
                api_key=api_key,
                connect_timeout_s=connect_timeout_s,
                on_written=on_written,
            )
        finally:
            self.requests.clear()


@dataclass(slots=True, kw_only=True)
class Took:
    """What one stretch of one talk took."""

    read: int = 0
    rendered: int = 0
    sent_bytes: int = 0
    checkpoints: int = 0
    blocks: int = 0
    """Of memory, when it was over."""


@dataclass(slots=True)
class Talk:
    """One conversation, what its stretches took, and what was wrong."""

    name: str
    chat: Chat
    switches: bool
    stretches: list[Took] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    turns: int = 0
    line: Any = None
    said: int = 0


class Judge:
    """Lets two conversations go on, and counts what that takes."""

    def __init__(self, app: Antiphon, provider: Companion, clock: SimulatedClock) -> None:
        self._app, self._provider, self._clock = app, provider, clock
        self._read = 0
        store = app.engine.world.store
        path = store.path

        async def counted(*where: Any, **how: Any) -> list[Message]:
            found = await path(*where, **how)
            self._read += len(found)
            return found

        store.path = counted  # type: ignore[method-assign]

    async def begin(self) -> list[Talk]:
        return [
            Talk("red", await self._app.create(scheduling=True), switches=True),
            Talk("blue", await self._app.create(scheduling=False), switches=False),
        ]

    async def stretch(self, talk: Talk) -> None:
        """Say as much as one stretch is, and look at each turn of it."""
        took = Took()
        sent = self._provider.sent[talk.name]
        for number in range(STRETCH):
            anew = talk.switches and not number and talk.turns
            await self._turn(talk, took, "Something else. " if anew else "")
        took.sent_bytes = self._provider.sent[talk.name] - sent
        gc.collect()
        took.blocks = sys.getallocatedblocks()
        talk.stretches.append(took)

    async def _turn(self, talk: Talk, took: Took, begins: str) -> None:
        talk.turns += 1
        await self._clock.advance(900)
        read = self._read
        run = await talk.chat.send(f"{begins}{talk.name}-{talk.turns:06}: {TALK}")
        await run.result()
        await self._app.engine.idle(talk.chat.id)
        took.read += self._read - read  # what is asked from here on is asked by us
        trace = (await run.plan()).trace
        took.checkpoints += trace.compaction == "made"
        took.rendered += self._rendered(talk)
        was, now = self._provider.turns[talk.name]
        wrong = [*prefix_problems(trace, was, now, begins=bool(begins) or talk.turns == 1)]
        talk.wrong += [f"{talk.name}, turn {talk.turns}: {problem}" for problem in wrong]

    def _rendered(self, talk: Talk) -> int:
        """Return how many messages were fed to the conversation's line since it was looked at."""
        warm = self._app.engine.world.lines._warm[talk.chat.id]
        before = talk.said if warm.line is talk.line else 0
        talk.line, talk.said = warm.line, warm.said
        return warm.said - before


def prefix_problems(trace: PromptTrace, was: bytes, now: bytes, *, begins: bool) -> Iterator[str]:
    """Yield what the trace says of the prefix that two bodies which were really sent do not."""
    if begins:  # there is no dispatch before it in its session
        if trace.prefix is not None:
            yield f"a first dispatch has a prefix: {trace.prefix}"
        return
    if trace.prefix is None:
        yield "no prefix is told"
        return
    same = next((n for n, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), len(was))
    told = trace.prefix
    if (told.matched_bytes, told.last_bytes) != (same, len(was)):
        yield f"told {told.matched_bytes} of {told.last_bytes} bytes, sent {same} of {len(was)}"
    moved = same < len(was) - STILL_OPEN
    due = {Reason.COMPACTION, Reason.TRUNCATION} if trace.compaction == "made" else set()
    if moved != bool(due) or set(told.moved_by) != due:
        yield f"{len(was) - same} bytes moved by {told.moved_by}, checkpoint: {trace.compaction}"


def grown(talk: Talk) -> Iterator[str]:
    """Yield what the last quarter of the stretches took more than the quarter after the first one."""
    few = len(talk.stretches) // 4
    for name in ("read", "rendered", "sent_bytes", "blocks"):
        before, after = (
            sum(getattr(took, name) for took in part)
            for part in (talk.stretches[1 : few + 1], talk.stretches[-few:])
        )
        if after > before * SLACK:
            yield f"{talk.name}: {name} grew from {before} to {after}"


async def judged(db: Path | str, messages: int) -> tuple[list[str], list[Talk]]:
    """Let two conversations have so many messages each; return what is wrong, and what they took."""
    settings = holding(WINDOW, compact_at=75)
    clock, provider = SimulatedClock(), Companion()
    async with app_on(db, provider, clock=clock, settings=settings) as app:
        judge = Judge(app, provider, clock)
        talks = await judge.begin()
        while min(talk.turns for talk in talks) * 2 < messages:
            for talk in talks:
                await judge.stretch(talk)
        red, blue = talks
        wrong = [problem for talk in talks for problem in (*talk.wrong, *grown(talk))]
        sessions = [len(await talk.chat.sessions()) for talk in talks]
        if sessions != [len(red.stretches), 1]:
            wrong.append(f"sessions: {sessions}, of {len(red.stretches)} subjects and of one")
        wrong += [f"{t.name} was never compacted" for t in talks if not t.stretches[-1].checkpoints]
        kept = await blue.chat.line()
        if len(kept) != 2 * blue.turns:
            wrong.append(
                f"{len(kept)} messages of {2 * blue.turns} are on the line that never ends"
            )
    return wrong, talks


def _server() -> Server:
    """Start a server that sweeps, as any that has been talked to for months has swept."""
    return new_server([*(FAST | {"autovacuum": "on"}).items()])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=5_000, help="of each conversation")
    parser.add_argument("--store", choices=["sqlite", "postgres"], action="append")
    arguments = parser.parse_args()
    failures = 0
    for store in arguments.store or ["sqlite", "postgres"]:
        if store == "postgres" and not PARTS[store].there():
            print(f"not on {PARTS[store].title}: {PARTS[store].install}")
            failures += 1
            continue
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "a.db" if store == "sqlite" else _server().database()
            wrong, talks = asyncio.run(judged(place, arguments.messages))
        for talk in talks:
            first, last = talk.stretches[1], talk.stretches[-1]
            print(f"{store}, {talk.name}: {2 * talk.turns:,} messages, {sum(t.checkpoints for t in talk.stretches)} checkpoints")  # fmt: skip
            print(f"  second stretch {first}\n  last stretch   {last}", flush=True)
        print(*(f"BROKEN {problem}" for problem in wrong), sep="\n")
        failures += len(wrong)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
