"""Many at once in few conversations, and a judge of what they were told: `python -m tests.server.history`.

Every input is a word of its own, and the provider answers `re:` and the last word it was sent.
So each answer tells which input it is for, each request tells its line, and whatever was lost,
doubled, crossed or forked shows in words.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from antiphon.core.blocks import Message, Role, Status
from antiphon.core.ids import ConversationId
from antiphon.core.manifest import WireRequest
from antiphon.core.records import RunStatus
from antiphon.engine.ports import Reply
from antiphon.engine.settings import Settings
from tests.server.stage import ROOT, Served, served
from tests.support.asgi import Answer, Exchange
from tests.support.provider import ScriptedProvider, chunk, says

ALLOWED = {200, 202, 400, 404, 409, 429}
FINAL = ("response.completed", "response.incomplete", "response.failed")


class Echo(ScriptedProvider):
    """Answers each request with its last word, in pieces, with pauses in which others run."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance

    async def send(
        self,
        request: WireRequest,
        *,
        api_key: str | None,
        connect_timeout_s: float,
        on_written: Callable[[], None],
    ) -> Reply:
        self.requests.append(request)
        on_written()
        word = json.loads(request.body)["messages"][-1]["content"]
        pieces = [chunk({"content": "re:"}), *says(*word)]
        return _Slow(pieces, self._chance)


@dataclass(slots=True)
class _Slow:
    pieces: list[Any]
    chance: random.Random
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "text/event-stream"})

    async def chunks(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            for _ in range(self.chance.randrange(4)):
                await asyncio.sleep(0)
            yield piece

    async def close(self) -> None:
        pass


@dataclass(slots=True)
class Told:
    """What one client was told of one response that was acknowledged."""

    word: str
    previous: str | None
    id: str
    text: str | None = None
    """All that was streamed, where it was streamed."""


class History:
    """Operations of many clients, and what came of them."""

    def __init__(self, stage: Served, conversations: list[str], seed: int) -> None:
        self._stage = stage
        self._conversations = conversations
        self._chance = random.Random(seed)
        self._words = count(1)
        self.told: list[Told] = []
        self.codes: Counter[str] = Counter()
        self.wrong: list[str] = []

    async def run(self, operations: int, clients: int) -> None:
        """Let `clients` do `operations` between them, then wait until all is quiet."""
        left = iter(range(operations))

        async def client() -> None:
            for _ in left:
                await self._operation()

        await asyncio.gather(*(client() for _ in range(clients)))
        for conversation in self._conversations:
            await self._stage.idle(conversation)

    async def _operation(self) -> None:
        kinds = (self._send, self._send, self._stream, self._stream, self._cancel)
        await self._chance.choice((*kinds, self._edit, self._regenerate, self._move_head))()

    def _body(self) -> dict[str, Any]:
        body: dict[str, Any] = {"input": f"w{next(self._words)}"}
        if self.told and self._chance.random() < 0.5:
            body["previous_response_id"] = self._chance.choice(self.told[-8:]).id
        else:
            body["conversation"] = self._chance.choice(self._conversations)
        return body

    async def _send(self) -> None:
        body = self._body() | {"background": self._chance.random() < 0.7}
        told = self._noted(await self._stage.client.post("/v1/responses", body))
        if told.status == 200:
            self._acknowledged(body, told.json["id"])

    async def _stream(self) -> None:
        """Stream, leave somewhere, come back until it has ended."""
        body = self._body() | {"stream": True}
        async with self._stage.client.asked("POST", "/v1/responses", body) as exchange:
            if exchange.status != 200:
                raw = b"".join([part async for part in _parts(exchange)])
                self._noted(Answer(exchange.status, exchange.headers, raw))
                return
            seen = await self._read(exchange, None)
        if seen is None:
            self.wrong.append(f"a stream of {body['input']} told nothing")
            return
        told = self._acknowledged(body, seen["response"]["id"])
        while not seen["over"]:
            path = f"/v1/responses/{told.id}?stream=true&starting_after={seen['number']}"
            async with self._stage.client.asked("GET", path) as exchange:
                seen = await self._read(exchange, seen) or seen
        told.text = seen["text"]

    async def _read(self, exchange: Exchange, seen: dict[str, Any] | None) -> dict[str, Any] | None:
        leaves = self._chance.randrange(1, 12)
        async for frame in exchange.frames():
            event = frame.json
            seen = seen or {"text": "", "number": -1, "over": False, "response": None}
            if event["sequence_number"] <= seen["number"] or seen["over"]:
                self.wrong.append(f"{event['sequence_number']} came after {seen['number']}")
            seen["number"] = event["sequence_number"]
            seen["response"] = event.get("response", seen["response"])
            if event["type"] == "response.output_text.delta":
                seen["text"] += event["delta"]
            seen["over"] = event["type"] in FINAL
            leaves -= 1
            if leaves == 0:
                break
        return seen

    async def _cancel(self) -> None:
        if self.told:
            name = self._chance.choice(self.told[-4:]).id
            self._noted(await self._stage.client.post(f"/v1/responses/{name}/cancel"))

    async def _edit(self) -> None:
        message = await self._message(Role.USER)
        if message is not None:
            body = {"content": f"w{next(self._words)}"}
            path = f"{ROOT}/messages/{message.id}/edit"
            self._noted(await self._stage.client.post(path, body))

    async def _regenerate(self) -> None:
        message = await self._message(Role.ASSISTANT)
        if message is not None:
            path = f"{ROOT}/messages/{message.id}/regenerate"
            self._noted(await self._stage.client.post(path, {}))

    async def _move_head(self) -> None:
        message = await self._message(Role.ASSISTANT)
        if message is not None:
            path = f"{ROOT}/conversations/{message.conversation}/head"
            self._noted(await self._stage.client.ask("PUT", path, {"head": message.id}))

    async def _message(self, role: Role) -> Message | None:
        conversation = ConversationId(self._chance.choice(self._conversations))
        tree = await self._stage.engine.world.store.tree(conversation)
        fitting = [m for m in tree if m.role is role and m.status is Status.SUCCESS]
        return self._chance.choice(fitting[-6:]) if fitting else None

    def _acknowledged(self, body: dict[str, Any], response: str) -> Told:
        told = Told(body["input"], body.get("previous_response_id"), response)
        self.told.append(told)
        return told

    def _noted(self, answer: Answer) -> Answer:
        code = answer.json.get("error", {}) if answer.status >= 400 else {}
        self.codes[f"{answer.status} {code.get('code', '')}".strip()] += 1
        if answer.status not in ALLOWED:
            self.wrong.append(f"{answer.status}: {answer.body[:200]!r}")
        return answer

    # The judge.

    async def judged(self, provider: ScriptedProvider) -> list[str]:
        """Return everything that is not as it was told."""
        wrong = list(self.wrong)
        store = self._stage.engine.world.store
        nodes: dict[str, Message] = {}
        for name in self._conversations:
            row = await store.conversation(ConversationId(name))
            tree = await store.tree(row.id)
            nodes |= {message.id: message for message in tree}
            runs = await store.runs(row.id)
            wrong += [f"{run.id} has not ended" for run in runs if run.open]
            if row.slot or row.active_operation:
                wrong.append(f"{name} is still held")
            answers = Counter(m.run for m in tree if m.role is Role.ASSISTANT and _counts(m))
            wrong += [f"{run} has {n} answers" for run, n in answers.items() if n > 1]
            for run in runs:
                if run.status is RunStatus.SUCCESS and answers[run.id] != 1:
                    wrong.append(f"{run.id} succeeded without an answer")
        wrong += [p for m in nodes.values() for p in _misplaced(m, nodes)]
        for told in self.told:
            wrong += await self._judged_response(told, nodes)
        for body in provider.bodies:
            wrong += _crossed([m["content"] for m in json.loads(body)["messages"]])
        return wrong

    async def _judged_response(self, told: Told, nodes: dict[str, Message]) -> list[str]:
        found = (await self._stage.client.get(f"/v1/responses/{told.id}")).json
        status, words = found["status"], f"re:{told.word}"
        inputs = [m for m in nodes.values() if m.role is Role.USER and m.text == told.word]
        text = "".join(p["text"] for i in found["output"] for p in i["content"])
        match status:
            case "completed":
                if text != words or len(inputs) != 1:
                    return [f"{told.word}: {text!r}, in the tree {len(inputs)} times"]
                if told.previous is not None and not self._follows(told, inputs[0], nodes):
                    return [f"{told.word} does not stand below {told.previous}"]
                if told.text is not None and told.text != words:
                    return [f"{told.word} was streamed as {told.text!r}"]
            case "cancelled":
                if len(inputs) > 1 or text:
                    return [f"{told.word} was canceled with {text!r}"]
            case _:
                return [f"{told.word} is {status}: {found['error']}"]
        return []

    def _follows(self, told: Told, said: Message, nodes: dict[str, Message]) -> bool:
        """Whether an input stands below what its request named, or that one's last closed point."""
        before = next(t for t in self.told if t.id == told.previous)
        parent = None if said.parent is None else nodes[said.parent]
        if parent is not None and parent.text in (before.word, f"re:{before.word}"):
            return True
        answered = any(m.text == f"re:{before.word}" for m in nodes.values())
        return not answered  # it was canceled, maybe before it had a place


def _counts(message: Message) -> bool:
    return message.status is Status.SUCCESS


def _misplaced(message: Message, nodes: dict[str, Message]) -> list[str]:
    """Whether an answer stands under another input than its own."""
    if message.role is not Role.ASSISTANT or not _counts(message):
        return []
    parent = nodes.get(message.parent or "")
    if parent is None or message.text != f"re:{parent.text}":
        return [f"{message.text} stands under {parent and parent.text}"]
    return []


def _crossed(line: list[str]) -> list[str]:
    """Whether a request held anything but one line of committed turns and its input."""
    wrong = []
    for before, word in zip([None, *line], line, strict=False):
        if word.startswith("re:") and before != word.removeprefix("re:"):
            wrong.append(f"{word} was sent after {before}")
    if len(set(line)) != len(line) or not line[-1].startswith("w"):
        wrong.append(f"sent: {line}")
    return wrong


async def _parts(exchange: Exchange) -> AsyncIterator[bytes]:
    while (part := await exchange.chunk()) is not None:
        yield part


async def history(folder: Path, *, operations: int, clients: int, seed: int) -> History:
    """Make a history and raise if anything of it is wrong."""
    provider = Echo(random.Random(seed))
    settings = Settings(retry_base_s=0.0, cancel_grace_s=0.0)
    async with served(folder / f"{seed}.db", provider, settings=settings) as stage:
        conversations = [await stage.conversation() for _ in range(3)]
        made = History(stage, conversations, seed)
        await made.run(operations, clients)
        wrong = await made.judged(provider)
    assert wrong == [], f"seed {seed}: {wrong[:10]}"
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        made = asyncio.run(
            history(
                Path(folder),
                operations=arguments.operations,
                clients=arguments.clients,
                seed=arguments.seed,
            )
        )
    print(f"{len(made.told)} responses, nothing wrong; answers: {dict(made.codes)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
