"""The provider at the transport's port: it counts what it receives, and the network lies in between.

The provider outlives the processes that call it. What is sent to it is looked up in the store at
the moment that its first byte may leave: there has to be an accepted attempt, and this is its only
sending.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from antiphon.core.dispatch import State
from antiphon.core.ids import ConversationId, OperationId
from antiphon.core.manifest import WireRequest
from antiphon.core.records import Attempt
from antiphon.engine.ports import Cut, NotSent, Reply
from tests.simulation.answers import Answer, answer, as_chat, as_responses
from tests.simulation.chance import Chance
from tests.simulation.store import Database

HOME: Final = "You are in "
"""Begins the instructions of every conversation, and is followed by its id."""

SILENCE_S: Final = 10_000.0
DEADLINE_S: Final = 600.0
"""How long an answer may be in the making before nobody has to wait for it any more."""


@dataclass(kw_only=True)
class Network:
    """How often an exchange goes wrong, of a hundred times each."""

    not_sent: float = 0
    cut_before_head: float = 0
    busy: float = 0
    failing: float = 0
    forbidden: float = 0
    cut: float = 0
    no_stop: float = 0
    silence: float = 0
    late: float = 0
    doubled: float = 0
    crossed: float = 0


@dataclass(slots=True)
class Kept:
    """An answer that is worked on in the background, whoever listens."""

    said: Answer
    events: list[bytes]
    begun_s: float
    pace_s: float

    def ready(self, now_s: float) -> int:
        """How many of its events there are by now."""
        return min(len(self.events), 1 + int((now_s - self.begun_s) / self.pace_s))


@dataclass(slots=True, kw_only=True, eq=False)
class Sending:
    """One request for an answer, as it was received or may have been."""

    life: int
    conversation: ConversationId
    operation: OperationId
    generation: int
    body: bytes
    at_s: float
    refused: bool = False
    open: bool = True
    kept: Kept | None = None

    def in_the_making(self, now_s: float) -> bool:
        """Whether the provider may still bring it to an end, and nobody has waited long enough."""
        if self.kept is None or now_s - self.at_s > DEADLINE_S:
            return False
        return self.kept.ready(now_s) < len(self.kept.events)


@dataclass(slots=True)
class Upstream:
    """What the provider knows and remembers, through all lives of its client."""

    chance: Chance
    database: Database
    say: Callable[[str], None]
    network: Network
    may_send_again_after_death: bool
    sendings: list[Sending] = field(default_factory=list)
    whole: dict[str, Answer] = field(default_factory=dict)
    """Every answer of which the end was made, by its text."""
    kept: dict[str, Kept] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    _numbers: int = 0

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def received(self, life: int, request: WireRequest, now_s: float) -> Sending:
        """Note a request whose first byte is about to leave, and judge whether it may."""
        conversation = _home(request.body)
        attempt = self._accepted(conversation)
        made = Sending(
            life=life,
            conversation=conversation,
            operation=attempt.operation if attempt else OperationId("none"),
            generation=attempt.generation if attempt else 0,
            body=request.body,
            at_s=now_s,
        )
        if attempt is None:
            self.broken.append(f"sent for {conversation} without an accepted attempt")
        for before in self.sendings:
            if before.operation != made.operation or before.refused:
                continue
            if before.generation >= made.generation:
                self.broken.append(
                    f"{made.operation}: generation {made.generation} was sent after "
                    f"{before.generation}"
                )
            if before.open and before.life == life:
                self.broken.append(f"{made.operation} was sent while its last sending was open")
            if before.in_the_making(now_s):
                self.broken.append(f"{made.operation} was sent again while it was in the making")
            if before.life != life and not self.may_send_again_after_death:
                self.broken.append(f"{made.operation} was sent again by a process that had not cut")
        self.sendings.append(made)
        self.say(f"sent {made.operation} generation {made.generation}")
        return made

    def _accepted(self, conversation: ConversationId) -> Attempt | None:
        store = self.database.store
        for state in (State.DISPATCHING, State.CANCELED):
            found = [
                attempt
                for attempt in self.database.ask(store.attempts_in({state}))
                if attempt.conversation == conversation and attempt.generation
            ]
            if found:
                return max(found, key=lambda attempt: attempt.generation)
        return None


@dataclass(slots=True)
class SimulatedTransport:
    """The `Transport` of one life."""

    upstream: Upstream
    life: int

    async def send(
        self,
        request: WireRequest,
        *,
        api_key: str | None,
        connect_timeout_s: float,
        on_written: Callable[[], None],
    ) -> Reply:
        up, chance, network = self.upstream, self.upstream.chance, self.upstream.network
        await asyncio.sleep(chance.up_to(0.02))
        if chance.of_hundred(network.not_sent):
            raise NotSent(chance.one_of(["dns", "connect", "tls"]), "No way there.")
        if request.method == "GET" or request.url.endswith("/cancel"):
            on_written()
            await asyncio.sleep(chance.up_to(0.05))
            return self._of_kept(request)
        made = await _between(lambda: up.received(self.life, request, _now_s()))
        try:
            on_written()
        except NotSent:
            made.refused, made.open = True, False
            raise
        try:
            await asyncio.sleep(chance.up_to(0.2))
            if chance.of_hundred(network.cut_before_head):
                raise Cut("connection_reset", "The connection broke before the head.")
        except BaseException:
            made.open = False
            raise
        for often, status in (
            (network.busy, chance.one_of([429, 503])),
            (network.failing, 500),
            (network.forbidden, 403),
        ):
            if chance.of_hundred(often):
                made.refused = status != 500
                return _Reply(self, status, [b'{"error": {"message": "No."}}'], made, [])
        said = answer(up.number(), chance, tools=b'"tools"' in request.body)
        if request.url.endswith("/responses"):
            return self._keep(said, made)
        events = as_chat(said, chance)
        return _Reply(self, 200, self._weathered(events, said), made, [said])

    async def close(self) -> None:
        pass

    # What came of it on the way.

    def _weathered(self, events: list[bytes], said: Answer) -> list[bytes | float | Cut]:
        """Return pieces of the answer, and what happens between them."""
        chance, network = self.upstream.chance, self.upstream.network
        data = b"".join(events)
        if chance.of_hundred(network.no_stop):
            return [*self._split(b"".join(events[:-2]))]
        if chance.of_hundred(network.cut):
            cut = Cut("connection_reset", "The connection broke.")
            return [*self._split(data[: chance.below(len(data))]), cut]
        if chance.of_hundred(network.silence):
            return [*self._split(data[: chance.below(len(data))]), SILENCE_S]
        late = events[0] + events[-1] if chance.of_hundred(network.late) else b""
        return [*self._split(data + late)]

    def _split(self, data: bytes) -> list[bytes | float | Cut]:
        chance = self.upstream.chance
        pieces: list[bytes | float | Cut] = []
        while data:
            size = 1 + chance.below(200)
            pieces += [data[:size], chance.up_to(0.5)]
            data = data[size:]
        return pieces

    # Answers that are kept.

    def _keep(self, said: Answer, made: Sending) -> Reply:
        up, chance = self.upstream, self.upstream.chance
        handle = f"resp_{up.number()}"
        kept = up.kept[handle] = Kept(
            said, as_responses(said, handle, chance), _now_s(), chance.up_to(1.0) + 0.01
        )
        up.whole[said.text] = said
        made.kept = kept
        return _Reply(self, 200, self._told(kept, 0), made, [])

    def _of_kept(self, request: WireRequest) -> Reply:
        up, chance = self.upstream, self.upstream.chance
        parts = urlsplit(request.url)
        handle = parts.path.removesuffix("/cancel").rsplit("/", 1)[-1]
        kept, asked = up.kept.get(handle), parse_qs(parts.query)
        if kept is None:
            up.broken.append(f"asked after {handle}, which nobody was given")
            return _Reply(self, 404, [b"{}"], None, [])
        if chance.of_hundred(up.network.busy):
            return _Reply(self, 503, [b"{}"], None, [])
        if request.method == "POST":
            return _Reply(self, 200, [b"{}"], None, [])
        if asked.get("stream") == ["true"]:
            after = int(asked.get("starting_after", ["-1"])[0])
            return _Reply(self, 200, self._told(kept, after + 1), None, [])
        whole = kept.events[-1].partition(b"data: ")[2]
        return _Reply(self, 200, [json.dumps(json.loads(whole)["response"]).encode()], None, [])

    def _told(self, kept: Kept, first: int) -> list[bytes | float | Cut]:
        """Return the events from `first` on, in time; doubled, crossed or cut as it happens."""
        chance, network = self.upstream.chance, self.upstream.network
        events = list(kept.events[max(0, first - chance.below(3)) :])
        if len(events) > 3 and chance.of_hundred(network.doubled):
            at = chance.below(len(events) - 1)
            events.insert(at + 1 + chance.below(len(events) - at), events[at])
        told: list[bytes | float | Cut] = []
        for event in events:
            told += [event, kept.pace_s]
        if chance.of_hundred(network.cut):
            del told[2 * chance.below(len(events)) :]
            return [*told, Cut("connection_reset", "The connection broke.")]
        if chance.of_hundred(network.silence):
            return [*told[: 2 * chance.below(len(events))], SILENCE_S]
        return told


class _Reply:
    """One answer on its way."""

    def __init__(
        self,
        transport: SimulatedTransport,
        status: int,
        steps: list[Any],
        made: Sending | None,
        whole: list[Answer],
    ) -> None:
        self._upstream = transport.upstream
        self._steps = steps
        self._made = made
        self._whole = whole
        self.status = status
        kind = "text/event-stream" if len(steps) > 1 else "application/json"
        self.headers = {"content-type": kind}

    async def chunks(self) -> AsyncIterator[bytes]:
        for said in self._whole:  # whether all of it arrives is the reader's to say
            self._upstream.whole[said.text] = said
        for step in self._steps:
            if isinstance(step, Cut):
                raise step
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield step

    async def close(self) -> None:
        if self._made is not None:
            self._made.open = False


async def _between(work: Callable[[], Sending]) -> Sending:
    """Do `work` between two steps of the process, where the store may be asked."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Sending] = loop.create_future()
    loop.call_soon(lambda: None if done.done() else done.set_result(work()))
    return await done


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _home(body: bytes) -> ConversationId:
    """Return the conversation that a request is made in, as its instructions say."""
    text = body.decode()
    at = text.index(HOME) + len(HOME)
    return ConversationId(text[at : text.index(".", at)])
