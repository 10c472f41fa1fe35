"""The examples run: a vector retriever over a scripted embedding endpoint, through the library."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from antiphon.engine.settings import Settings
from antiphon.errors import InvalidInput
from antiphon.library import Antiphon
from tests.support.engines import app_on, talk
from tests.support.provider import ScriptedProvider, says

EXAMPLES = Path(__file__).parent.parent / "examples"
AXES = ("pilot", "crane", "bread")


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Endpoint:
    """Embeds a text as which of three words it holds; refuses while it is told to."""

    def __init__(self) -> None:
        self.refuses = 0
        self.keys: list[str | None] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.keys.append(request.headers.get("authorization"))
        if self.refuses:
            return web.Response(status=self.refuses, text="key sk-secret is wrong")
        asked = await request.json()
        data = [
            {"index": n, "embedding": [float(word in text.lower()) for word in AXES]}
            for n, text in enumerate(asked["input"])
        ]
        return web.json_response({"data": data[::-1]})


@asynccontextmanager
async def served(endpoint: Endpoint) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/embeddings", endpoint.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@pytest.mark.req("M115", "M117", "M119", "M121")
async def test_the_vector_retriever_finds_misses_and_fails_as_it_says(tmp_path: Path) -> None:
    endpoint, provider = Endpoint(), ScriptedProvider(*(says("Yes.") for _ in range(3)))
    async with served(endpoint) as url, aiohttp.ClientSession() as session:
        notes = example("vector_retriever").VectorRetriever(session, url, "m", api_key="k")
        await notes.add("pilot.md#1", "The pilot boards off the buoy.")
        await notes.add("crane.md#1", "The crane lifts twelve tonnes.")
        async with app_on(tmp_path / "a.db", provider, retrievers=[notes]) as app:
            chat = await app.create()
            await talk(chat, "Where does the pilot board?")
            await talk(chat, "When is there bread?")
            endpoint.refuses = 503
            await talk(chat, "And the crane?")
            searched = [
                (await chat.beside(m.id)).searched[0] for m in await chat.line() if m.beside
            ]
    assert [(s.source, s.status, s.reason, s.candidates) for s in searched] == [
        ("notes", "hit", "", 2),
        ("notes", "low_score", "best_below_0.5", 2),
        ("notes", "failed", "http_503", 0),
    ]
    first, second, third = (str(provider.messages(n)[-1]["content"]) for n in range(3))
    assert '<rag source="pilot.md#1">\nThe pilot boards off the buoy.\n</rag>' in first
    assert "crane" not in first
    assert 'notice="no_match"' in second
    assert 'notice="retrieval_failed"' in third
    assert "secret" not in third
    assert set(endpoint.keys) == {"Bearer k"}


@asynccontextmanager
async def configured(config: Path, provider: ScriptedProvider) -> AsyncIterator[Antiphon]:
    settings = await asyncio.to_thread(lambda: Settings.load(config=config, env={}))
    async with app_on(config.parent / "a.db", provider, settings=settings) as app:
        yield app


@pytest.mark.req("M121")
async def test_a_server_finds_its_retriever_in_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    (tmp_path / "pilot.md").write_text(
        "The pilot boards off the buoy.\n\nThe crane is at the mole."
    )
    endpoint, provider = Endpoint(), ScriptedProvider(says("Off the buoy."))
    async with served(endpoint) as url:
        config = tmp_path / "antiphon.toml"
        config.write_text(
            '[retrievers.notes]\nfactory = "vector_retriever:of_folder"\n'
            f'base_url = "{url}"\nmodel = "m"\nfolder = "{tmp_path}"\n'
        )
        async with configured(config, provider) as app:
            chat = await app.create()
            await talk(chat, "Where does the pilot board?")
    sent = str(provider.messages()[-1]["content"])
    assert '<rag source="pilot.md#1">\nThe pilot boards off the buoy.\n</rag>' in sent
    assert "crane" not in sent


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("[retrievers]\nnotes = 1", "needs a factory"),
        ('[retrievers.notes]\nfactory = "vector_retriever"', "needs a factory"),
        ('[retrievers.notes]\nfactory = "no_such_package:make"', "No module named"),
        ('[retrievers.notes]\nfactory = "vector_retriever:nothing"', "no attribute"),
        ('[retrievers.notes]\nfactory = "vector_retriever:of_folder"\nsize = 1', "size"),
        (
            '[retrievers.notes]\nfactory = "vector_retriever:cosine"\none = []\nother = []',
            "no name",
        ),
    ],
)
async def test_a_retriever_that_cannot_be_made_stops_the_start_and_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, told: str
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    config = tmp_path / "antiphon.toml"
    config.write_text(table)
    with pytest.raises(InvalidInput) as caught:
        await configured(config, ScriptedProvider()).__aenter__()
    assert caught.value.code == "invalid_setting"
    assert str(caught.value.at).endswith("retrievers.notes")
    assert told in caught.value.message
