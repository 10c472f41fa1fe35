"""The store's port with the weather in front of it: slow, busy, and cut off before or after a commit.

Behind it is the real store, in a file or on PostgreSQL. It is asked between two steps of the simulated process,
and has answered before the next one, so its own threads cannot be told from its being quick.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from antiphon.core.commands import Command, Fence
from antiphon.core.dispatch import Denied
from antiphon.core.ids import ConversationId, NodeId
from antiphon.core.records import StoredEvent
from antiphon.errors import NotDurable, StoreError
from antiphon.stores.base import Store
from tests.simulation.chance import Chance
from tests.simulation.loop import VirtualLoop
from tests.simulation.places import Place

T = TypeVar("T")

LINGER_S: Final = 0.25
"""How long what nobody waits for may wait for company."""


class Database:
    """The real store in its place, opened anew for each life of the process."""

    def __init__(self, place: Place, keys: Chance) -> None:
        self.place = place
        self._keys = keys
        self._host = asyncio.new_event_loop()
        self.store: Store = self._opened()

    def ask(self, question: Awaitable[T]) -> T:
        """Return what the real store answers."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return self._host.run_until_complete(_awaited(question))
        finally:
            asyncio._set_running_loop(outer)

    def reopen(self) -> None:
        """Open it as another process would, which knows only what is stored."""
        self.ask(self.store.close())
        self.store = self._opened()

    def close(self) -> None:
        self.ask(self.store.close())
        self._host.close()

    def _opened(self) -> Store:
        return self.ask(self.place.open(partial(self._keys.bytes, 32)))


async def _awaited(question: Awaitable[T]) -> T:
    return await question


@dataclass(slots=True, eq=False)
class _Queued:
    commands: tuple[Command[Any], ...]
    future: asyncio.Future[Any]
    alone: bool


@dataclass(kw_only=True)
class Weather:
    """How often the store and the ways to it fail, of a hundred times each."""

    busy: float = 0
    cut_before: float = 0
    cut_after: float = 0
    unreadable: float = 0
    slow: float = 0


@dataclass(slots=True)
class SimulatedStore:
    """The `Store` of one life. Commands are carried out in the order in which they came."""

    database: Database
    loop: VirtualLoop
    chance: Chance
    weather: Weather
    say: Callable[[str], None]
    alive: bool = True
    _listeners: list[Callable[[list[StoredEvent]], None]] = field(default_factory=list)
    _news: list[list[StoredEvent]] = field(default_factory=list)
    _queue: list[_Queued] = field(default_factory=list)
    _coming: asyncio.TimerHandle | None = None

    def __post_init__(self) -> None:
        self.database.store.on_events(self._news.append)

    def on_events(self, listener: Callable[[list[StoredEvent]], None]) -> None:
        self._listeners.append(listener)

    async def do(self, command: Command[Any]) -> Any:
        return await self._put((command,), alone=True, waits=True)

    async def do_all(self, *commands: Command[Any]) -> Any:
        return await self._put(commands, alone=False, waits=True)

    def submit(self, command: Command[Any]) -> Awaitable[Any]:
        return self._put((command,), alone=True, waits=False)

    async def join(self, node: NodeId, address: str | None, now_ms: int) -> Fence:
        return self.database.ask(self.database.store.join(node, address, now_ms))

    def events_at_hand(self, conversation: ConversationId, after: int) -> None:
        """Nothing is at hand: every question has its weather."""

    async def close(self) -> None:
        self.alive = False

    @property
    def nodes(self) -> None:
        """Nobody else works in the file."""

    @property
    def knowledge(self) -> Any:
        return _Part(self, self.database.store.knowledge)

    def __getattr__(self, name: str) -> Any:
        return self.question(getattr(self.database.store, name), name)

    def question(self, question: Any, name: str) -> Any:
        """Ask the real store: the answer is true of some moment before it is here."""

        async def ask(*args: Any, **named: Any) -> Any:
            await self._pause()
            if self.chance.of_hundred(self.weather.unreadable):
                self.say(f"store: {name} cannot be read")
                raise StoreError("The database cannot be read.", code="unreadable_for_now")
            answer: asyncio.Future[Any] = self.loop.create_future()
            self.loop.call_soon(_settle, answer, partial(self._asked, question, args, named))
            found = await answer
            await self._pause()
            return found

        return ask

    def _asked(self, question: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return self.database.ask(question(*args, **named))

    async def _pause(self) -> None:
        if self.chance.of_hundred(self.weather.slow):
            await asyncio.sleep(self.chance.up_to(0.05))

    # Commands.

    def _put(
        self, commands: tuple[Command[Any], ...], *, alone: bool, waits: bool
    ) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.loop.create_future()
        if not self.alive:
            return future
        self._queue.append(_Queued(commands, future, alone))
        due_s = self.loop.time() + (self.chance.up_to(0.01) if waits else LINGER_S)
        if self._coming is None or self._coming.when() > due_s:
            if self._coming is not None:
                self._coming.cancel()
            self._coming = self.loop.call_at(due_s, self._carry_out)
        if not waits:
            future.add_done_callback(_heard)
        return future

    def _carry_out(self) -> None:
        """Carry out what has gathered, or fail as a whole; then, a moment later, tell."""
        batch, self._queue, self._coming = self._queue, [], None
        failure = self._failure_before()
        outcomes = [(queued, failure or self._result(queued)) for queued in batch]
        if failure is None and self.chance.of_hundred(self.weather.cut_after):
            self.say("store: cut off after a commit")
            lost = StoreError("The connection broke.", code="store_disconnected", retryable=True)
            outcomes = [(queued, lost) for queued, _ in outcomes]
        news, self._news[:] = list(self._news), []
        self.loop.call_later(self.chance.up_to(0.004), self._tell, outcomes, news)

    def _failure_before(self) -> StoreError | None:
        if self.chance.of_hundred(self.weather.busy):
            self.say("store: busy")
            return NotDurable("The database is busy.", code="store_busy")
        if self.chance.of_hundred(self.weather.cut_before):
            self.say("store: cut off before a commit")
            return StoreError("The connection broke.", code="store_disconnected", retryable=True)
        return None

    def _result(self, queued: _Queued) -> Any:
        store, commands = self.database.store, queued.commands
        name = "+".join(type(command).__name__ for command in commands)
        try:
            with self.database.place.at_work():
                work = store.do(commands[0]) if queued.alone else store.do_all(*commands)
                done = self.database.ask(work)
        except Exception as error:  # noqa: BLE001 - its caller is told
            done = error
        verdict = done if isinstance(done, Denied | Exception) else "done"
        self.say(f"{name} {commands[0].conversation}: {verdict}")
        return done

    def _tell(self, outcomes: list[tuple[_Queued, Any]], news: list[list[StoredEvent]]) -> None:
        for events in news:
            for listener in self._listeners:
                listener(events)
        for queued, result in outcomes:
            if queued.future.done():
                continue
            if isinstance(result, Exception):
                queued.future.set_exception(result)
            else:
                queued.future.set_result(result)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of the store that has questions of its own."""

    store: SimulatedStore
    part: Any

    def __getattr__(self, name: str) -> Any:
        return self.store.question(getattr(self.part, name), name)


def _settle(answer: asyncio.Future[Any], work: Callable[[], Any]) -> None:
    if answer.cancelled():
        return
    try:
        answer.set_result(work())
    except Exception as error:  # noqa: BLE001 - whoever asked is told
        answer.set_exception(error)


def _heard(future: asyncio.Future[Any]) -> None:
    """Nobody waits for what was submitted; its failure is nobody's surprise."""
    if not future.cancelled():
        future.exception()
