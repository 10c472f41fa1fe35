"""One model call: what is recorded before it is sent, and what each outcome comes to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from antiphon.core.blocks import Audio, Refusal
from antiphon.core.dispatch import State
from antiphon.core.events import Preview
from antiphon.core.records import RunStatus
from antiphon.core.recovery import Resend
from antiphon.engine.ports import Cut, NotSent
from antiphon.engine.settings import Settings
from antiphon.errors import OutcomeUnknown, ProviderFailed, Refused, RunCanceled
from antiphon.handles.events import Committed, Ended, Unknown, Withdrawn
from tests.support.engines import app_on, talk
from tests.support.provider import DONE, Hold, ScriptedProvider, Status, Step, chunk, says

QUICK = Settings(retry_base_s=0.0, cancel_grace_s=0.0)
NO_RESEND = Settings(retry_base_s=0.0, resend_after_unknown=Resend.NEVER)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "antiphon.db"


@pytest.mark.req("M50", "M51", "M52", "M53", "M54", "M56")
async def test_the_record_stands_before_the_first_byte_leaves(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider([hold, *says("Hi.")])
    async with app_on(db, provider) as app:
        chat = await app.create()
        run = await chat.send("Hello")
        await hold.reached.wait()
        told = await run.explain()
        (operation,) = told.operations
        assert operation.attempts[0].state in (State.DISPATCHING, State.SENT)
        assert operation.attempts[0].generation == 1
        assert await run.request() == provider.bodies[0]
        hold.go.set()
        assert (await run.result()).text == "Hi."
        (operation,) = (await run.explain()).operations
        assert operation.attempts[0].state is State.COMMITTED


@pytest.mark.req("M71", "M78")
async def test_text_is_preview_until_it_is_committed(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider([chunk({"content": "Once "}), hold, *says("upon a tide.")])
    async with app_on(db, provider) as app:
        chat = await app.create()
        run = await chat.send("A tale")
        kinds: list[type] = []
        text = ""
        async for event in run.events():
            if isinstance(event, Preview):
                text += event.text
                assert hold.go.is_set() or await chat.line() == []
                hold.go.set()
            kinds.append(type(event))
        assert text == "Once upon a tide."
        assert kinds[-2:] == [Committed, Ended]
        assert [m.text for m in await chat.line()] == ["A tale", "Once upon a tide."]


@pytest.mark.req("M76", "M77", "M73")
@pytest.mark.parametrize("ending", [[], [DONE], [Cut("reset", "gone")]])
async def test_a_broken_answer_is_withdrawn_and_asked_for_once_more(
    db: Path, ending: list[Step]
) -> None:
    provider = ScriptedProvider([chunk({"content": "PARTIAL"}), *ending], says("Whole."))
    async with app_on(db, provider) as app:
        chat = await app.create()
        run = await chat.send("Hello")
        events = [event async for event in run.events()]
        assert provider.bodies[0] == provider.bodies[1]
        told = [type(e) for e in events if not isinstance(e, Preview)]
        # An end marker without a finish is a provider that has said its last word.
        unknown = [] if ending == [DONE] else [Unknown]
        assert told == [Withdrawn, *unknown, Committed, Ended]
        assert [e.generation for e in events if isinstance(e, Withdrawn)] == [1]
        provider.scripts.append(says("Yes."))
        await talk(chat, "Still there?")
        assert b"PARTIAL" not in provider.bodies[-1]
        (operation, *_) = (await run.explain()).operations
        assert [a.state for a in operation.attempts] == [State.FAILED, State.COMMITTED]
        assert [a.generation for a in operation.attempts] == [1, 2]
        assert (operation.attempts[0].proof is not None) is bool(unknown)


@pytest.mark.req("M60", "M65", "M138")
@pytest.mark.parametrize(
    "script",
    [
        [Cut("reset", "gone")],
        [Status(502), b"bad gateway"],
        [Status(500), b'{"error":{"message":"oops"}}'],
        [Status(200, {"content-type": "text/html"}), b"<html>busy</html>"],
        [chunk({"content": "half"})],
    ],
)
async def test_what_may_have_been_done_is_unknown_and_never_sent_again_by_itself(
    db: Path, script: list[Step]
) -> None:
    provider = ScriptedProvider(script)
    async with app_on(db, provider, settings=NO_RESEND) as app:
        chat = await app.create()
        run = await chat.send("Hello")
        with pytest.raises(OutcomeUnknown):
            await run.result()
        (unknown,) = [e async for e in run.events() if isinstance(e, Unknown)]
        (attempt,) = (await run.explain()).operations[0].attempts
        assert unknown.code == attempt.error_code
        assert unknown.code
        assert len(provider.requests) == 1
        assert [m.status for m in await chat.tree()] == ["error"]
        assert (await chat.row()).active_operation is None


@pytest.mark.req("M138")
@pytest.mark.parametrize(
    ("script", "code"),
    [
        ([Status(401), b'{"error":{"code":"invalid_api_key","message":"no"}}'], "invalid_api_key"),
        (
            [Status(400), b'{"error":{"code":"context_length_exceeded","message":"long"}}'],
            "context_length_exceeded",
        ),
        (
            [Status(429), b'{"error":{"code":"insufficient_quota","message":"pay"}}'],
            "insufficient_quota",
        ),
        ([Status(401), b'{"error":{"code":"inv', Cut("reset", "gone")], "authentication_error"),
        (says("No", finish="content_filter"), "content_filter"),
        (
            [chunk({"content": "Yes"}), b'data: {"error":{"type":"server_error"}}\n\n'],
            "server_error",
        ),
    ],
)
async def test_a_definite_no_ends_the_run_with_the_providers_own_code(
    db: Path, script: list[Step], code: str
) -> None:
    provider = ScriptedProvider(script)
    async with app_on(db, provider, settings=Settings(retries=0)) as app:
        chat = await app.create()
        run = await chat.send("Hello")
        with pytest.raises(ProviderFailed) as caught:
            await run.result()
        assert caught.value.code == code
        assert (await run.row()).status is RunStatus.ERROR
        assert await chat.line() == []


@pytest.mark.parametrize(
    "first",
    [
        [NotSent("connect", "refused")],
        [Status(429), b'{"error":{"message":"slow down"}}'],
        [Status(503), b""],
    ],
)
async def test_what_was_certainly_not_done_is_tried_again_with_the_same_bytes(
    db: Path, first: list[Step]
) -> None:
    provider = ScriptedProvider(first, says("Now."))
    async with app_on(db, provider, settings=QUICK) as app:
        chat = await app.create()
        run = await chat.send("Hello")
        assert (await run.result()).text == "Now."
        (operation,) = (await run.explain()).operations
        assert [a.state for a in operation.attempts] == [State.FAILED, State.COMMITTED]
        assert len(set(provider.bodies)) == 1


async def test_tries_are_limited_and_the_last_code_is_told(db: Path) -> None:
    provider = ScriptedProvider(*([[NotSent("dns", "no such host")]] * 3))
    async with app_on(db, provider, settings=QUICK) as app:
        chat = await app.create()
        with pytest.raises(ProviderFailed) as caught:
            await talk(chat, "Hello")
        assert caught.value.code == "dns"
        assert provider.scripts == []


@pytest.mark.req("M88", "M35")
async def test_an_illegal_line_is_refused_before_anything_is_recorded_as_sent(db: Path) -> None:
    provider = ScriptedProvider()
    async with app_on(db, provider) as app:
        chat = await app.create()
        run = await chat.send([Audio(data="AAAA", format="ogg-unheard-of"), Refusal(text="no")])
        with pytest.raises(Refused, match="was not sent") as caught:
            await run.result()
        assert (caught.value.code, caught.value.exit_code) == ("malformed_item", 3)
        assert (await run.explain()).operations == ()
        assert provider.requests == []


@pytest.mark.req("M67", "M137")
async def test_a_cancel_wins_over_an_answer_that_is_whole_already(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider([chunk({"content": "First"}), hold, *says(" and last.")])
    async with app_on(db, provider, settings=Settings(cancel_grace_s=60.0)) as app:
        chat = await app.create()
        run = await chat.send("Long job")
        async for event in run.events():
            if isinstance(event, Preview):
                await run.cancel("user")
                hold.go.set()
        with pytest.raises(RunCanceled) as caught:
            await run.result()
        assert caught.value.code == "user"
        tree = await chat.tree()
        assert [(m.role, m.status, m.text) for m in tree] == [
            ("user", "success", "Long job"),
            ("assistant", "canceled", "First"),
        ]
        provider.scripts.append(says("Fine."))
        await talk(chat, "Next")
        assert [m["content"] for m in provider.messages()] == ["Long job", "Next"]
        store = app.engine.world.store
        async with asyncio.timeout(20):  # the canceled exchange ends beside the next run
            while not (late := await store.quarantine(chat.id)):
                pass
        assert [entry.data for entry in late] == ["First and last."]


async def test_a_canceled_run_holds_up_nobody(db: Path) -> None:
    hold = Hold()
    provider = ScriptedProvider([chunk({"content": "Never"}), hold], says("Second."))
    async with app_on(db, provider, settings=Settings(cancel_grace_s=3600.0)) as app:
        chat = await app.create()
        first = await chat.send("One")
        second = await chat.send("Two")
        await hold.reached.wait()
        await first.cancel()
        assert (await second.result()).text == "Second."


async def test_silence_ends_in_unknown_after_the_idle_timeout(db: Path) -> None:
    from tests.support.clock import SimulatedClock

    clock = SimulatedClock()
    hold = Hold()
    provider = ScriptedProvider([chunk({"content": "Hm"}), hold])
    async with app_on(db, provider, clock=clock, settings=NO_RESEND) as app:
        chat = await app.create()
        run = await chat.send("Hello")
        await hold.reached.wait()
        await clock.advance(301)
        with pytest.raises(OutcomeUnknown):
            await run.result()
        (operation,) = (await run.explain()).operations
        assert operation.attempts[0].error_code == "idle_timeout"
        assert provider.closed == 1


@pytest.mark.parametrize(
    ("end", "patience_s"), [((DONE,), 2), ((), 301)], ids=["end-was-told", "finish-was-told"]
)
async def test_an_answer_that_was_finished_is_kept_though_its_connection_stays_open(
    db: Path, end: tuple[bytes, ...], patience_s: int
) -> None:
    from tests.support.clock import SimulatedClock

    clock = SimulatedClock()
    hold = Hold()
    provider = ScriptedProvider([chunk({"content": "Argo."}), chunk({}, "stop"), *end, hold])
    async with app_on(db, provider, clock=clock, settings=NO_RESEND) as app:
        chat = await app.create()
        run = await chat.send("Name a ship.")
        await hold.reached.wait()
        await clock.advance(patience_s)
        assert (await run.result()).text == "Argo."
        assert (provider.closed, len(provider.requests)) == (1, 1)


async def test_the_providers_key_is_in_no_record(db: Path) -> None:
    from antiphon.engine.catalogue.models import Model, Models, Secret

    model = Model(
        name="m", profile="openai-chat", model="m", base_url="http://x.invalid/v1",
        api_key=Secret("sk-very-secret"),
    )  # fmt: skip
    models = Models(named={"m": model}, default="m")
    provider = ScriptedProvider(says("Hi."))
    async with app_on(db, provider, settings=Settings(models=models)) as app:
        chat = await app.create()
        await talk(chat, "Hello")
    assert provider.keys == ["sk-very-secret"]
    for file in db.parent.iterdir():
        assert b"sk-very-secret" not in file.read_bytes()
