"""Rollout over HTTP: the old way to the byte, ours beside it, promotion and rollback at once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from antiphon.adapters import registry
from antiphon.adapters.base import Adapter
from antiphon.adapters.openai_chat import OpenAIChat
from antiphon.core.asking import Ask
from antiphon.core.blocks import Audio, Image, Message, Text
from antiphon.core.ids import ConversationId, RunId, TenantId
from antiphon.core.records import RunStatus
from antiphon.core.traffic.keys import EVERY_RIGHT
from antiphon.engine.catalogue.models import Model, Models
from antiphon.engine.settings import Settings
from antiphon.server.app import build
from antiphon.server.doors.relay import renamed
from antiphon.server.rights.principals import Keyring
from tests.server.stage import ROOT
from tests.support import converse
from tests.support.asgi import Client
from tests.support.clock import SimulatedClock
from tests.support.engines import app_on
from tests.support.lines import PNG
from tests.support.provider import ScriptedProvider, Status, Step, says

CHAT = "/v1/chat/completions"
BODY = b'{ "model" : "m", "messages":[{"role":"user",  "content":"Hi \\u00e9"}], "top_p":0.50 }'
WHOLE: list[Step] = [
    Status(200, {"content-type": "application/json", "x-secret": "no"}),
    b'{"id":"chatcmpl-theirs","choices":[]}',
]
TOOLS = [{"type": "function", "function": {"name": "look"}}]


def model(name: str, profile: str, at_home: str | None = None) -> Model:
    return Model(
        name=name,
        profile=profile,
        model=at_home or name,
        base_url="http://up.invalid/v1",
        max_output_tokens=100,
    )


class Gateway:
    """A server with keys for two tenants, over three models."""

    def __init__(self, app: Any, engine: Any, provider: ScriptedProvider) -> None:
        self.app, self.engine, self.provider = app, engine, provider
        self.keyring: Keyring = app.state.keyring

    async def client(self, tenant: str) -> Client:
        _, secret = await self.keyring.make(
            tenant=TenantId(tenant), name="t", rights=EVERY_RIGHT, expires_ms=None
        )
        return Client(self.app, {"authorization": f"Bearer {secret}"})


@asynccontextmanager
async def gateway(path: Path, *scripts: list[Step]) -> AsyncIterator[Gateway]:
    provider = ScriptedProvider(*scripts)
    named = {
        "m": model("m", "openai-chat"),
        "other": model("other", "openai-chat", "other-at-home"),
        "claude": model("claude", "anthropic"),
        "nova": model("nova", "bedrock", "amazon.nova-2-omni-v1:0"),
    }
    settings = Settings(models=Models(named=MappingProxyType(named)), cancel_grace_s=0.0)
    async with app_on(
        path / "a.db", provider, settings=settings, clock=SimulatedClock()
    ) as library:
        app = build(library.engine, Keyring(library.engine.world))
        yield Gateway(app, library.engine, provider)


async def rolled(client: Client, stage: str, **more: Any) -> dict[str, Any]:
    told = await client.ask("PUT", f"{ROOT}/rollouts", {"stage": stage, "model": "m", **more})
    assert told.status == 200, told.body
    body: dict[str, Any] = told.json
    return body


async def found(client: Client) -> tuple[dict[str, int], list[tuple[str, str]]]:
    told = (await client.get(f"{ROOT}/rollouts/differences?model=m")).json
    tallies = {one["outcome"]: one["count"] for one in told["requests"]}
    return tallies, [(one["kind"], one["cause"]) for one in told["differences"]]


@pytest.mark.req("M99", "M15")
async def test_in_the_shadow_the_old_request_goes_out_as_it_is_and_ours_is_compared(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path, WHOLE) as server:
        client = await server.client("acme")
        await rolled(client, "shadow")
        told = await client.ask("POST", CHAT, raw=BODY)
        assert (told.status, told.body) == (200, WHOLE[1])
        assert told.headers["antiphon-way"] == "old"
        assert "x-secret" not in told.headers
        (sent,) = server.provider.requests
        assert sent.body == BODY
        assert sent.url == "http://up.invalid/v1/chat/completions"
        assert client.headers["authorization"] not in str(sent.headers)
        assert await found(client) == ({"meaning": 1}, [("added", "stream"), ("changed", "top_p")])
        assert not await server.engine.world.store.open_runs()  # nothing of it is recorded


@pytest.mark.req("M99")
async def test_what_ours_would_have_refused_is_found_by_its_code_and_still_answered(
    tmp_path: Path,
) -> None:
    broken = {"model": "m", "messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]}
    async with gateway(tmp_path, WHOLE) as server:
        client = await server.client("acme")
        await rolled(client, "shadow")
        assert (await client.post(CHAT, broken)).status == 200
        assert await found(client) == ({"refused": 1}, [("refused", "orphan_tool_result")])


@pytest.mark.req("M100", "M101")
async def test_each_stage_takes_its_requests_at_once_and_a_rollback_gives_them_back(
    tmp_path: Path,
) -> None:
    ask: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    scripts = [says("Ours."), WHOLE, says("Ours."), WHOLE]
    async with gateway(tmp_path, *scripts) as server:
        client = await server.client("acme")

        async def goes(**more: Any) -> str:
            told = await client.post(CHAT, {**ask, **more})
            assert told.status == 200, told.body
            return told.headers.get("antiphon-way", "ours")

        await rolled(client, "without_tools")
        assert await goes() == "ours"
        assert await goes(tools=TOOLS) == "old"
        await rolled(client, "tools")
        assert await goes(tools=TOOLS) == "ours"
        await rolled(client, "off")
        assert await goes(tools=TOOLS) == "old"
        tallies, _ = await found(client)
        assert (tallies["ours"], tallies["old"]) == (2, 1)


async def test_a_tenant_without_a_rollout_goes_ours_and_cannot_see_or_set_anothers(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path, says("Ours.")) as server:
        acme, rival = await server.client("acme"), await server.client("rival")
        await rolled(acme, "off")
        ask = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        told = await rival.post(CHAT, ask)
        assert "antiphon-way" not in told.headers
        assert (await rival.get(f"{ROOT}/rollouts")).json["data"] == []
        foreign = {"stage": "off", "tenant": "acme"}
        assert (await rival.ask("PUT", f"{ROOT}/rollouts", foreign)).status == 403
        query = "?model=m&tenant=acme"
        assert (await rival.get(f"{ROOT}/rollouts/differences{query}")).status == 403


async def test_a_model_of_another_form_has_no_old_way(tmp_path: Path) -> None:
    async with gateway(tmp_path) as server:
        client = await server.client("acme")
        await rolled(client, "shadow", model="claude")
        ask = {"model": "claude", "messages": [{"role": "user", "content": "Hi"}]}
        told = await client.post(CHAT, ask)
        assert (told.status, told.json["error"]["code"]) == (400, "rollout_form_mismatch")


async def test_each_door_has_its_old_way_and_a_model_goes_by_its_providers_name(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path, WHOLE, WHOLE) as server:
        client = await server.client("acme")
        await rolled(client, "shadow", model="*")
        client.headers["anthropic-version"] = "2026-10-21"
        ask = {"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
        assert (await client.post("/v1/messages", {**ask, "model": "claude"})).status == 200
        assert (await client.post(CHAT, {**ask, "model": "other"})).status == 200
        first, second = server.provider.requests
        assert first.url.endswith("/v1/messages")
        assert dict(first.headers)["anthropic-version"] == "2026-10-21"
        assert json.loads(second.body)["model"] == "other-at-home"


def test_a_name_is_replaced_where_the_model_is_named_and_nowhere_else() -> None:
    body = b'{"a":{"model":"x"},"text":"\\"model\\":\\"x\\"","model":"x","b":["model","x"]}'
    assert renamed(body, "y") == body.replace(b'"model":"x","b"', b'"model":"y","b"')
    assert renamed(b"{}", "y") == b"{}"


# Versions.


class Old(OpenAIChat):
    """A version that was before this one: it says so, and differs in nothing else."""

    version = 0

    def __init__(self, facts: Mapping[str, object]) -> None:
        super().__init__(facts=facts)
        self.digest = registry.get("openai-chat").digest[::-1]  # type: ignore[assignment]


@pytest.fixture
def retired() -> Iterator[None]:
    def make(facts: Mapping[str, object]) -> Adapter:
        return Old(facts)

    registry.RETIRED["openai-chat", 0] = registry.Retired(make, frozenset({"text"}))
    yield
    del registry.RETIRED["openai-chat", 0]


@pytest.mark.req("M102")
@pytest.mark.usefixtures("retired")
async def test_a_version_that_is_pinned_renders_the_same_graph_until_it_is_let_go(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path, says("One."), says("Two."), says("Three.")) as server:
        client, store = await server.client("acme"), server.engine.world.store
        name = (await client.post(f"{ROOT}/conversations", {})).json["id"]
        versions = []
        for pin in (None, 0, None):
            await rolled(client, "tools", adapter_version=pin)
            path = f"{ROOT}/conversations/{name}/messages"
            run = (await client.post(path, {"content": "Hi", "model": "m"})).json["id"]
            await server.engine.idle(ConversationId(name))
            (operation,) = await store.operations(ConversationId(name), RunId(run))
            versions.append((await store.manifest(operation))[0].adapter_version)
            told = await client.get(f"{ROOT}/runs/{run}/request/body")
            assert told.body == server.provider.bodies[-1]  # rendered again by its own version
        assert versions == [1, 0, 1]
        unknown = {"stage": "tools", "model": "m", "adapter_version": 7}
        told = await client.ask("PUT", f"{ROOT}/rollouts", unknown)
        assert (told.status, told.json["error"]["code"]) == (400, "adapter_version_unknown")


@pytest.mark.req("M103")
@pytest.mark.usefixtures("retired")
async def test_what_an_older_version_does_not_know_pauses_the_conversation_until_it_is_let_go(
    tmp_path: Path,
) -> None:
    async with gateway(tmp_path, says("Fine."), says("A lamp.")) as server:
        client, engine = await server.client("acme"), server.engine
        await rolled(client, "tools", adapter_version=0)
        plain = (await client.post(f"{ROOT}/conversations", {})).json["id"]
        path = f"{ROOT}/conversations/{plain}/messages"
        await client.post(path, {"content": "Hi", "model": "m"})
        await engine.idle(ConversationId(plain))
        assert len(server.provider.requests) == 1  # what it knows goes on

        row = await engine.create_conversation(tenant=TenantId("acme"))
        picture = (Text(text="What is it?"), Image(media_type="image/png", data=PNG))
        run = await engine.send(row.id, picture, Ask(model="m"))
        await engine.idle(row.id)
        assert (await engine.world.store.run(row.id, run.id)).status is RunStatus.QUEUED
        assert len(server.provider.requests) == 1
        told = (await client.get(f"{ROOT}/rollouts")).json
        assert told["paused"] == {row.id: "image"}
        pause = {
            "run": run.id,
            "model": "m",
            "adapter_version": 0,
            "block_kind": "image",
            "reason": "adapter_too_old",
            "fix": "Pin another version for this model, or none: antiphon rollout set.",
        }
        at = f"{ROOT}/conversations/{row.id}"
        assert (await client.get(at)).json["paused"] == pause
        assert (await client.get(f"{at}/tree")).json["conversation"]["paused"] == pause
        shown = {
            one["id"]: one["paused"]
            for one in (await client.get(f"{ROOT}/conversations")).json["data"]
        }
        assert shown == {row.id: pause, plain: None}
        rival = await server.client("rival")
        assert (await rival.get(f"{ROOT}/rollouts")).json["paused"] == {}
        metrics = (await (await server.client("local")).get("/metrics")).body.decode()
        assert "antiphon_conversations_paused 1" in metrics

        part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
        ask = {"model": "m", "messages": [{"role": "user", "content": [part]}]}
        waits = await client.post(CHAT, ask)  # who has no conversation is told to come again
        assert (waits.status, waits.json["error"]["code"]) == (503, "conversation_paused")

        await rolled(client, "tools")
        await engine.idle(row.id)
        assert (await engine.world.store.run(row.id, run.id)).status is RunStatus.SUCCESS
        assert (await client.get(f"{ROOT}/rollouts")).json["paused"] == {}
        assert (await client.get(at)).json["paused"] is None


@pytest.mark.req("M103")
@pytest.mark.usefixtures("retired")
async def test_a_line_that_an_older_version_knows_is_looked_through_once(tmp_path: Path) -> None:
    async with gateway(tmp_path, *[says("Fine.")] * 10) as server:
        client, engine = await server.client("acme"), server.engine
        await rolled(client, "tools", adapter_version=0)
        row = await engine.create_conversation(tenant=TenantId("acme"))
        looked: list[int] = []
        path = engine.world.store.path

        async def counted(*asked: Any, **how: Any) -> list[Message]:
            found: list[Message] = await path(*asked, **how)
            looked.append(len(found))
            return found

        engine.world.store.path = counted
        for _ in range(10):
            looked.clear()
            await engine.send(row.id, (Text(text="Hi"),), Ask(model="m"))
            await engine.idle(row.id)
            assert max(looked, default=0) <= 8  # however long the line is
        assert len(server.provider.requests) == 10


@pytest.mark.req("M87", "M102", "M103")
async def test_a_dialect_goes_back_to_its_first_version_which_pauses_what_it_has_no_word_for(
    tmp_path: Path,
) -> None:
    said = converse.start() + converse.text(0, "Rain.") + converse.end("end_turn")
    answer: list[Step] = [
        Status(200, {"content-type": converse.STREAM}),
        said + converse.metadata(),
    ]
    async with gateway(tmp_path, *[answer] * 4) as server:
        client, engine = await server.client("acme"), server.engine
        store, sound = engine.world.store, Audio(data="UklGRg==", format="wav")

        async def asked(pin: int | None, *blocks: Text | Audio) -> tuple[Any, Any]:
            await rolled(client, "tools", model="nova", adapter_version=pin)
            row = await engine.create_conversation(tenant=TenantId("acme"))
            run = await engine.send(row.id, (Text(text="What is it?"), *blocks), Ask(model="nova"))
            await engine.idle(row.id)
            return row, run

        async def version(row: Any, run: Any) -> int:
            (operation,) = await store.operations(row.id, run.id)
            assert (await client.get(f"{ROOT}/runs/{run.id}/request/body")).body
            made_by: int = (await store.manifest(operation))[0].adapter_version
            return made_by

        made = [await version(*await asked(pin)) for pin in (None, 1)]
        assert made == [2, 1]
        newer, older = server.provider.bodies
        assert newer == older  # what both can say they say alike

        row, run = await asked(1, sound)
        assert (await store.run(row.id, run.id)).status is RunStatus.QUEUED
        assert (await client.get(f"{ROOT}/rollouts")).json["paused"] == {row.id: "audio"}
        assert len(server.provider.bodies) == 2  # nothing was told in other words

        await rolled(client, "tools", model="nova")
        await engine.idle(row.id)
        assert (await store.run(row.id, run.id)).status is RunStatus.SUCCESS
        assert await version(row, run) == 2
        assert b'"audio":{"format":"wav"' in server.provider.bodies[-1]
