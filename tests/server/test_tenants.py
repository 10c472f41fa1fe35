"""Two tenants hammer each other's ids, at the same time, on every route of the OpenAPI document."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from antiphon.core.ids import ConversationId, TenantId
from antiphon.core.traffic.keys import EVERY_RIGHT
from antiphon.server.app import build
from antiphon.server.rights.principals import Keyring
from tests.server.stage import ROOT
from tests.support.asgi import Client
from tests.support.engines import app_on
from tests.support.provider import ScriptedProvider, asks, says

TOOL = {"name": "look", "parameters": {"type": "object", "properties": {}}}
ROUNDS = 2
STREAMS = ("/events",)
"""These do not end; what they say to a stranger is tested with their own route."""
OWN = ("/erasures",)
"""These name no id, and take away what is one's own."""


@dataclass
class Tenant:
    """One of the two: its client, its ids, and a word that stands in all that it has said."""

    name: str
    client: Client
    word: str
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def secrets(self) -> list[str]:
        return [self.word, *self.ids.values()]


@asynccontextmanager
async def two(path: Path) -> AsyncIterator[tuple[Tenant, Tenant]]:
    scripts = [
        script
        for word in ("acmesecret", "rivalsecret")
        for script in (says(word), asks(("call_" + word, "look", "{}")), says(word))
    ]
    async with app_on(path / "a.db", ScriptedProvider(*scripts)) as library:
        keyring = Keyring(library.engine.world)
        app = build(library.engine, keyring)
        made = []
        for name in ("acme", "rival"):
            _, secret = await keyring.make(
                tenant=TenantId(name), name=f"{name}secret", rights=EVERY_RIGHT, expires_ms=None
            )
            client = Client(app, {"authorization": f"Bearer {secret}"})
            tenant = Tenant(name, client, f"{name}secret")
            await furnish(tenant, library.engine)
            made.append(tenant)
        library.engine.world.transport.scripts.clear()  # type: ignore[attr-defined]  # nothing more is asked
        yield made[0], made[1]


async def furnish(tenant: Tenant, engine: Any) -> None:
    """Let a tenant own one of each thing that has an id."""
    client, word = tenant.client, tenant.word
    name = (await client.post(f"{ROOT}/conversations", {"title": word})).json["id"]
    path = f"{ROOT}/conversations/{name}/messages"
    await client.post(path, {"content": word})
    await engine.idle(ConversationId(name))
    run = (await client.post(path, {"content": word, "tools": [TOOL]})).json["id"]
    await engine.idle(ConversationId(name))
    told = (await client.get(f"{ROOT}/runs/{run}")).json
    response = (await client.post("/v1/responses", {"input": word})).json["id"]
    key = (await client.post(f"{ROOT}/keys", {"name": word, "rights": []})).json["id"]
    tenant.ids = {
        "conversation": name,
        "run": run,
        "message": told["run"]["input"],
        "dispatch": told["operations"][0]["manifest"]["operation"],
        "operation": told["operations"][0]["manifest"]["operation"],
        "call": told["calls"][0]["call_id"],
        "key": key,
        "response": response,
        "item": told["run"]["input"],
    }


def attacks(
    document: dict[str, Any], victim: Tenant, luck: random.Random
) -> Iterator[tuple[str, str, Any]]:
    """Yield requests that name the victim's ids wherever an id may stand."""
    ids = victim.ids
    bodies: list[dict[str, Any]] = [
        {},
        {"content": "x", "parent": ids["message"]},
        {"input": "x", "previous_response_id": ids["response"]},
        {"input": "x", "conversation": ids["conversation"]},
        {"run": ids["run"], "output": "x", "arguments": "{}"},
        {"head": ids["message"]},
        {"outputs": [{"call_id": ids["call"], "output": "x"}]},
        {"action": "cancel"},
        {"tenant": victim.name, "stage": "off", "model": "rehearsal"},
        {"name": "x", "tenant": victim.name},
        {"items": [{"type": "item_reference", "id": ids["item"]}]},
        {"title": "mine", "metadata": {"a": "b"}},
    ]
    queries = [
        "",
        f"?message={ids['message']}",
        f"?conversation={ids['conversation']}",
        f"?tenant={victim.name}&model=rehearsal",
        f"?cursor={ids['conversation']}&after={ids['item']}",
        f"?q={victim.word}",
    ]
    for path, methods in document["paths"].items():
        for method in methods:
            if path.endswith((*STREAMS, *OWN)) or "openapi" in path:
                continue
            filled = path
            for name in [part for part in path.split("/") if part.startswith("{")]:
                word = name.strip("{}").partition(":")[0]
                filled = filled.replace(name, ids.get(word, ids["conversation"]))
            if method in ("get", "delete"):
                yield method.upper(), filled + luck.choice(queries), None
                continue
            for body in luck.sample(bodies, 4):
                yield method.upper(), filled, body


async def state(tenant: Tenant) -> str:
    """Return all that a tenant can see of its own."""
    ids, client = tenant.ids, tenant.client
    told = [
        await client.get(f"{ROOT}/conversations/{ids['conversation']}"),
        await client.get(f"{ROOT}/conversations/{ids['conversation']}/tree"),
        await client.get(f"{ROOT}/runs/{ids['run']}"),
        await client.get(f"/v1/responses/{ids['response']}"),
        await client.get(f"{ROOT}/keys"),
        await client.get(f"{ROOT}/rollouts"),
    ]
    assert [one.status for one in told] == [200] * len(told), [one.body[:200] for one in told]
    return json.dumps([one.json for one in told], sort_keys=True)


async def test_neither_learns_or_changes_anything_of_the_other(tmp_path: Path) -> None:
    async with two(tmp_path) as (acme, rival):
        document = (await acme.client.get(f"{ROOT}/openapi.json")).json
        before = await state(acme), await state(rival)
        asked: set[str] = set()

        async def hammer(thief: Tenant, victim: Tenant, seed: int) -> None:
            luck = random.Random(seed)
            tried = list(attacks(document, victim, luck))
            luck.shuffle(tried)
            for method, path, body in tried:
                asked.add(path.partition("?")[0])
                told = await thief.client.ask(method, path, body)
                said = told.body.decode() + json.dumps(dict(told.headers))
                given = json.dumps(body or {}) + path  # what one says oneself may come back
                leaked = [s for s in victim.secrets if s in said and s not in given]
                assert not leaked, (method, path, told.status, leaked)

        await asyncio.gather(
            *(hammer(acme, rival, n) for n in range(ROUNDS)),
            *(hammer(rival, acme, 100 + n) for n in range(ROUNDS)),
        )
        assert len(asked) > len(document["paths"])  # each path, for each of the two
        after = await state(acme), await state(rival)
        for was, now in zip(before, after, strict=True):
            assert without_own_doings(was) == without_own_doings(now)


def without_own_doings(told: str) -> Any:
    """Leave out keys and rollouts, which each tenant may make for itself while it hammers."""
    return json.loads(told)[:4]


async def test_a_stream_of_several_conversations_says_of_a_strangers_what_it_says_of_none(
    tmp_path: Path,
) -> None:
    async with two(tmp_path) as (acme, rival):
        theirs = rival.ids["conversation"]
        path = f"{ROOT}/events?after={theirs}:0,conv_none:0,{acme.ids['conversation']}:0"
        async with acme.client.asked("GET", path) as live:
            told = [await live.frame() for _ in range(3)]
        said = {one.event: one.json for one in told if one is not None}
        of_theirs, of_none = said[theirs], said["conv_none"]
        assert of_theirs["error"].pop("at") == theirs
        assert of_none["error"].pop("at") == "conv_none"
        assert of_theirs == of_none
        assert of_none["status"] == 404
        assert said[acme.ids["conversation"]]["type"] == "durable"
