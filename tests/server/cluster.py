"""Several real nodes on one database, clients that go to any of them for any call, and kills.

    python -m tests.server.cluster --minutes 10

Every message is a word of its own and every answer `re:` and that word, so that what was lost,
doubled or crossed shows in words. A client that finds its node dead goes to another, with the same
message under the same id. In the end what clients were told, what each node tells of what is stored,
and what the provider was sent have to be one story.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.request import urlopen

from antiphon.client import Client, Patience
from antiphon.core.blocks import Message, Role, Status
from antiphon.core.events import Preview
from antiphon.core.ids import RunId
from antiphon.core.records import Run, RunStatus
from antiphon.errors import Refused, ServerUnavailable, StoreError
from antiphon.handles.chat import Chat
from antiphon.handles.events import Committed, Ended, Withdrawn
from antiphon.handles.run import RunHandle
from antiphon.stores.postgres.whole import whole
from antiphon.stores.sql.examine import examined
from tests.server.nodes import PATIENCE_S, Nodes, shared

T = TypeVar("T")

PAUSE_S = 0.05
"""After the database has failed a client, it does not ask again at once."""

SHORT = Patience(total_s=1.0, answer_s=20.0)
"""A client that has other nodes to go to does not wait long for one."""

ECHO = [{"text": "re:"}, {"pause": 0.05}, {"echo": True}, {"pause": 0.05}, {"finish": "stop"}]


@dataclass(slots=True)
class Told:
    """What clients were told of one message that was acknowledged."""

    word: str
    run: RunId
    canceled: bool = False
    committed: str | None = None
    streamed: str | None = None
    ended: RunStatus | None = None


@dataclass(slots=True)
class Cluster:
    """The nodes that live, clients of each, and what all clients were told."""

    nodes: Nodes
    chance: random.Random
    clients: dict[str, Client] = field(default_factory=dict)
    conversations: list[str] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    did: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    _urls: dict[str, str] = field(default_factory=dict)
    _shown: asyncio.Event = field(default_factory=asyncio.Event)
    _failed: asyncio.Event = field(default_factory=asyncio.Event)
    _words: Any = field(default_factory=lambda: count(1))
    _names: Any = field(default_factory=lambda: count(1))

    async def start(self, nodes: int) -> None:
        """Start so many nodes at once, and begin conversations."""
        self.nodes.rules = [{"last": "*", "answers": [ECHO]}]
        self.nodes.upstream.script("asked", self.nodes.rules)
        await asyncio.gather(*(self.join() for _ in range(nodes)))

    async def join(self) -> None:
        """Start one more node."""
        name = f"node-{next(self._names)}"
        url = self._urls[name] = (await self.nodes.serve(name)).url
        self.clients[name] = await self.nodes.client(url, patience=SHORT)

    async def mid_stream(self, work: asyncio.Task[None]) -> None:
        """Wait until a part of some answer is shown, or all work is done."""
        self._shown.clear()
        shown = asyncio.create_task(self._shown.wait())
        await asyncio.wait({work, shown}, return_when=asyncio.FIRST_COMPLETED)
        shown.cancel()

    async def kill(self) -> None:
        """Kill a node, whatever it is doing."""
        name = self.chance.choice(sorted(self.clients))
        del self.clients[name]
        self.nodes.signal(name, signal.SIGKILL)
        self.did["kill"] += 1

    async def somewhere(self, call: Callable[[Client], Awaitable[T]]) -> T:
        """Ask any node; where it is gone, any other."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                client = self.chance.choice(sorted(self.clients.items()))[1]
                try:
                    return await call(client)
                except ServerUnavailable:
                    self.did["another node"] += 1
                except StoreError as error:
                    self.did[f"store: {error.code}"] += 1
                    await asyncio.sleep(PAUSE_S)
                self._failed.set()

    def unharmed(self) -> None:
        """Forget what clients have felt so far."""
        self._failed.clear()

    async def felt(self) -> None:
        """Wait until some client has been failed, or some node says that it cannot work."""
        async with asyncio.timeout(PATIENCE_S):
            while not self._failed.is_set() and not await asyncio.to_thread(self._unready):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(PAUSE_S)

    def _unready(self) -> bool:
        try:
            for name in self.clients:
                urlopen(f"{self._urls[name]}/readyz", timeout=PATIENCE_S).close()
        except HTTPError as refused:
            refused.close()
            return refused.code == 503
        return False

    # What clients do.

    async def begin(self, conversations: int) -> None:
        for _ in range(conversations):
            chat = await self.somewhere(lambda client: client.create())
            self.conversations.append(chat.id)

    async def work(
        self, operations: int, clients: int, *, until: asyncio.Event | None = None
    ) -> None:
        """Let so many clients do so many things between them, and more of them `until` then."""
        left = iter(range(operations))

        async def client() -> None:
            while next(left, None) is not None or (until is not None and not until.is_set()):
                await self.chance.choice(
                    [self.talk, self.talk, self.talk, self.cancel, self.look]
                )()

        await asyncio.gather(*(client() for _ in range(clients)))

    async def talk(self) -> None:
        """Send through one node and follow through others until it has ended."""
        word = f"w{next(self._words)}"
        conversation = self.chance.choice(self.conversations)

        async def send(client: Client) -> RunHandle:
            return await (await client.conversation(conversation)).send(word, message=f"m-{word}")

        try:
            sent = await self.somewhere(send)
        except Refused as error:
            self.did[f"refused: {error.code}"] += 1
            return
        told = Told(word, sent.id)
        self.told.append(told)
        self.did["sent"] += 1
        try:
            await self.somewhere(lambda client: self.follow(client, told))
        except Exception as error:
            error.add_note(f"This befell {told} in {conversation}.")
            raise

    async def follow(self, client: Client, told: Told) -> None:
        """Follow a run to its end; what nobody knows the outcome of, a person settles."""
        run, text = await client.run(told.run), ""
        async for event in run.events():
            match event:
                case Preview(text=piece):
                    text += piece
                    self._shown.set()
                case Withdrawn():
                    text = ""
                case Committed(message=message):
                    told.committed, told.streamed = message.text, text
                case Ended(status=status):
                    told.ended = status
                    self.did[f"ended: {status}"] += 1
                case _:
                    pass
            if told.ended is None and (await run.row()).status is RunStatus.UNKNOWN:
                self.did["unknown"] += 1
                told.canceled = True  # it may be, from now on, whether we hear of it or not
                await run.cancel("operator")

    async def cancel(self) -> None:
        if self.told:
            told = self.chance.choice(self.told[-4:])

            async def cancel(client: Client) -> Run:
                return await (await client.run(told.run)).cancel()

            row = await self.somewhere(cancel)
            told.canceled = told.canceled or row.status is RunStatus.CANCELED
            self.did["cancel"] += 1

    async def look(self) -> None:
        if self.told:
            told = self.chance.choice(self.told)
            ended = told.ended  # before it is asked for: it may end while the answer is on its way

            async def look(client: Client) -> Run:
                return await (await client.run(told.run)).row()

            row = await self.somewhere(look)
            if ended not in (None, row.status):
                self.wrong.append(f"{told.word} had ended in {ended} and is {row.status}")
            self.did["look"] += 1

    # The judge.

    async def judged(self) -> list[str]:
        """Return everything that is not as it was told."""
        wrong = list(self.wrong)
        stories = []
        for client in self.clients.values():
            chats = [await client.conversation(name) for name in self.conversations]
            stories.append([await _story(chat) for chat in chats])
        wrong += [f"nodes tell different stories: {stories}"] * any(
            s != stories[0] for s in stories
        )
        messages = [m for tree, _ in stories[0] for m in tree]
        runs = {run.id: run for _, found in stories[0] for run in found}
        asked = Counter(
            json.loads(body)["messages"][-1]["content"]
            for body in self.nodes.upstream.received("asked")
        )
        wrong += [f"{word} was sent {times} times" for word, times in asked.items() if times > 1]
        wrong += [f"{run.id} is left {run.status}" for run in runs.values() if run.open]
        wrong += await asyncio.to_thread(_contradictions, self.nodes.database)
        for told in self.told:
            wrong += _judged(told, runs.get(told.run), messages, asked[told.word])
        return wrong


def _contradictions(database: str) -> list[str]:
    """Return what is wrong with the rows themselves."""
    with whole(database, source=True) as db:
        return [str(problem) for check in examined(db) for problem in check.problems]


async def _story(chat: Chat) -> tuple[list[Message], list[Run]]:
    return await chat.tree(), await chat.runs()


def _judged(told: Told, run: Run | None, messages: list[Message], sent: int) -> list[str]:
    word, wrong = told.word, []
    if run is None:
        return [f"{word} was acknowledged and is lost"]
    inputs = [m for m in messages if m.role is Role.USER and m.text == word]
    answers = [
        m
        for m in messages
        if m.role is Role.ASSISTANT and m.run == run.id and m.status is Status.SUCCESS
    ]
    if told.ended not in (None, run.status):
        wrong.append(f"{word} had ended in {told.ended} and is {run.status}")
    match run.status:
        case RunStatus.SUCCESS:
            if len(inputs) != 1 or [m.text for m in answers] != [f"re:{word}"] or sent != 1:
                wrong.append(f"{word}: {len(inputs)} times, {answers}, sent {sent} times")
        case RunStatus.CANCELED if told.canceled:
            if len(inputs) > 1 or answers:
                wrong.append(f"{word} was canceled, and answered with {answers}")
        case RunStatus.ERROR if run.error_code == "outcome_unknown":
            pass  # its node was killed, and somebody has proven its end
        case _:
            wrong.append(f"{word} is {run.status} {run.error_code}")
    if told.committed is not None:
        if [m.text for m in answers] != [told.committed]:
            wrong.append(f"{word} was told as {told.committed!r} and is {answers}")
        if told.streamed != told.committed:
            wrong.append(f"{word} was streamed as {told.streamed!r}")
    return wrong


async def lived(
    folder: Path, *, nodes: int, operations: int, clients: int, seed: int, kills: int
) -> Cluster:
    """Let clients work while nodes are killed and others join; return what came of it."""
    async with shared(folder) as stage:
        cluster = Cluster(stage, random.Random(seed))
        await cluster.start(nodes)
        await cluster.begin(3)
        for _ in range(kills):
            work = asyncio.create_task(cluster.work(operations // (kills + 1), clients))
            await cluster.mid_stream(work)
            await cluster.kill()
            await work
            if kills > 1:
                await cluster.join()
        await cluster.work(operations // (kills + 1), clients)
        cluster.wrong = await cluster.judged()
        return cluster


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    did: Counter[str] = Counter()
    loop_time = asyncio.new_event_loop().time
    until, seed, wrong = loop_time() + arguments.minutes * 60, arguments.seed, 0
    while loop_time() < until:
        with tempfile.TemporaryDirectory() as folder:
            made = asyncio.run(
                lived(Path(folder), nodes=3, operations=600, clients=12, seed=seed, kills=5)
            )
        did += made.did
        wrong += len(made.wrong)
        print("\n".join(f"BROKEN seed {seed}: {one}" for one in made.wrong), flush=True)
        seed += 1
    print(f"cluster: {dict(did)}; {wrong} broken promises")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
