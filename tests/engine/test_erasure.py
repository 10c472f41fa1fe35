"""What was not to be stored is dropped by whichever process comes to it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from antiphon.core.asking import Ask
from antiphon.core.blocks import Message, Origin, Role, Status, Text, Trust
from antiphon.core.ids import LOCAL_TENANT, ConversationId, MessageId
from antiphon.core.records import Response
from antiphon.engine.engine import Engine
from antiphon.engine.keeping.explain import exact_request
from antiphon.engine.runs.responding import Opening, begin, foreseen, placed
from antiphon.engine.runs.terms import terms
from antiphon.errors import Erased
from tests.support.engines import app_on
from tests.support.provider import Hold, ScriptedProvider, chunk, says

WAIT_S = 20.0
SECRET = b"the rain in Spain"


async def begun(engine: Engine) -> Response:
    """A response that is not to be stored, with instructions and a tool's declaration of its own."""
    row = foreseen(engine, LOCAL_TENANT)
    kept = await terms(engine.world, LOCAL_TENANT, Ask(instructions=f"{SECRET.decode()} is dull"))
    said = Message(
        id=MessageId("said"),
        conversation=ConversationId("there"),
        parent=None,
        role=Role.USER,
        blocks=(Text(text=SECRET.decode()),),
        origin=Origin.CLIENT,
        trust=Trust.USER,
        status=Status.PENDING,
    )
    opening = Opening(previous=None, request=SECRET + b" asked", stored=False)
    nodes = placed(engine, row, None, [said])
    return await begin(engine, row, opening, kept, nodes, parent=None, new=True, at_root=True)


def in_files(path: Path) -> bool:
    return any(SECRET in part.read_bytes() for part in path.parent.glob(f"{path.name}*"))


async def dropped(engine: Engine) -> None:
    await asyncio.wait_for(engine.erasure.idle(), WAIT_S)
    assert await engine.world.store.unstored() == []


async def test_a_crash_between_the_end_and_the_drop_leaves_it_to_the_next_start(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.db"
    async with app_on(path, ScriptedProvider(says(SECRET.decode()))) as app:
        response = await begun(app.engine)
        await app.engine.idle(response.conversation)
        (run,) = await app.engine.world.store.runs(response.conversation)
        assert not run.open
    assert await asyncio.to_thread(in_files, path)
    async with app_on(path, ScriptedProvider()) as app:
        await dropped(app.engine)
        with pytest.raises(Erased):
            await exact_request(app.engine.world, run.id)
    assert not await asyncio.to_thread(in_files, path)


async def test_a_crash_in_mid_answer_settles_the_run_and_then_drops_it(tmp_path: Path) -> None:
    path, hold = tmp_path / "a.db", Hold()
    provider = ScriptedProvider([chunk({"content": SECRET.decode()}), hold])
    async with app_on(path, provider) as app:
        response = await begun(app.engine)
        await asyncio.wait_for(hold.reached.wait(), WAIT_S)
    async with app_on(path, ScriptedProvider()) as app:
        await dropped(app.engine)
        (run,) = await app.engine.world.store.runs(response.conversation)
        assert (run.status, run.error_code) == ("error", "outcome_unknown")
    assert not await asyncio.to_thread(in_files, path)


async def test_it_is_dropped_once_its_run_rests_and_not_before(tmp_path: Path) -> None:
    path, hold = tmp_path / "a.db", Hold()
    async with app_on(path, ScriptedProvider([hold, *says(SECRET.decode())])) as app:
        response = await begun(app.engine)
        app.engine.erasure.forget_later(response, had=True)
        await asyncio.wait_for(hold.reached.wait(), WAIT_S)
        assert await app.engine.world.store.unstored() == [response]
        hold.go.set()
        await dropped(app.engine)
        assert app.engine.failures == []
        tree = await app.engine.world.store.tree(response.conversation)
        assert [m.erased for m in tree] == [True, True]
        assert (await app.engine.world.store.conversation(response.conversation)).deleted
    assert not await asyncio.to_thread(in_files, path)
