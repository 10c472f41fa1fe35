"""The business schema of an answer: a verdict beside the commit, and one more try where asked."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from antiphon.core.answers.judging import Verdict
from antiphon.core.asking import Ask
from antiphon.core.blocks import Origin, Role
from antiphon.core.events import Committed, decode_event
from antiphon.core.records import RunStatus
from antiphon.engine.settings import Settings
from antiphon.errors import InvalidInput
from antiphon.handles.run import RunHandle
from antiphon.library import Antiphon
from tests.support.engines import app_on
from tests.support.provider import ScriptedProvider, says

SCHEMA = msgspec.Raw(
    b'{"type":"object","required":["city"],"properties":{"city":{"type":"string"}}}'
)
FITS, WRONG = '{"city": "Oslo"}', '{"city": 7}'


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "antiphon.db"


async def verdicts(app: Antiphon, run: RunHandle) -> list[Verdict | None]:
    told = await app.engine.world.store.events(run.conversation, 0)
    events = [decode_event(stored.data) for stored in told]
    return [event.verdict for event in events if isinstance(event, Committed)]


@pytest.mark.req("M104")
@pytest.mark.parametrize(
    ("said", "verdict", "end_code"),
    [
        (FITS, Verdict(fits=True), None),
        (WRONG, Verdict(fits=False, at="city", rule="type"), "schema_mismatch"),
        ("{}", Verdict(fits=False, rule="required"), "schema_mismatch"),
        ("Oslo", Verdict(fits=False, rule="json"), "schema_mismatch"),
    ],
)
async def test_an_answer_is_committed_whatever_the_schema_says_of_it(
    db: Path, said: str, verdict: Verdict, end_code: str | None
) -> None:
    async with app_on(db, ScriptedProvider(says(said))) as app:
        chat = await app.create(ask=Ask(answer_schema=SCHEMA))
        run = await chat.send("Where?")
        assert (await run.result()).text == said
        assert await verdicts(app, run) == [verdict]
        row = await run.row()
        assert (row.status, row.end_code) == (RunStatus.SUCCESS, end_code)


@pytest.mark.req("M104")
async def test_a_model_is_told_once_why_its_answer_does_not_do(db: Path) -> None:
    provider = ScriptedProvider(says(WRONG), says(FITS))
    async with app_on(db, provider) as app:
        chat = await app.create(ask=Ask(answer_schema=SCHEMA, retry_answer=True))
        run = await chat.send("Where?")
        assert (await run.result()).text == FITS
        assert [v and v.fits for v in await verdicts(app, run)] == [False, True]
        assert (await run.row()).end_code == "answer_retried"
        question, wrong, told, right = await chat.line()
        assert (told.role, told.origin) == (Role.USER, Origin.SYSTEM)
        assert "city: 7 is not of type" in told.text
        assert [m.parent for m in (wrong, told, right)] == [question.id, wrong.id, told.id]
        assert [m["role"] for m in provider.messages()] == ["user", "assistant", "user"]


async def test_a_second_answer_that_does_not_fit_is_the_answer_all_the_same(db: Path) -> None:
    provider = ScriptedProvider(says(WRONG), says("no"))
    async with app_on(db, provider) as app:
        chat = await app.create(ask=Ask(answer_schema=SCHEMA, retry_answer=True))
        run = await chat.send("Where?")
        assert (await run.result()).text == "no"
        row = await run.row()
        assert (row.status, row.end_code) == (RunStatus.SUCCESS, "schema_mismatch")
        assert len(provider.requests) == 2


async def test_nothing_is_asked_again_where_no_model_call_is_left(db: Path) -> None:
    provider = ScriptedProvider(says(WRONG))
    own = Settings(retry_base_s=0.0, max_model_calls=1)
    async with app_on(db, provider, settings=own) as app:
        chat = await app.create(ask=Ask(answer_schema=SCHEMA, retry_answer=True))
        run = await chat.send("Where?")
        assert (await run.result()).text == WRONG
        assert (await run.row()).status is RunStatus.SUCCESS


async def test_what_is_no_schema_is_refused_before_anything_is_sent(db: Path) -> None:
    async with app_on(db, ScriptedProvider()) as app:
        chat = await app.create()
        for wrong in (b'{"type":"strong"}', b"[]"):
            with pytest.raises(InvalidInput) as caught:
                await chat.send("Where?", ask=Ask(answer_schema=msgspec.Raw(wrong)))
            assert caught.value.code == "schema_unsupported"
