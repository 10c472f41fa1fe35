"""A tool may return any image or file: every dialect carries it, or says in words what it was."""

from __future__ import annotations

import base64
from pathlib import Path
from types import MappingProxyType

import msgspec
import pytest

from antiphon import Function, Settings
from antiphon.adapters.line import MEDIUM_DESCRIBED
from antiphon.core.blocks import File, Image, Message, ToolResult
from antiphon.core.ids import RunId
from antiphon.core.records import CallState
from antiphon.engine.catalogue.models import Model, Models, Secret
from antiphon.errors import SequenceRejected
from tests.support.engines import app_on
from tests.support.everywhere import DIALECTS, rendered
from tests.support.lines import PNG, answer, asks, call, line, user
from tests.support.provider import ScriptedProvider, says
from tests.support.provider import asks as calls_for

DATA = base64.b64encode(b"\x00" * 300).decode()
PARTS: dict[str, Image | File] = {
    "png": Image(media_type="image/png", data=PNG),
    "svg": Image(media_type="image/svg+xml", data=PNG),
    "no base64": Image(media_type="image/png", data="???"),
    "nothing": Image(media_type="image/png", data=""),
    "address": Image(url="https://pictures.test/a.png"),
    "archive": File(media_type="application/zip", data=DATA, filename="a.zip"),
    "sound": File(media_type="audio/wav", data=DATA, filename="audio"),
    "pdf": File(media_type="application/pdf", data=DATA, filename="a.pdf"),
}


def results(part: Image | File, run: str | None) -> list[Message]:
    given = answer("a", "before")
    (block,) = given.blocks
    assert isinstance(block, ToolResult)
    block = msgspec.structs.replace(block, content=(*block.content, part))
    given = msgspec.structs.replace(given, blocks=(block,), run=RunId(run) if run else None)
    return line(user("Look."), asks(call("a", "look", "{}")), given)


@pytest.mark.req("M34")
@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_a_tool_returned_never_keeps_its_run_from_going_on(dialect: str, name: str) -> None:
    part = PARTS[name]
    try:
        rendered(dialect, results(part, None))
        carried = True
    except SequenceRejected:
        carried = False  # what a client brings is refused, and it can mend that
    told = rendered(dialect, results(part, "run_1"))
    described = [one for one in told.mappings if one.rule == MEDIUM_DESCRIBED]
    assert bool(described) is not carried
    body = b"".join(told.request.chunks)
    assert (b"this model cannot be shown it" in body) is not carried
    assert b"before" in body
    if described:
        assert part.data is None or not part.data or part.data.encode() not in body
    if name == "png":
        assert carried, "images of the usual kind are carried everywhere"


async def test_a_run_goes_on_from_an_archive_and_the_ledger_keeps_it_whole(tmp_path: Path) -> None:
    async def fetch() -> File:
        return File(media_type="application/zip", data=DATA, filename="a.zip")

    model = Model(
        name="m",
        profile="deepseek",
        model="some-model",
        base_url="http://127.0.0.1:9",
        api_key=Secret("k"),
    )
    settings = Settings(models=Models(named=MappingProxyType({"m": model}), default="m"))
    provider = ScriptedProvider(
        calls_for(("c1", "fetch", "{}")), says("An archive."), says("Still here.")
    )
    function = Function(name="fetch", run=fetch)
    async with app_on(tmp_path / "a.db", provider, functions=[function], settings=settings) as app:
        chat = await app.create()
        run = await chat.send("Fetch it.")
        assert (await run.result()).text == "An archive."
        (row,) = (await run.explain()).calls
        assert (row.state, row.content) == (
            CallState.SUCCESS,
            (File(media_type="application/zip", data=DATA, filename="a.zip"),),
        )
        assert "application/zip of 300 bytes" in str(provider.messages())
        assert (await (await chat.send("And now?")).result()).text == "Still here."
