"""What a key may use: its models, its rate, its requests at once, its budgets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from antiphon.core.ids import ConversationId, TenantId
from antiphon.core.traffic.keys import EVERY_RIGHT, KeyTerms
from antiphon.engine.catalogue.models import Model, Models, Routing
from antiphon.engine.catalogue.prices import PRICES, Price
from antiphon.engine.engine import Engine
from antiphon.engine.settings import Settings
from antiphon.server.app import build
from antiphon.server.rights.principals import Keyring
from tests.server.stage import ROOT
from tests.support.asgi import WAIT_S, Answer, Client
from tests.support.clock import SimulatedClock
from tests.support.engines import app_on
from tests.support.provider import Hold, ScriptedProvider, says

HI: dict[str, Any] = {"model": "a", "messages": [{"role": "user", "content": "Hi"}]}
CHAT = "/v1/chat/completions"


class Gateway:
    """A server with keys, over two models."""

    def __init__(self, engine: Engine, keyring: Keyring, clock: SimulatedClock) -> None:
        self.engine, self.keyring, self.clock = engine, keyring, clock
        self.app = build(engine, keyring)

    async def client(self, **terms: Any) -> Client:
        key, secret = await self.keyring.make(
            tenant=TenantId("acme"),
            name="test",
            rights=EVERY_RIGHT,
            expires_ms=None,
            terms=KeyTerms(**terms),
        )
        client = Client(self.app, {"authorization": f"Bearer {secret}"})
        client.headers["x-test-key"] = key.id
        return client


@asynccontextmanager
async def gateway(path: Path, provider: ScriptedProvider) -> AsyncIterator[Gateway]:
    named = {
        name: Model(
            name=name,
            profile="openai-chat",
            model=f"{name}-1",
            base_url="http://up.invalid/v1",
            routing=Routing(price=Price(input=1_000.0, output=2_000.0)),
        )
        for name in ("a", "b")
    }
    clock = SimulatedClock()
    settings = Settings(models=Models(named=MappingProxyType(named)), cancel_grace_s=0.0)
    async with app_on(path / "a.db", provider, settings=settings, clock=clock) as library:
        keyring = Keyring(library.engine.world)
        yield Gateway(library.engine, keyring, clock)


def refusal(told: Answer) -> tuple[int, str, str | None, str | None]:
    error = told.json["error"]
    headers = told.headers
    return told.status, error["code"], headers.get("retry-after"), headers.get("x-should-retry")


async def test_a_key_asks_for_the_models_that_it_was_made_for(tmp_path: Path) -> None:
    async with gateway(tmp_path, ScriptedProvider(says("Yes."))) as server:
        client = await server.client(models=frozenset({"a"}))
        assert (await client.post(CHAT, HI)).status == 200
        for path, body in (
            (CHAT, {**HI, "model": "b"}),
            ("/v1/responses", {"model": "b", "input": "Hi"}),
            ("/v1/messages", {**HI, "model": "b", "max_tokens": 5}),
            ("/v1/messages/count_tokens", {**HI, "model": "b"}),
            ("/v1/responses/compact", {"model": "b", "input": "Hi"}),
        ):
            told = await client.post(path, body)
            assert told.status == 403, path
            assert "may ask: a" in told.body.decode()
        name = (await client.post(f"{ROOT}/conversations", {})).json["id"]
        told = await client.post(
            f"{ROOT}/conversations/{name}/messages", {"content": "x", "model": "b"}
        )
        assert (told.status, told.json["error"]["code"]) == (403, "model_not_allowed")


async def test_requests_come_no_faster_than_a_keys_rate_and_it_is_told_when_to_come_again(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path, ScriptedProvider(*(says("Yes.") for _ in range(4)))) as server:
        client, other = await server.client(requests_per_minute=2), await server.client()
        assert [(await client.post(CHAT, HI)).status for _ in range(2)] == [200, 200]
        assert refusal(await client.post(CHAT, HI)) == (429, "rate_limited", "30", None)
        assert (await other.post(CHAT, HI)).status == 200  # each key for itself
        assert (await client.get("/v1/models")).status == 200  # it starts nothing
        await server.clock.advance(30)
        assert (await client.post(CHAT, HI)).status == 200


async def test_no_more_requests_are_under_way_than_a_key_may_have(tmp_path: Path) -> None:
    hold = Hold()
    async with gateway(tmp_path, ScriptedProvider([hold, *says("Yes.")], says("2"))) as server:
        client = await server.client(concurrent=1)
        first = asyncio.create_task(client.post(CHAT, HI))
        async with asyncio.timeout(WAIT_S):
            await hold.reached.wait()
        assert refusal(await client.post(CHAT, HI)) == (429, "too_many_at_once", "1", None)
        hold.go.set()
        assert (await first).status == 200
        assert (await client.post(CHAT, HI)).status == 200


@pytest.mark.parametrize(
    ("terms", "next_s"),
    [({"tokens_per_day": 15}, 86_400), ({"micros_per_month": 20_000}, 32 * 86_400)],
    ids=["tokens", "money"],
)
async def test_a_budget_that_is_used_up_ends_with_its_day_or_month(
    tmp_path: Path, terms: dict[str, int], next_s: int
) -> None:
    async with gateway(tmp_path, ScriptedProvider(says("1"), says("2"))) as server:
        client = await server.client(**terms)
        assert (await client.post(CHAT, HI)).status == 200  # 10 tokens in, 5 out: 20,000 micros
        status, code, after, again = refusal(await client.post(CHAT, HI))
        assert (status, code, again) == (429, "budget_exhausted", "false")
        assert 0 < int(after or 0) <= next_s
        used = await client.get(f"{ROOT}/keys/{client.headers['x-test-key']}/usage")
        assert used.json["today"] == {
            "answers": 1,
            "input_tokens": 10,
            "output_tokens": 5,
            "micros": 20_000,
        }
        assert used.json["month"] == used.json["today"]
        await server.clock.advance(float(after or 0) + 1)
        assert (await client.post(CHAT, HI)).status == 200


@pytest.mark.req("M149")
async def test_what_is_asked_beside_a_turn_is_charged_to_the_key_whose_turn_it_is(
    tmp_path: Path,
) -> None:
    decided = says('{"decision": "continue"}')
    async with gateway(tmp_path, ScriptedProvider(says("Fine."), decided)) as server:
        client, other = await server.client(tokens_per_day=30), await server.client()
        made = await client.post(f"{ROOT}/conversations", {"scheduling": True})
        conversation = f"{ROOT}/conversations/{made.json['id']}"
        sent = await client.post(f"{conversation}/messages", {"content": "Hi", "model": "a"})
        assert sent.status == 202, sent.body
        await server.engine.idle(ConversationId(made.json["id"]))
        used = await client.get(f"{ROOT}/keys/{client.headers['x-test-key']}/usage")
        # Two answers of 10 tokens in and 5 out: the turn's, and the decision's after it.
        both = {"answers": 2, "input_tokens": 20, "output_tokens": 10, "micros": 40_000}
        assert used.json["today"] == both
        nothing = await client.get(f"{ROOT}/keys/{other.headers['x-test-key']}/usage")
        assert nothing.json["today"]["answers"] == 0
        assert refusal(await client.post(CHAT, HI))[1] == "budget_exhausted"


async def test_a_key_may_have_every_broken_history_repaired(tmp_path: Path) -> None:
    broken = {
        **HI,
        "messages": [*HI["messages"], {"role": "tool", "tool_call_id": "c", "content": "x"}],
    }
    async with gateway(tmp_path, ScriptedProvider(says("Yes."))) as server:
        client = await server.client(repairs=True)
        told = await client.post(CHAT, broken)
        assert (told.status, told.headers["antiphon-repairs"]) == (
            200,
            "result_removed messages[1]",
        )
        client.headers["antiphon-repair"] = "off"
        assert (await client.post(CHAT, broken)).status == 400


async def test_terms_are_made_kept_and_told_over_the_api(tmp_path: Path) -> None:
    async with gateway(tmp_path, ScriptedProvider()) as server:
        admin = await server.client()
        terms = {"models": ["a"], "requests_per_minute": 5, "tokens_per_day": 7, "repairs": True}
        made = await admin.post(f"{ROOT}/keys", {"name": "x", "terms": terms})
        assert (made.status, made.json["terms"]) == (201, terms)
        stored = {key.id: key for key in await server.keyring._world.store.keys()}
        assert stored[made.json["id"]].terms == KeyTerms(
            models=frozenset({"a"}), requests_per_minute=5, tokens_per_day=7, repairs=True
        )
        wrong = await admin.post(f"{ROOT}/keys", {"name": "x", "terms": {"concurrent": 0}})
        assert (wrong.status, wrong.json["error"]["at"]) == (400, "terms.concurrent")


def test_every_price_is_of_this_world() -> None:
    for name, price in PRICES.items():
        assert 0 < price.input <= price.output, name
        assert price.cached is not None, name
        assert price.cached < price.input, name
