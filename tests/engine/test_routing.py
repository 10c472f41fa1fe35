"""Routing: who is asked after a definite no, who waits for whom, and how long each phase may take."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from antiphon.core.asking import Ask
from antiphon.core.blocks import Message
from antiphon.core.dispatch import State
from antiphon.core.ids import LOCAL_TENANT, ConversationId, RunId, TenantId
from antiphon.core.records import RunStatus
from antiphon.core.traffic.standing import SpendingSince, day_of
from antiphon.engine.catalogue.models import Model, Models, Routing
from antiphon.engine.catalogue.prices import Price
from antiphon.engine.gates import Gates
from antiphon.engine.ports import Cut, NotSent
from antiphon.engine.settings import Settings
from antiphon.errors import Conflict, OutcomeUnknown, ProviderFailed
from antiphon.library import Antiphon
from antiphon.stores.base import Store
from tests.support.clock import SimulatedClock, settle
from tests.support.engines import app_on
from tests.support.provider import Hold, ScriptedProvider, Status, Step, asks, chunk, says

WAIT_S = 10.0
FULL = Status(529)
OVERLOADED = b'{"error":{"message":"full","code":"overloaded"}}'

A = Ask(model="a")


def model(name: str, profile: str = "openai-chat", **routing: Any) -> Model:
    return Model(
        name=name,
        profile=profile,
        model=f"{name}-at-home",
        base_url=f"http://{name}.invalid/v1",
        max_output_tokens=100,
        routing=Routing(**routing),
    )


@asynccontextmanager
async def opened(
    path: Path, provider: ScriptedProvider, *models: Model, clock: SimulatedClock | None = None
) -> AsyncIterator[Antiphon]:
    named = {one.name: one for one in models}
    settings = Settings(
        models=Models(named=MappingProxyType(named)),
        retries=0,
        retry_base_s=0.0,
        cancel_grace_s=0.0,
    )
    async with app_on(path / "a.db", provider, settings=settings, clock=clock) as app:
        yield app


def asked(provider: ScriptedProvider) -> list[str]:
    """Return who was asked, in order."""
    return [json.loads(body)["model"].removesuffix("-at-home") for body in provider.bodies]


async def test_a_definite_no_is_followed_by_the_next_model_under_a_linked_manifest(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider([FULL, OVERLOADED], [NotSent("dns", "x")], says("Here."))
    models = model("a", fallbacks=("b", "c")), model("b"), model("c")
    async with opened(tmp_path, provider, *models) as app:
        chat = await app.create()
        run = await chat.send("Hi", ask=A)
        assert (await run.result()).text == "Here."
        assert asked(provider) == ["a", "c"]  # of b's request no byte left
        store = app.engine.world.store
        operations = await store.operations(chat.id, run.id)
        manifests = [(await store.manifest(one))[0] for one in operations]
        assert [one.model_revision for one in manifests] == ["a-at-home", "b-at-home", "c-at-home"]
        assert [one.linked_to for one in manifests] == [None, *operations[:2]]
        states = [(await store.attempts(one))[-1].state for one in operations]
        assert states == [State.CLOSED, State.CLOSED, State.COMMITTED]


async def test_after_an_unknown_outcome_nobody_else_is_asked(tmp_path: Path) -> None:
    cut: list[Step] = [chunk({"content": "Half"}), Cut("connection_lost", "It broke.")]
    provider = ScriptedProvider(cut)
    async with opened(tmp_path, provider, model("a", fallbacks=("b",)), model("b")) as app:
        chat = await app.create()
        run = await chat.send("Hi", ask=A)
        with pytest.raises(OutcomeUnknown):
            await run.result()
        assert asked(provider) == ["a"]


async def test_what_a_model_said_is_its_answer_and_no_other_is_asked_instead(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider(says("", finish="content_filter"))
    async with opened(tmp_path, provider, model("a", fallbacks=("b",)), model("b")) as app:
        run = await (await app.create()).send("Hi", ask=A)
        with pytest.raises(ProviderFailed):
            await run.result()
        assert asked(provider) == ["a"]


async def test_a_fallback_of_another_dialect_is_asked_in_its_own_words(tmp_path: Path) -> None:
    provider = ScriptedProvider([FULL, OVERLOADED], [FULL, OVERLOADED])
    models = model("a", fallbacks=("b",)), model("b", "anthropic")
    async with opened(tmp_path, provider, *models) as app:
        run = await (await app.create()).send("Hi", ask=Ask(model="a", instructions="Be kind."))
        with pytest.raises(ProviderFailed):
            await run.result()
        first, second = (json.loads(body) for body in provider.bodies)
        assert first["messages"][0]["role"] == "system"
        assert second["system"] == [{"type": "text", "text": "Be kind."}]
        assert provider.requests[1].url.endswith("/v1/messages")


async def test_no_more_calls_are_under_way_than_the_model_takes_and_tenants_take_turns(
    tmp_path: Path,
) -> None:
    holds = [Hold() for _ in range(4)]
    provider = ScriptedProvider(*([hold, *says("Done.")] for hold in holds))
    async with opened(tmp_path, provider, model("a", max_concurrent=1)) as app:
        engine = app.engine
        runs = []
        for tenant, text in [("acme", "1"), ("acme", "2"), ("acme", "3"), ("rival", "4")]:
            row = await engine.create_conversation(tenant=TenantId(tenant))
            runs.append(await engine.send(row.id, text, Ask(model="a")))
            await settle()
        for hold in holds:
            async with asyncio.timeout(WAIT_S):
                await hold.reached.wait()
            assert len(provider.requests) == holds.index(hold) + 1
            hold.go.set()
        for run in runs:
            await engine.idle(run.conversation)
        said = [json.loads(body)["messages"][-1]["content"] for body in provider.bodies]
        assert said == ["1", "2", "4", "3"]


async def test_a_call_that_waits_can_be_canceled_and_is_never_made(tmp_path: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider([hold, *says("Done.")])
    async with opened(tmp_path, provider, model("a", max_concurrent=1)) as app:
        first = await (await app.create()).send("1", ask=A)
        async with asyncio.timeout(WAIT_S):
            await hold.reached.wait()
        other = await app.create()
        waits = await other.send("2", ask=A)
        await settle()
        await waits.cancel()
        await app.engine.idle(other.id)
        assert (await waits.row()).status is RunStatus.CANCELED
        hold.go.set()
        assert (await first.result()).text == "Done."
        assert len(provider.requests) == 1


class Holding:
    """A store that stops where the input of a run is read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.hold = Hold()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run_input(self, conversation: ConversationId, run: RunId) -> Message | None:
        self.hold.reached.set()
        await self.hold.go.wait()
        return await self._store.run_input(conversation, run)


async def test_one_that_is_canceled_as_it_is_about_to_begin_waits_behind_no_gate(
    tmp_path: Path,
) -> None:
    busy = Hold()
    provider = ScriptedProvider([busy, *says("Done.")])
    async with opened(tmp_path, provider, model("a", max_concurrent=1)) as app:
        await (await app.create()).send("1", ask=A)
        world = app.engine.world
        async with asyncio.timeout(WAIT_S):
            await busy.reached.wait()
            holding = Holding(world.store)
            world.store = holding
            other = await app.create()
            waits = await other.send("2", ask=A)
            await holding.hold.reached.wait()
            await waits.cancel()
            holding.hold.go.set()
            await app.engine.idle(other.id)  # while the model is still busy
        assert len(provider.requests) == 1
        busy.go.set()


async def test_calls_begin_no_faster_than_the_model_takes_them(tmp_path: Path) -> None:
    clock = SimulatedClock()
    provider = ScriptedProvider(says("1"), says("2"))
    slow = model("a", requests_per_minute=6)
    async with opened(tmp_path, provider, slow, clock=clock) as app:
        one, two = await app.create(), await app.create()
        await (await one.send("1", ask=A)).result()
        later = await two.send("2", ask=A)
        await settle()
        await clock.advance(9.0)
        assert len(provider.requests) == 1
        await clock.advance(1.1)
        assert (await later.result()).text == "2"


async def test_who_could_only_wait_behind_too_many_of_its_own_is_told_when_to_come_again() -> None:
    clock = SimulatedClock()
    gates, full = Gates(clock), model("a", requests_per_minute=1, max_waiting=1)
    gate = gates._of(full)
    assert gate is not None
    for _ in range(2):
        gate.ask(LOCAL_TENANT)  # the first passes, the second waits
    with pytest.raises(Conflict) as caught:
        gates.check(full, LOCAL_TENANT)
    assert (caught.value.code, caught.value.retryable) == ("model_busy", True)
    assert caught.value.retry_after_s == 120
    gates.check(full, TenantId("other"))  # its own queue is empty


@pytest.mark.parametrize(
    ("routing", "steps", "after_s", "code"),
    [
        ({"first_byte_timeout_s": 5.0}, [Hold()], 5.1, "first_byte_timeout"),
        ({"idle_timeout_s": 7.0}, [chunk({"content": "x"}), Hold()], 7.1, "idle_timeout"),
        ({"total_timeout_s": 9.0}, [chunk({"content": "x"}), Hold()], 9.1, "deadline"),
    ],
    ids=["first byte", "idle", "total"],
)
async def test_each_phase_has_its_time_and_what_it_ends_is_of_unknown_outcome(
    tmp_path: Path, routing: dict[str, Any], steps: list[Step], after_s: float, code: str
) -> None:
    clock = SimulatedClock()
    hold = next(step for step in steps if isinstance(step, Hold))
    provider = ScriptedProvider(steps)
    async with opened(tmp_path, provider, model("a", **routing), clock=clock) as app:
        chat = await app.create()
        run = await chat.send("Hi", ask=A)
        async with asyncio.timeout(WAIT_S):
            await hold.reached.wait()
        await settle()
        await clock.advance(after_s)
        with pytest.raises(Exception, match="outcome_unknown"):
            await run.result()
        (operation,) = await app.engine.world.store.operations(chat.id, run.id)
        (attempt,) = await app.engine.world.store.attempts(operation)
        assert attempt.error_code == code


async def test_what_an_answer_costs_is_charged_to_the_key_that_asked(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("Here."))
    priced = model("a", price=Price(input=2.0, output=10.0))
    async with opened(tmp_path, provider, priced) as app:
        engine = app.engine
        row = await engine.create_conversation()
        await engine.send(row.id, "Hi", Ask(model="a", key="key_1"))
        await engine.idle(row.id)
        today = day_of(engine.world.clock.now_ms())
        spent = await engine.world.store.answer(SpendingSince(key="key_1", day=today))
        assert (spent.input_tokens, spent.output_tokens, spent.micros) == (10, 5, 70)


def test_an_alias_is_the_model_that_it_stands_for(tmp_path: Path) -> None:
    file = tmp_path / "antiphon.toml"
    file.write_text(
        '[models.fast]\nbase_url = "http://x.invalid/v1"\n[aliases]\n"gpt-4o" = "fast"\n'
    )
    models = Settings.load(config=file, env={}).models
    assert models.get("gpt-4o").name == "fast"
    assert "gpt-4o" in models.names()
    for wrong in ('"fast" = "fast"', '"x" = "nothing"'):
        file.write_text(f'[models.fast]\nbase_url = "http://x.invalid/v1"\n[aliases]\n{wrong}\n')
        with pytest.raises(Exception, match="aliases"):
            Settings.load(config=file, env={})


async def test_tools_go_on_with_the_run_at_a_fallback(tmp_path: Path) -> None:
    provider = ScriptedProvider(
        [FULL, OVERLOADED], asks(("c1", "nowhere", "{}")), says("No such tool.")
    )
    async with opened(tmp_path, provider, model("a", fallbacks=("b",)), model("b")) as app:
        run = await (await app.create()).send("Hi", ask=A)
        assert (await run.result()).text == "No such tool."
        assert asked(provider) == ["a", "b", "a"]  # each step asks the model first
