"""The console as the server gives it: which addresses, what a browser may do with it, what is in it."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from antiphon.core.ids import LOCAL_TENANT
from antiphon.core.traffic.keys import EVERY_RIGHT
from antiphon.server import console
from antiphon.server.app import build
from antiphon.server.console.site import BUILT, FALLBACK, Site
from antiphon.server.rights.principals import Keyring
from tests.server.stage import ROOT, served
from tests.support.asgi import Client

SITE = Site.built()
WEB = Path(__file__).parents[2] / "web"
SITES = pytest.mark.parametrize("folder", [BUILT, FALLBACK], ids=["built", "fallback"])


async def test_every_page_is_the_same_document_and_may_run_nothing_but_ours(tmp_path: Path) -> None:
    async with served(tmp_path / "db") as server:
        pages = [
            await server.client.get(path) for path in ("/", "/c/conv_1", "/operations", "/keys")
        ]
        assert {page.body for page in pages} == {SITE.index.body}
        for page in pages:
            assert page.status == 200
            assert page.headers["content-type"].startswith("text/html")
            policy = page.headers["content-security-policy"].split("; ")
            assert "default-src 'self'" in policy
            assert not [rule for rule in policy if "unsafe" in rule]
            assert page.headers["x-content-type-options"] == "nosniff"
            assert page.headers["cache-control"] == "no-cache"


async def test_what_a_page_names_is_kept_for_ever_and_under_another_name_asked_for_again(
    tmp_path: Path,
) -> None:
    async with served(tmp_path / "db") as server:
        page = (await server.client.get("/")).body.decode()
        script = re.search(r'src="(/assets/[^"]+\.js\?v=[0-9a-f]+)"', page)
        assert script is not None
        kept = await server.client.get(script[1])
        assert kept.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert kept.headers["content-type"].startswith("text/javascript")
        path = script[1].partition("?")[0]
        for address in (path, f"{path}?v=of-another-release"):
            again = await server.client.get(address)
            assert again.headers["cache-control"] == "no-cache"
            assert again.body == kept.body
        same = await server.client.get(path, **{"if-none-match": kept.headers["etag"]})
        assert (same.status, same.body) == (304, b"")


async def test_who_takes_it_compressed_gets_the_same_in_fewer_bytes(tmp_path: Path) -> None:
    async with served(tmp_path / "db") as server:
        name = next(name for name in SITE.assets if name.endswith(".js"))
        plain = await server.client.get(f"/assets/{name}")
        packed = await server.client.get(f"/assets/{name}", **{"accept-encoding": "br, gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed.body) == plain.body
        assert "content-encoding" not in plain.headers


async def test_a_file_that_is_not_there_is_not_found_and_so_is_any_other_address(
    tmp_path: Path,
) -> None:
    async with served(tmp_path / "db") as server:
        for path in ("/assets/none.js", "/assets/..%2Fsite.py", "/c/conv_1/more", "/nowhere"):
            answer = await server.client.get(path)
            assert (answer.status, answer.json["error"]["code"]) == (404, "not_found"), path


async def test_the_page_is_given_to_everybody_and_what_it_shows_to_those_with_a_key(
    tmp_path: Path,
) -> None:
    async with served(tmp_path / "db") as server:
        keyring = Keyring(server.engine.world)
        app = build(server.engine, keyring)
        await keyring.make(tenant=LOCAL_TENANT, name="k", rights=EVERY_RIGHT, expires_ms=None)
        client = Client(app)
        assert (await client.get("/")).status == 200
        assert (await client.get(f"{ROOT}/conversations")).status == 401


@SITES
def test_a_page_names_nothing_that_it_does_not_bring_and_holds_no_script(folder: Path) -> None:
    site = Site.load(folder)
    page = site.index.body.decode()
    named = re.findall(r'(?:src|href)="(/assets/[^"?]+)\?v=', page)
    assert {name.removeprefix("/assets/") for name in named} <= set(site.assets)
    assert len(named) >= 2
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=|//", page)


def test_the_bundle_is_small_and_holds_no_map_and_loads_nothing_from_elsewhere() -> None:
    site = Site.load(BUILT)
    scripts = [asset for name, asset in site.assets.items() if name.endswith(".js")]
    assert sum(len(asset.compressed or asset.body) for asset in scripts) <= 300_000
    assert not list(BUILT.rglob("*.map"))
    for asset in site.assets.values():
        assert b"sourceMappingURL" not in asset.body
        assert not re.search(rb"@import|url\(\s*['\"]?(https?:)?//", asset.body)


def test_the_page_written_by_hand_stays_small() -> None:
    site = Site.load(FALLBACK)
    assert sum(len(asset.body) for asset in (site.index, *site.assets.values())) <= 15_000
    assert b"make web" in site.index.body


def test_the_console_knows_the_addresses_that_the_server_answers() -> None:
    source = (WEB / "console/src/address.ts").read_text(encoding="utf-8")
    for page in console.PAGES:
        first = page.split("/")[1]
        assert first in source, page


def test_where_nothing_was_built_the_page_written_by_hand_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("antiphon.server.console.site.BUILT", tmp_path / "nothing")
    assert b"make web" in Site.built().index.body
