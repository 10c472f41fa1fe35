"""Many clients at a few conversations at once: whatever they do, it adds up to one history.

Each client does what comes to its mind: it sends, edits, asks again, cancels, looks elsewhere,
leaves and comes back. What each was told, what is stored, and what the provider was sent are then
compared.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.manifest import WireRequest
from antiphon.engine.ports import Cut, Reply
from antiphon.engine.settings import Settings
from tests.cases.chat_rules import objections
from tests.server.stage import ROOT, Served, served
from tests.support.provider import ScriptedProvider, Status, chunk, says

CONVERSATIONS, CLIENTS, OPERATIONS = 3, 12, 60
FINE = {200, 201, 202, 204, 400, 404, 409, 429}
"""What a client may be told; anything else is our fault."""


class Moody(ScriptedProvider):
    """Answers everybody, now and then with a refusal or a cut."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    async def send(
        self,
        request: WireRequest,
        *,
        api_key: str | None,
        connect_timeout_s: float,
        on_written: Callable[[], None],
    ) -> Reply:
        number = len(self.requests)
        match self._random.randrange(10):
            case 0:
                self.scripts.append([Status(503), b'{"error": {"message": "Later."}}'])
            case 1:
                self.scripts.append([chunk({"content": "PARTIAL"}), Cut("cut", "gone")])
            case _:
                self.scripts.append(says(f"answer {number}", " done"))
        return await super().send(
            request, api_key=api_key, connect_timeout_s=connect_timeout_s, on_written=on_written
        )


class Person:
    """One client: does something, and remembers what it was told."""

    def __init__(self, server: Served, number: int, names: list[str]) -> None:
        self._server = server
        self._random = random.Random(number)
        self._names = names
        self._number = number
        self._count = 0
        self.runs: set[str] = set()
        self.told: dict[str, list[tuple[int, Any]]] = {name: [] for name in names}

    async def live(self) -> None:
        for _ in range(OPERATIONS):
            await self._random.choice(
                [self.send, self.send, self.edit, self.again, self.cancel, self.look, self.follow]
            )(self._random.choice(self._names))
            for _ in range(self._random.randrange(4)):
                await asyncio.sleep(0)

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self._server.client.ask(method, ROOT + path, body)
        assert answer.status in FINE, (path, answer.body)
        told = answer.json if answer.body else {}
        if answer.status == 202:
            self.runs.add(told["id"])
        return told

    async def send(self, name: str) -> None:
        self._count += 1
        body = {"id": f"c{self._number}-{self._count}", "content": f"{self._number}.{self._count}"}
        path = f"/conversations/{name}/messages"
        first = await self.ask("POST", path, body)
        if self._random.random() < 0.3 and "id" in first:
            again = await self.ask("POST", path, body)
            assert again["id"] == first["id"], "a repetition started another run"

    async def _some(self, name: str, role: str) -> str | None:
        tree = await self.ask("GET", f"/conversations/{name}/tree")
        found = [m["id"] for m in tree["messages"] if m["role"] == role]
        return self._random.choice(found) if found else None

    async def edit(self, name: str) -> None:
        self._count += 1
        if (message := await self._some(name, "user")) is not None:
            body = {"content": f"edited {self._number}.{self._count}"}
            await self.ask("POST", f"/messages/{message}/edit?conversation={name}", body)

    async def again(self, name: str) -> None:
        if (message := await self._some(name, "assistant")) is not None:
            await self.ask("POST", f"/messages/{message}/regenerate?conversation={name}", {})

    async def cancel(self, name: str) -> None:
        if self.runs:
            await self.ask("POST", f"/runs/{self._random.choice(sorted(self.runs))}/cancel", {})

    async def look(self, name: str) -> None:
        await self.ask(
            "PUT", f"/conversations/{name}/head", {"head": await self._some(name, "assistant")}
        )

    async def follow(self, name: str) -> None:
        """Come back with the cursor, read a little, and leave."""
        told = self.told[name]
        after = told[-1][0] if told else 0
        path = f"{ROOT}/conversations/{name}/events?after={after}"
        async with self._server.client.asked("GET", path) as stream:
            for _ in range(self._random.randrange(1, 12)):
                frame = await stream.frame()
                assert frame is not None
                if frame.event == "caught_up":
                    break
                if frame.number is not None:
                    told.append((frame.number, frame.json["event"]))


@pytest.mark.req("M52", "M90", "M128", "M139")
@pytest.mark.parametrize("seed", [1])
async def test_what_many_do_at_once_is_one_history_for_all_of_them(
    tmp_path: Path, seed: int
) -> None:
    provider = Moody(seed)
    settings = Settings(retry_base_s=0.0, cancel_grace_s=0.0)
    async with served(tmp_path / "a.db", provider, settings=settings) as server:
        names = [await server.conversation() for _ in range(CONVERSATIONS)]
        people = [Person(server, 100 * seed + n, names) for n in range(CLIENTS)]
        await asyncio.gather(*[person.live() for person in people])
        for name in names:
            await server.idle(name)
        assert server.engine.failures == []
        acknowledged = set().union(*[person.runs for person in people])
        seen: set[str] = set()
        accepted = written = 0
        for name in names:
            tree = (await server.client.get(f"{ROOT}/conversations/{name}/tree")).json
            events = await _events(server, name)
            assert [n for n, _ in events] == list(range(1, len(events) + 1))
            for person in people:
                told = person.told[name]
                assert told == [events[n - 1] for n, _ in told]
                assert [n for n, _ in told] == list(range(1, len(told) + 1))
            committed = [e for _, e in events if e["type"] == "message.committed"]
            assert len({e["revision"] for e in committed}) == len(committed)
            assert [e["revision"] for e in committed] == sorted(e["revision"] for e in committed)
            ids = {m["id"] for m in tree["messages"]}
            assert len(ids) == len(tree["messages"])
            assert all(m.get("parent") in ids | {None} for m in tree["messages"])
            for run in tree["runs"]:
                seen.add(run["id"])
                assert run["status"] in {"success", "error", "canceled"}, run
                counted = await _sent_as_stored(server, run, tree["messages"])
                accepted, written = accepted + counted[0], written + counted[1]
        assert acknowledged <= seen, "an acknowledged run is lost"
        # A cancel may come between the sending and its record; never is there a sending without one.
        assert written <= len(provider.requests) <= accepted
    for body in provider.bodies:
        assert b"PARTIAL" not in body, "a half answer became history"
        assert objections(body) == []


async def _events(server: Served, name: str) -> list[tuple[int, Any]]:
    async with server.client.asked("GET", f"{ROOT}/conversations/{name}/events") as stream:
        told = await stream.until("caught_up")
    return [(frame.number, frame.json["event"]) for frame in told if frame.number is not None]


async def _sent_as_stored(
    server: Served, run: dict[str, Any], messages: list[dict[str, Any]]
) -> tuple[int, int]:
    """Check that each dispatch of a run saw one line; count what was accepted and what written."""
    by_id = {m["id"]: m for m in messages}
    told = (await server.client.get(f"{ROOT}/runs/{run['id']}")).json
    accepted = written = 0
    for operation in told["operations"]:
        manifest = operation["manifest"]
        accepted += sum(a["generation"] > 0 for a in operation["attempts"])
        written += sum(a["written_ms"] is not None for a in operation["attempts"])
        if not any(a["written_ms"] for a in operation["attempts"]):
            continue
        line, at = [], manifest["base_leaf"]
        while at is not None:
            line.append(by_id[at])
            at = by_id[at].get("parent")
        path = f"{ROOT}/runs/{run['id']}/request/body?dispatch={manifest['operation']}"
        body = (await server.client.get(path)).json
        said = [m["content"] for m in body["messages"]]
        texts = ["".join(b["text"] for b in m["blocks"]) for m in reversed(line)]
        # Failed and canceled messages are skipped; nothing else is, and nothing comes in between.
        left = iter(texts)
        assert all(any(one == text for text in left) for one in said), (said, texts)
        assert said[-1] == texts[-1]
    return accepted, written
