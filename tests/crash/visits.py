"""A client of a server that is killed: it visits one life after the other, and remembers.

It does what a good client does: it sends under an id of its own, follows the events with its cursor,
and after the break repeats what it cannot know to have arrived. What it has seen over both lives,
what the database tells whoever reads it anew, and what the upstream received, have to be one story.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Self

import aiohttp

from tests.crash.places import LONG_LEASE_S, SHORT_LEASE_S, Files, Place
from tests.crash.proof import KILLED, script
from tests.support.upstream_process import ROOT as PROJECT
from tests.support.upstream_process import UpstreamProcess

ROOT = "/antiphon/v1"
WAIT_S = 60.0
ENDED = {"success", "error", "canceled"}
TOOLS = [{"name": "read_list", "parameters": {"type": "object", "properties": {}}}]
TOML = """
default_model = "m"
retry_base_s = 0.0
cancel_grace_s = 0.0
drain_s = 0.0
lease_s = {lease_s}
[models.m]
base_url = "{url}"
"""


class Servers:
    """Starts lives of the server, and the upstream that outlives them."""

    def __init__(self, folder: Path, place: Place | None = None) -> None:
        self.folder = folder
        self.place = place or Files()
        self.upstream = UpstreamProcess(folder)
        self._numbers = count()
        self._databases: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.upstream.__enter__()
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.served"],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._zygote.communicate(timeout=20)
        self.upstream.__exit__()

    def _ask(self, **told: Any) -> int:
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        self._zygote.stdin.write(json.dumps(told) + "\n")
        self._zygote.stdin.flush()
        return int(self._zygote.stdout.readline())

    def story(self) -> str:
        """Return the name of a new story: its folder, its script, its requests."""
        name = f"story-{next(self._numbers)}"
        self.upstream.script(name, script(holding=False))
        self._databases[name] = self.place.new(self.folder / name)
        return name

    def start(self, name: str, number: int, kill: str | None) -> int:
        """Begin a life; one that follows another is the one that takes over from it."""
        folder, db = self.folder / name, self._databases[name]
        if number > 1:
            self.place.gone(db)
        lease_s = LONG_LEASE_S if number == 1 else SHORT_LEASE_S
        config = TOML.format(url=self.upstream.base_url(name), lease_s=lease_s)
        (folder / "antiphon.toml").write_text(config)
        return self._ask(start={"folder": str(folder), "number": number, "kill": kill, "db": db})

    def done(self, name: str) -> None:
        """Nobody asks after a story any more."""
        self.place.done(self._databases.pop(name))

    def wait(self, pid: int) -> int:
        """Return how a life ended."""
        return self._ask(wait=pid)

    def url(self, name: str, number: int) -> str | None:
        """Return where it listens, once it does."""
        out = self.folder / name / f"out-{number}.txt"
        line = out.read_text() if out.exists() else ""
        return str(json.loads(line)["url"]) if line.endswith("\n") else None

    def points(self, name: str) -> list[str]:
        return (self.folder / name / "trace-1.txt").read_text().splitlines()


@dataclass(slots=True)
class Seen:
    """What the client remembers over all lives."""

    conversation: str | None = None
    run: str | None = None
    numbered: list[tuple[int, Any]] = field(default_factory=list)
    shown: dict[tuple[str, int], str] = field(default_factory=dict)
    withdrawn: set[tuple[str, int]] = field(default_factory=set)
    committed: list[str] = field(default_factory=list)

    @property
    def cursor(self) -> int:
        return self.numbered[-1][0] if self.numbered else 0

    def take(self, event: str, data: Any) -> None:
        """Do what a client does with an event, and check what it may rely on."""
        if event == "preview.snapshot":
            self.shown[data["run"], data["generation"]] = "".join(
                block["text"] for block in data["blocks"]
            )
        elif event == "preview.delta":
            key = (data["run"], data["generation"])
            assert data["offset"] == len(self.shown.get(key, "")), "a gap or a repetition"
            assert key not in self.withdrawn
            self.shown[key] = self.shown.get(key, "") + data["text"]
        elif "seq" in data and "event" in data:
            assert data["seq"] == self.cursor + 1, "a number is missing or told twice"
            self.numbered.append((data["seq"], data["event"]))
            if event == "preview.withdrawn":
                self.withdrawn.add((data["event"]["run"], data["event"]["generation"]))
            if event == "message.committed":
                self.committed.append(data["event"]["message"])

    def status(self) -> str | None:
        """Return the newest status of the run that it knows of."""
        told = [
            e["status"]
            for _, e in self.numbered
            if e["type"] == "run.changed" and e["run"] == self.run
        ]
        return told[-1] if told else None


class Visit:
    """One life's worth of the client."""

    def __init__(
        self, http: aiohttp.ClientSession, url: str, seen: Seen, *, tools: bool, knows: bool
    ) -> None:
        """Ask at `url`. Who `knows` that the life before is dead says so where nobody else can."""
        self._http = http
        self._url = url + ROOT
        self._seen = seen
        self._tools = tools
        self._knows = knows
        self._asked = asyncio.Event()

    async def play(self) -> None:
        """Ask the question, if it is not known to have been asked, and follow it to its end."""
        seen = self._seen
        if seen.conversation is None:
            seen.conversation = (await self._post("/conversations", {}))["id"]
        following = asyncio.create_task(self._follow())
        try:
            question = "What is on the list?" if self._tools else "Name a tree."
            body = {"id": "q1", "content": question, "tools": TOOLS if self._tools else []}
            run = await self._post(f"/conversations/{seen.conversation}/messages", body)
            assert seen.run in (None, run["id"]), "the same message started another run"
            seen.run = run["id"]
            self._asked.set()
            await following
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    async def _follow(self) -> None:
        seen = self._seen
        path = f"{self._url}/conversations/{seen.conversation}/events"
        async with self._http.get(path, headers={"last-event-id": str(seen.cursor)}) as answer:
            assert answer.status == 200
            event = ""
            async for raw in answer.content:
                name, _, value = raw.decode().strip().partition(": ")
                if name == "event":
                    event = value
                elif name == "data":
                    seen.take(event, json.loads(value))
                    assert event != "end", "the run came to no end"
                    if event == "run.changed":
                        await self._asked.wait()  # which run it is, the answer to the send says
                    if seen.status() == "waiting":
                        await self._answer()
                    elif seen.status() == "unknown" and self._knows:
                        await self._say_ended()
                    elif seen.status() in ENDED and seen.run is not None:
                        return
            raise ConnectionResetError("the stream broke")

    async def _answer(self) -> None:
        calls = (await self._get(f"/runs/{self._seen.run}"))["calls"]
        outputs = [{"call_id": call["call_id"], "output": "salt"} for call in calls]
        await self._post(f"/runs/{self._seen.run}/outputs", {"outputs": outputs})

    async def _say_ended(self) -> None:
        """Say of what another node had in flight that it is dead, and all its connections closed."""
        for dispatch in (await self._get("/dispatches?state=UNKNOWN"))["data"]:
            body = {"action": "ended", "because": "its process was killed"}
            await self._post(f"/dispatches/{dispatch['operation']}/resolve", body)

    async def _get(self, path: str) -> Any:
        async with self._http.get(self._url + path) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def _post(self, path: str, body: Any) -> Any:
        async with self._http.post(self._url + path, json=body) as answer:
            told = await answer.json()
            assert answer.status in (200, 201, 202), told
            return told


async def visit(
    servers: Servers, name: str, number: int, kill: str | None, seen: Seen, tools: bool
) -> tuple[int, dict[str, Any]]:
    """Let the client meet one life of the server; return how that ended, and what is stored."""
    pid = servers.start(name, number, kill)
    stored: dict[str, Any] = {}
    timeout = aiohttp.ClientTimeout(total=WAIT_S)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        async with asyncio.timeout(WAIT_S):
            while (url := servers.url(name, number)) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.005)  # a file tells nobody that it has grown
        try:
            knows = servers.place.shared and number > 1
            await Visit(http, url, seen, tools=tools, knows=knows).play()
            if kill is None:
                stored = await _stored(http, url + ROOT, seen)
        except (aiohttp.ClientError, ConnectionError):
            assert kill is not None, "the connection broke and nobody was killed"
        else:
            os.kill(pid, signal.SIGTERM)  # it may have stood before some point of its end
    return servers.wait(pid), stored


async def _stored(http: aiohttp.ClientSession, url: str, seen: Seen) -> dict[str, Any]:
    """Ask on, and return what whoever comes anew is told."""

    async def get(path: str) -> Any:
        async with http.get(url + path) as answer:
            return await answer.json()

    events = []
    async with http.get(f"{url}/conversations/{seen.conversation}/events") as answer:
        name = ""
        async for raw in answer.content:
            word, _, value = raw.decode().strip().partition(": ")
            name = value if word == "event" else name
            if word == "data":
                if name == "caught_up":
                    break
                events.append(json.loads(value))
    return {
        "events": [(e["seq"], e["event"]) for e in events if e["type"] == "durable"],
        "run": await get(f"/runs/{seen.run}"),
        "tree": await get(f"/conversations/{seen.conversation}/tree"),
        "open": await get("/dispatches"),
    }


def _status(message: dict[str, Any]) -> str:
    """Return a message's status; what is as usual is left out."""
    return str(message.get("status", "success"))


async def killed_at(servers: Servers, point: str, *, tools: bool) -> list[str]:
    """Kill a server at a point, let the client visit the next one; return what was broken."""
    name, seen = servers.story(), Seen()
    code, _ = await visit(servers, name, 1, point, seen, tools)
    assert code == KILLED, f"{point} was not reached"
    servers.upstream.quiet()
    code, stored = await visit(servers, name, 2, None, seen, tools)
    broken = judge(seen, stored, servers.upstream.received(name), tools)
    servers.done(name)
    return [f"exit {code}", *broken] if code != 0 or broken else []


async def points_of(servers: Servers, *, tools: bool) -> list[str]:
    """Return the points that a story passes which nobody disturbs; it keeps every promise."""
    name, seen = servers.story(), Seen()
    code, stored = await visit(servers, name, 1, None, seen, tools)
    assert (code, judge(seen, stored, servers.upstream.received(name), tools)) == (0, [])
    servers.done(name)
    return servers.points(name)


def judge(seen: Seen, stored: dict[str, Any], received: list[bytes], tools: bool) -> list[str]:
    """Return every promise that was broken."""
    broken = []
    if stored["events"][: len(seen.numbered)] != seen.numbered:
        broken.append("what the client was told is not what is stored")
    numbers = [number for number, _ in stored["events"]]
    if numbers != list(range(1, len(numbers) + 1)):
        broken.append(f"numbers with gaps: {numbers}")
    run = stored["run"]["run"]
    answers = [m for m in stored["tree"]["messages"] if m["role"] == "assistant"]
    if len(received) != len(set(received)):
        broken.append("a request was sent twice")
    if len([r for r in stored["tree"]["runs"] if r["kind"] == "send"]) != 1:
        broken.append("one message, several runs")
    steps = 2 if tools else 1
    match run["status"], run["error_code"]:
        case "success", None:
            if len(received) != steps:
                broken.append(f"{len(received)} requests for {steps} steps")
            if len(answers) != steps or _status(answers[-1]) != "success":
                broken.append("success without its answers")
        case "error", "outcome_unknown":
            # It may have been sent, and nobody can say what became of it: it is no history.
            if len(answers) >= steps or len(answers) > len(received):
                broken.append("an answer of unknown outcome became history")
        case other:
            broken.append(f"no honest end: {other}")
    for message in answers:
        text = "".join(b.get("text", "") for b in message["blocks"])
        if text.endswith("PARTIAL-1 ") or (text and not text.endswith(("Alder.", "Salt."))):
            broken.append(f"half an answer is history: {text!r}")
    if {m["id"] for m in answers if _status(m) == "success"} != set(seen.committed):
        broken.append("what was committed is not what the client was told")
    if stored["open"]["data"]:
        broken.append("a dispatch is left open")
    return broken
