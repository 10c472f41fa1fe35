"""What an attacker may try at the edge: injection, decompression, other origins, other networks."""

from __future__ import annotations

import ast
import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.blocks import Image, Text
from antiphon.core.rules.findings import Change, Repair
from antiphon.core.rules.repair import listed
from antiphon.engine.settings import Settings
from antiphon.errors import InvalidInput
from antiphon.server import mending
from antiphon.server.http.logs import Lines
from antiphon.server.http.urls import check_block_urls
from tests.server.stage import ROOT, served
from tests.support.provider import ScriptedProvider, says

CHAT = "/v1/chat/completions"
SOURCES = Path(__file__).parents[2] / "src" / "antiphon"


def picture(url: str) -> dict[str, Any]:
    part = {"type": "image_url", "image_url": {"url": url}}
    return {"model": "rehearsal", "messages": [{"role": "user", "content": [part]}]}


INNER = [
    "http://127.0.0.1/x.png",
    "http://localhost:8000/x.png",
    "http://169.254.169.254/latest/meta-data",
    "http://10.1.2.3/",
    "http://[::1]/",
    "http://[fd00::1]/",
    "http://2130706433/",
    "http://0x7f.1/",
    "http://127.1/",
    "http://intranet/",
    "http://db.internal./",
    "file:///etc/passwd",
    "ftp://example.org/x",
    "http:///x",
]


@pytest.mark.parametrize("url", INNER)
async def test_an_address_of_a_private_network_does_not_pass_through_any_door(
    tmp_path: Path, url: str
) -> None:
    async with served(tmp_path / "a.db", ScriptedProvider()) as server:
        told = await server.client.post(CHAT, picture(url))
        assert (told.status, told.json["error"]["code"]) == (400, "url_not_allowed")
        name = await server.conversation()
        block = {"kind": "image", "url": url}
        path = f"{ROOT}/conversations/{name}/messages"
        told = await server.client.post(path, {"content": [block]})
        assert (told.status, told.json["error"]["code"]) == (400, "url_not_allowed")
        lines = [
            {"kind": "export", "version": 1},
            {"kind": "conversation", "id": name},
            {"kind": "message", "id": "a", "parent_id": None, "role": "user", "blocks": [block]},
        ]
        told = await server.client.post(
            f"{ROOT}/imports", {"lines": "".join(json.dumps(line) + "\n" for line in lines)}
        )
        assert (told.status, told.json["error"]["code"]) == (400, "url_not_allowed")
        item = {"role": "user", "content": [{"type": "input_image", "image_url": url}]}
        told = await server.client.post("/v1/responses", {"input": [item]})
        assert (told.status, told.json["error"]["code"]) == (400, "url_not_allowed")


def test_a_host_that_is_named_passes_and_then_no_other() -> None:
    def blocks(url: str) -> list[Any]:
        return [Text(text="see"), Image(url=url)]

    check_block_urls(Settings(), blocks("https://example.org/x.png"))
    check_block_urls(Settings(), [Image(media_type="image/png", data="AA==")])
    named = Settings(url_hosts=frozenset({"files.internal"}))
    check_block_urls(named, blocks("http://files.internal/x.png"))
    with pytest.raises(InvalidInput, match="url_not_allowed"):
        check_block_urls(named, blocks("https://example.org/x.png"))
    assert Settings.load(env={"ANTIPHON_URL_HOSTS": "a.b, c.d"}).url_hosts == {"a.b", "c.d"}


OPENS_SOCKETS = {"aiohttp", "httpx", "requests", "urllib.request", "http.client", "socket", "ssl"}
MAY = {
    "engine/edge/http.py",
    "engine/edge/leaving.py",
    "engine/edge/rehearsal.py",
    "engine/edge/local_model.py",
    "engine/edge/signing.py",
    "server/http/serving.py",
    "client/",
    "cli/",
    "engine/tools/mcp/",
    "engine/nodes/relay.py",
    "stores/postgres/",
}
"""The transport, our own servers and sockets that listen, the client's side, servers of tools that
the operator names, the database."""


def test_nothing_but_the_transport_can_fetch_anything() -> None:
    for file in SOURCES.rglob("*.py"):
        place = str(file.relative_to(SOURCES))
        if place.startswith(tuple(MAY)):
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not OPENS_SOCKETS & set(names), place


async def test_a_compressed_body_is_refused_before_it_is_read(tmp_path: Path) -> None:
    bomb = gzip.compress(b'{"input":"' + b"a" * 1_000_000 + b'"}')
    async with served(tmp_path / "a.db", ScriptedProvider()) as server:
        told = await server.client.ask(
            "POST",
            "/v1/responses",
            raw=bomb,
            headers={"content-type": "application/json", "content-encoding": "gzip"},
        )
        assert (told.status, told.json["error"]["code"]) == (415, "encoding_not_supported")


async def test_no_other_origin_is_ever_invited(tmp_path: Path) -> None:
    async with served(tmp_path / "a.db", ScriptedProvider(says("Hi"))) as server:
        asked = {"origin": "http://localhost", "access-control-request-method": "POST"}
        for method, path in (("OPTIONS", CHAT), ("GET", "/v1/models"), ("GET", "/healthz")):
            told = await server.client.ask(method, path, headers=asked)
            assert not [name for name in told.headers if name.startswith("access-control")]
        evil = {"origin": "http://evil.example"}
        assert (await server.client.ask("GET", "/v1/models", headers=evil)).status == 403
        rebound = {"host": "evil.example"}
        assert (await server.client.ask("GET", "/v1/models", headers=rebound)).status == 421


@pytest.mark.parametrize("place", ["x\r\nset-cookie: a=b", "x\x00\x1b[2J", "ü,messages[1]"])
def test_nothing_that_a_client_sent_can_end_a_header(place: str) -> None:
    one = Repair(change=Change.RESULT_REMOVED, reason="orphan_tool_result", at=place)
    told = mending.headers([listed(one)] * 20)["antiphon-repairs"]
    assert told.isascii()
    assert told.isprintable()
    assert told.endswith("12 more")


@pytest.mark.req("M17", "M28")
async def test_a_line_of_the_log_is_one_line_of_json_and_holds_nothing_that_was_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "antiphon")
    async with served(tmp_path / "a.db", ScriptedProvider(says("hushed answer"))) as server:
        body = {"model": "rehearsal", "messages": [{"role": "user", "content": "hush\nhush"}]}
        await server.client.post(CHAT, body, user_agent="a\x1b[2J b")
        await server.client.get("/nowhere%0a%7b%22level%22%3a%22x%22%7d")
    assert len(caplog.records) >= 2
    for record in caplog.records:
        line = Lines().format(record)
        assert "\n" not in line
        assert json.loads(line)
        assert "hush" not in line
        assert "nowhere" not in line
