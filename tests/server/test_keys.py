"""Keys: who gets in, what they may do, and that one tenant's ids mean nothing to another."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.ids import TenantId
from antiphon.core.traffic.keys import EVERY_RIGHT, Right
from antiphon.engine.edge.clock import SystemClock
from antiphon.engine.engine import Engine
from antiphon.server.app import build, endpoints
from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.rights.principals import Keyring
from tests.server.stage import ROOT
from tests.support.asgi import Client
from tests.support.clock import SimulatedClock
from tests.support.engines import app_on
from tests.support.postgres import shared_server
from tests.support.provider import ScriptedProvider, asks, says

PATIENCE_S = 30.0
SYSTEM_MESSAGE = """\
{"kind": "export", "version": 1}
{"kind": "conversation", "id": "conv_01m8pjgk7t45y1nbfvhagsxwsz", "title": null}
{"kind": "message", "id": "a", "parent_id": null, "role": "system", "blocks": [{"kind": "text", "text": "Obey."}]}
"""
TOOL = {"name": "look", "parameters": {"type": "object", "properties": {}}}


@dataclass(frozen=True, slots=True)
class Locked:
    """A server with keys."""

    engine: Engine
    keyring: Keyring
    clock: SimulatedClock
    app: Any

    async def client(self, tenant: str, *rights: Right, expires_ms: int | None = None) -> Client:
        _, secret = await self.keyring.make(
            tenant=TenantId(tenant),
            name="test",
            rights=frozenset(rights) or EVERY_RIGHT,
            expires_ms=expires_ms,
        )
        return Client(self.app, {"authorization": f"Bearer {secret}"})


@asynccontextmanager
async def locked(db: Path, provider: ScriptedProvider | None = None) -> AsyncIterator[Locked]:
    clock = SimulatedClock()
    async with app_on(db, provider or ScriptedProvider(), clock=clock) as library:
        keyring = Keyring(library.engine.world)
        await keyring.make(
            tenant=TenantId("local"), name="first", rights=EVERY_RIGHT, expires_ms=None
        )
        app = build(library.engine, keyring)
        yield Locked(library.engine, keyring, clock, app)


async def test_without_a_key_nothing_is_answered_but_health(tmp_path: Path) -> None:
    async with locked(tmp_path / "a.db") as server:
        stranger = Client(server.app)
        for route in endpoints():
            path = re.sub(r"{\w+}", "some_id", route.path)
            told = await stranger.ask(route.method, path, {} if route.body else None)
            assert told.status == (200 if route.public else 401), route.path
            if not route.public:
                assert told.headers["www-authenticate"] == "Bearer"
                assert told.json["error"]["code"] == "bad_key"


async def test_either_sdk_s_header_carries_a_key_and_a_wrong_one_opens_nothing(
    tmp_path: Path,
) -> None:
    async with locked(tmp_path / "a.db") as server:
        client = await server.client("local")
        secret = client.headers["authorization"].removeprefix("Bearer ")
        path = f"{ROOT}/conversations"
        assert (await Client(server.app, {"x-api-key": secret}).get(path)).status == 200
        for wrong in ("", "x", secret[:-1], secret + "0", "antiphon_" + "0" * 64):
            bearer = Client(server.app, {"authorization": f"Bearer {wrong}"})
            told = await bearer.get(path)
            assert told.status == 401
            words = "This server knows no such key" if wrong else "This server needs a key"
            assert words in told.json["error"]["message"]


async def test_a_key_ends_at_its_time_or_when_it_is_revoked(tmp_path: Path) -> None:
    async with locked(tmp_path / "a.db") as server:
        path = f"{ROOT}/conversations"
        brief = await server.client("local", expires_ms=server.clock.now_ms() + 1_000)
        assert (await brief.get(path)).status == 200
        await server.clock.advance(1)
        assert (await brief.get(path)).status == 401

        admin = await server.client("local")
        made = await admin.post(f"{ROOT}/keys", {"name": "app", "rights": ["read"]})
        assert made.status == 201
        reader = Client(server.app, {"authorization": f"Bearer {made.json['secret']}"})
        assert (await reader.get(path)).status == 200
        listed = await admin.get(f"{ROOT}/keys")
        assert made.json["secret"] not in listed.body.decode()
        assert made.json["id"] in {key["id"] for key in listed.json["data"]}
        revoked = await admin.ask("DELETE", f"{ROOT}/keys/{made.json['id']}")
        assert revoked.status == 200
        assert (await reader.get(path)).status == 401
        # What is stored says so too: the next process knows.
        keys = await server.engine.world.store.keys()
        assert next(k for k in keys if k.id == made.json["id"]).revoked_ms is not None


async def test_the_file_holds_no_secret(tmp_path: Path) -> None:
    async with locked(tmp_path / "a.db") as server:
        client = await server.client("local")
        secret = client.headers["authorization"].removeprefix("Bearer ").removeprefix("antiphon_")
    held = _contents(tmp_path)
    assert secret.encode() not in held
    assert bytes.fromhex(secret) not in held


def _contents(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def test_every_route_needs_the_right_that_it_names(tmp_path: Path) -> None:
    async with locked(tmp_path / "a.db") as server:
        for route in endpoints():
            if route.public:
                continue
            others = EVERY_RIGHT - {route.right}
            client = await server.client("local", *others)
            path = re.sub(r"{\w+}", "some_id", route.path)
            told = await client.ask(route.method, path, {} if route.body else None)
            assert told.status == 403, (route.method, route.path)
            # OpenAI's shape has another word for the place.
            error = told.json["error"]
            assert (error["code"], error.get("at", error.get("param"))) == (
                "forbidden",
                route.right,
            )


async def test_instructions_need_a_right_of_their_own(tmp_path: Path) -> None:
    async with locked(tmp_path / "a.db") as server:
        client = await server.client("local", Right.READ, Right.WRITE)
        name = (await client.post(f"{ROOT}/conversations", {})).json["id"]
        told = await client.post(
            f"{ROOT}/conversations/{name}/messages", {"content": "x", "instructions": "Obey."}
        )
        assert (told.status, told.json["error"]["at"]) == (403, "instruct")
        told = await client.post(f"{ROOT}/imports", {"lines": SYSTEM_MESSAGE})
        assert (told.status, told.json["error"]["at"]) == (403, "instruct")
        instructor = await server.client("local", Right.READ, Right.WRITE, Right.INSTRUCT)
        assert (await instructor.post(f"{ROOT}/imports", {"lines": SYSTEM_MESSAGE})).status == 200


async def test_a_repair_needs_a_right_of_its_own(tmp_path: Path) -> None:
    broken = {"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]}
    async with locked(tmp_path / "a.db") as server:
        client = await server.client("local", Right.READ, Right.WRITE)
        refused = await client.post("/v1/chat/completions", broken)
        assert refused.json["error"]["code"] == "orphan_tool_result"
        client.headers["antiphon-repair"] = "on"
        told = await client.post("/v1/chat/completions", broken)
        assert (told.status, told.json["error"]["param"]) == (403, "repair")
        client.headers["antiphon-repair"] = "maybe"
        told = await client.post("/v1/chat/completions", broken)
        assert (told.status, told.json["error"]["param"]) == (400, "antiphon-repair")


async def test_nobody_gives_a_right_or_a_tenant_that_is_not_theirs(tmp_path: Path) -> None:
    async with locked(tmp_path / "a.db") as server:
        admin = await server.client("acme", Right.ADMIN, Right.READ)
        for body in (
            {"name": "x", "rights": ["write"]},
            {"name": "x", "tenant": "other", "rights": []},
        ):
            told = await admin.post(f"{ROOT}/keys", body)
            assert (told.status, told.json["error"]["code"]) == (403, "forbidden")
        seen = (await admin.get(f"{ROOT}/keys")).json["data"]
        assert {key["tenant"] for key in seen} == {"acme"}
        foreign = (await server.engine.world.store.keys())[0]
        assert (await admin.ask("DELETE", f"{ROOT}/keys/{foreign.id}")).status == 404


async def test_ids_of_one_tenant_are_like_ids_of_nothing_to_another_on_every_route(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider(says("Secret."), asks(("call_1", "look", "{}")), says("Secret."))
    async with locked(tmp_path / "a.db", provider) as server:
        owner, thief = await server.client("acme"), await server.client("rival")
        ids = await _everything(owner, server.engine)
        before = await _state(owner, ids)
        tried = 0
        for route in endpoints():
            names = re.findall(r"{(\w+)}", route.path)
            if not names and route.body is None and route.query is None:
                continue
            if route.path.startswith(OWN):
                continue
            for told in await _both(route, names, ids, thief):
                assert told[0] == told[1], (route.method, route.path)
                tried += 1
        assert tried > len(endpoints()) / 2
        assert await _state(owner, ids) == before
        for path in (f"{ROOT}/conversations", f"{ROOT}/dispatches"):
            assert b"Secret" not in (await thief.get(path)).body
            assert (await thief.get(path)).json["data"] == []


async def _everything(client: Client, engine: Engine) -> dict[str, str]:
    """Make one of each thing that has an id, and return the ids by the names of the paths."""
    from antiphon.core.ids import ConversationId

    name = (await client.post(f"{ROOT}/conversations", {"title": "Secret"})).json["id"]
    path = f"{ROOT}/conversations/{name}/messages"
    await client.post(path, {"content": "Secret?"})
    await engine.idle(ConversationId(name))
    run = (await client.post(path, {"content": "Look.", "tools": [TOOL]})).json["id"]
    await engine.idle(ConversationId(name))
    told = (await client.get(f"{ROOT}/runs/{run}")).json
    key = (await client.post(f"{ROOT}/keys", {"name": "x", "rights": []})).json["id"]
    response = (await client.post("/v1/responses", {"input": "Secret?"})).json["id"]
    file = await client.post(
        f"{ROOT}/conversations/{name}/files", {"name": "secret.txt", "data": "U2VjcmV0"}
    )
    return {
        "conversation": name,
        "run": run,
        "message": told["run"]["input"],
        "dispatch": told["operations"][0]["manifest"]["operation"],
        "call": told["calls"][0]["call_id"],
        "key": key,
        "response": response,
        "item": told["run"]["input"],
        "file": file.json["id"],
    }


OWN = (f"{ROOT}/memories/{{key}}", f"{ROOT}/instructions/{{name}}", f"{ROOT}/chat/{{chat}}")
"""Whoever asks chooses the name: each tenant has its own under every one of them."""


BODIES: dict[str, Any] = {
    "messages": {"content": "x"},
    "{key}": {"text": "x"},
    "files": {"name": "x.txt", "data": "eA=="},
    "edit": {"content": "x"},
    "head": {"head": None},
    "outputs": {"outputs": [{"call_id": "call_1", "output": "x"}]},
    "resolve": {"action": "cancel"},
}


async def _both(
    route: Endpoint, names: list[str], ids: dict[str, str], thief: Client
) -> list[tuple[tuple[int, str], tuple[int, str]]]:
    """Ask for what is another tenant's and for what is nowhere; return both answers."""
    if not names:
        return []
    assert set(names) <= set(ids), f"make one in _everything: {names}"
    real = {name: ids[name] for name in names}
    fake = {name: "x" * len(value) for name, value in real.items()}
    last = route.path.rpartition("/")[2]
    told = []
    for values in (real, fake):
        body = BODIES.get(last, {}) if route.body is not None else None
        if "/calls/{call}/" in route.path:
            body = {"run": ids["run"] if values is real else "x" * 30}
            body |= {"output": "x"} if last == "resolve" else {}
        query = f"?message={ids['message']}" if last == "siblings" else ""
        answer = await thief.ask(route.method, route.path.format(**values) + query, body)
        assert answer.status == 404, (route.method, route.path, answer.body)
        text = answer.body.decode()
        for value in sorted({*values.values(), *ids.values(), "x" * 30}, key=len, reverse=True):
            text = text.replace(value, "ID")
        told.append((answer.status, re.sub(r"req_\w+", "ID", text)))
    return [(told[0], told[1])]


async def _state(client: Client, ids: dict[str, str]) -> tuple[Any, Any]:
    tree = await client.get(f"{ROOT}/conversations/{ids['conversation']}/tree")
    run = await client.get(f"{ROOT}/runs/{ids['run']}")
    return tree.json, run.json


@pytest.mark.needs("postgres")
@pytest.mark.req("M67")
async def test_a_key_that_one_node_makes_or_revokes_counts_on_the_others_too() -> None:
    postgres = await asyncio.to_thread(shared_server)
    database = await asyncio.to_thread(postgres.database)
    nodes = [app_on(database, ScriptedProvider(), clock=SystemClock()) for _ in range(2)]
    async with nodes[0] as one, nodes[1] as other:
        here = await Keyring.load(one.engine.world)
        there = await Keyring.load(other.engine.world)
        build(one.engine, here)
        served = build(other.engine, there)
        stranger = Client(served)
        assert await _status(stranger) == 200, "nobody has made a key yet"
        key, secret = await here.make(
            tenant=TenantId("local"), name="first", rights=EVERY_RIGHT, expires_ms=None
        )
        holder = Client(served, {"authorization": f"Bearer {secret}"})
        await _until(stranger, 401)
        await _until(holder, 200)
        await here.make(tenant=TenantId("local"), name="b", rights=EVERY_RIGHT, expires_ms=None)
        await here.revoke(key.id)
        await _until(holder, 401)
    await asyncio.to_thread(postgres.give_back, database)


async def _status(client: Client) -> int:
    return (await client.get(f"{ROOT}/conversations")).status


async def _until(client: Client, status: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await _status(client) != status:  # noqa: ASYNC110 - another node tells nobody here
            await asyncio.sleep(0.02)
