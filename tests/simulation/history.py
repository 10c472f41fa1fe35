"""One simulated history: lives of a process, one after the other, until every client is done.

Everything that happens follows from the seed. `simulate` returns what happened, line by line, and
what was broken.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from antiphon.core.asking import Ask
from antiphon.core.ids import ConversationId, NodeId
from antiphon.core.records import OPEN_RUN, Run, RunStatus
from antiphon.core.recovery import Resend
from antiphon.engine.catalogue.models import Model, Models
from antiphon.engine.dispatch.lines import LineCache
from antiphon.engine.edge.entropy import Ids
from antiphon.engine.engine import Engine
from antiphon.engine.live import Broker
from antiphon.engine.settings import Settings
from antiphon.engine.tools.toolbox import Toolbox
from antiphon.engine.world import World
from antiphon.errors import AntiphonError, StoreError, is_all
from antiphon.stores.base import Store
from tests.simulation.chance import Chance
from tests.simulation.clients import Clients, Ledger
from tests.simulation.clock import Skew, machine_clock
from tests.simulation.judge import Judge, damage, reader
from tests.simulation.loop import VirtualLoop
from tests.simulation.places import Driver, File, Place, Shared
from tests.simulation.store import Database, SimulatedStore, Weather
from tests.simulation.tools import ASK_USER, Effects
from tests.simulation.upstream import HOME, Network, SimulatedTransport, Upstream

MOST_STEPS: Final = 100_000
SETTLING_STEP_S: Final = 30.0
SETTLING_STEPS: Final = 1440
"""Twelve hours in all: a deadline that was set while the clock was off lies hours away."""

MOST_OF_THOUSAND: Final = 20.0
"""How many journeys to a database fail at most, of a thousand."""

HOUR_MS: Final = 3_600_000


@dataclass(slots=True)
class History:
    """What happened under one seed."""

    seed: int
    lines: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def digest(self) -> str:
        """The same for the same seed, on every machine."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()


class _Simulation:
    def __init__(self, seed: int, place: Place) -> None:
        self.history = History(seed)
        self.chance = chance = Chance(seed)
        self.database = Database(place, Chance(~seed))
        self.ledger = Ledger()
        self.skew = Skew()
        self.life = 0
        self.now_s = 0.0
        rough = chance.up_to(1.0)
        resend = chance.weighed({Resend.SAME_PROCESS: 6, Resend.NEVER: 1, Resend.ALWAYS: 1})
        self.weather = Weather(
            busy=chance.up_to(6) * rough,
            cut_before=chance.up_to(8) * rough,
            cut_after=chance.up_to(8) * rough,
            unreadable=chance.up_to(1) * rough,
            slow=chance.up_to(60),
        )
        self.network = Network(
            not_sent=chance.up_to(8) * rough,
            cut_before_head=chance.up_to(12) * rough,
            busy=chance.up_to(10) * rough,
            failing=chance.up_to(5) * rough,
            forbidden=chance.up_to(3) * rough,
            cut=chance.up_to(30) * rough,
            no_stop=chance.up_to(8) * rough,
            silence=chance.up_to(4) * rough,
            late=chance.up_to(10) * rough,
            doubled=chance.up_to(20) * rough,
        )
        self.jumps = chance.of_hundred(40)
        self.dies_of = 20 + 60 * rough
        self.effects = Effects(chance, self.database, self.say, trouble=chance.up_to(15) * rough)
        self.upstream = Upstream(
            chance, self.database, self.say, self.network, resend is Resend.ALWAYS
        )
        names = [ConversationId(f"conv_{n}") for n in range(1 + chance.below(2))]
        declared = tuple(f.declaration for f in self.effects.functions())
        self.asks = {
            name: Ask(
                model=chance.one_of(["chat", "chat", "kept"]),
                instructions=f"{HOME}{name}.",
                tools=(*declared, ASK_USER),
            )
            for name in names
        }
        url = "http://provider.invalid/v1"
        kept = Model(
            name="kept",
            profile="openai-responses",
            model="gpt-6-astra",
            base_url=url,
            facts={"background": True},
        )
        chat = Model(name="chat", profile="openai-chat", model="m", base_url=url)
        self.settings = Settings(
            models=Models(named={"chat": chat, "kept": kept}, default="chat"),
            resend_after_unknown=resend,
        )

    def say(self, line: str) -> None:
        self.history.lines.append(line)
        self.history.counts[line.split(" ", 1)[0].rstrip(":")] += 1

    # Lives.

    def run(self) -> History:
        """Live until all is done, then look at what is left."""
        operations = 6 + self.chance.below(14)
        while self.ledger.operations < operations and self.life < 40:
            self._live(operations - self.ledger.operations)
        world = self._last()
        judge = Judge(
            self.database,
            list(self.asks),
            self.ledger,
            self.upstream,
            self.effects,
            reader(world, self.database),
        )
        self.history.broken += [*self.database.ask(judge.broken()), *damage(self.database.place)]
        self.database.close()
        return self.history

    def _world(self, loop: VirtualLoop) -> World:
        self.life += 1
        self.say(f"life {self.life} at {loop.time():.6f}")
        clock = machine_clock(loop, self.skew)
        store = cast(
            "Store",
            SimulatedStore(self.database, loop, self.chance, self.weather, self._told(loop)),
        )
        return World(
            store=store,
            transport=SimulatedTransport(self.upstream, self.life),
            clock=clock,
            entropy=self.chance,
            ids=Ids(clock, self.chance),
            settings=self.settings,
            broker=Broker(store),
            lines=LineCache(store),
            fence=self.database.ask(
                self.database.store.join(NodeId("local"), None, clock.now_ms())
            ),
            functions=Toolbox(self.effects.functions()),
        )

    def _told(self, loop: VirtualLoop) -> Any:
        life = self.life

        def told(line: str) -> None:
            if life == self.life:
                self.say(f"{line} at {loop.time():.6f}")

        return told

    def _live(self, operations: int) -> None:
        loop = VirtualLoop(self.now_s)
        world = self._world(loop)
        engine = Engine(world)
        if self.jumps:
            self._jump(loop)
        most = 50 + self.chance.below(700) if self.chance.of_hundred(self.dies_of) else MOST_STEPS
        clients = Clients(engine, self.asks, self.ledger, self.chance, self.say)
        with loop.entered():
            task = loop.create_task(self._serve(engine, clients, operations))
        while not task.done() and loop.steps < most and loop.step():
            pass
        if not task.done() and most == MOST_STEPS:
            self.history.broken.append(f"life {self.life} is not done after {most} steps")
        if task.done() and (error := task.exception()) is not None:
            if not isinstance(error, StoreError):
                self.history.broken.append(f"life {self.life} ended by {error!r}")
            self.say(f"life {self.life} ended by {error}")
        elif not task.done():
            self.say(f"killed after {loop.steps} steps")
        self._judged(engine, loop)
        self._over(world, loop)

    def _jump(self, loop: VirtualLoop) -> None:
        def jump() -> None:
            self.skew.ms += self.chance.below(8 * HOUR_MS) - 4 * HOUR_MS
            self.say(f"clock: off by {self.skew.ms}")
            loop.call_later(self.chance.up_to(200), jump)

        loop.call_later(self.chance.up_to(60), jump)

    async def _serve(self, engine: Engine, clients: Clients, operations: int) -> None:
        await engine.start()
        for name in self.asks:
            await engine.create_conversation(conversation=name)
        await clients.work(operations)
        if self.chance.of_hundred(60):
            self._calm()
            await self._settle(engine)
        elif self.chance.of_hundred(50):
            await engine.drain(self.chance.up_to(5))
        await engine.close()

    def _calm(self) -> None:
        """Let the weather clear up: what is left has to come to its end by itself."""
        self.say("fair weather")
        self.database.place.calm()
        for part in (self.weather, self.network):
            for name in vars(part):
                setattr(part, name, 0)
        self.effects.trouble = 0

    def _judged(self, engine: Engine, loop: VirtualLoop) -> None:
        for failure in engine.failures:
            if not is_all(failure, StoreError):
                self.history.broken.append(f"life {self.life}: {failure!r}")
        self.history.broken += [f"life {self.life}: {fault}" for fault in loop.faults]

    def _over(self, world: World, loop: VirtualLoop) -> None:
        self.now_s = loop.time()
        cast("Any", world.store).alive = False
        loop.abandon()
        self.database.reopen()

    def _last(self) -> World:
        """Live once more in fair weather, until nothing is left to do."""
        self._calm()
        loop = VirtualLoop(self.now_s)
        world = self._world(loop)
        engine = Engine(world)
        try:
            loop.finish(self._serve_out(engine), MOST_STEPS)
        except AssertionError as error:
            self.history.broken.append(f"the last life: {error}")
        self._judged(engine, loop)
        self._over(world, loop)
        return world

    async def _serve_out(self, engine: Engine) -> None:
        await engine.start()
        for name in self.asks:
            await engine.create_conversation(conversation=name)
        await self._settle(engine)
        await Clients(engine, self.asks, self.ledger, self.chance, self.say).repeat_keys()
        await engine.close()

    async def _settle(self, engine: Engine) -> None:
        """Let everything that goes on by itself come to its end; cancel what waits for a client."""
        world, left = engine.world, list[Run]()
        for _ in range(SETTLING_STEPS):
            left = [run for name in self.asks for run in await world.store.runs(name, OPEN_RUN)]
            if not left:
                break
            for run in left:
                if run.status is RunStatus.WAITING:
                    try:
                        await engine.cancel(run.conversation, run.id)
                    except AntiphonError as error:
                        self.history.broken.append(f"{run.id} cannot be canceled: {error}")
            await world.clock.sleep(SETTLING_STEP_S)
        self.history.broken += [f"life {self.life} leaves {r.id} {r.status}" for r in left]


def simulate(seed: int) -> History:
    """Live through the history of `seed`, in a file."""
    with tempfile.TemporaryDirectory(prefix="antiphon-") as folder:
        return _Simulation(seed, File(Path(folder) / "talk.db")).run()


def simulate_shared(seed: int, address: str, *, faults: bool) -> History:
    """Live through it in an empty database of PostgreSQL; with `faults` its driver fails, too."""
    if not faults:
        return _Simulation(seed, Shared(address)).run()
    chance = Chance(seed ^ 0x5EED)
    driver = Driver(chance, of_thousand=chance.up_to(MOST_OF_THOUSAND))
    simulation = _Simulation(seed, Shared(address, driver))
    driver.say = simulation.say
    return simulation.run()


def broken_in(seeds: range) -> Iterator[History]:
    """Yield every history of these seeds."""
    for seed in seeds:
        yield simulate(seed)
