"""What was cut is asked after by its handle: one generation, sent once, and the same answer.

The engine over real HTTP and a real store, against a provider that keeps what it works on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from antiphon.core.commands import BindHandle, Command
from antiphon.core.dispatch import State
from antiphon.core.records import RunStatus
from antiphon.core.recovery import Resend
from antiphon.engine.catalogue.models import Model, Models
from antiphon.engine.settings import Settings
from antiphon.engine.tools import Function
from antiphon.errors import AntiphonError, OutcomeUnknown, ProviderFailed, RunCanceled
from antiphon.handles.run import RunHandle
from antiphon.library import Antiphon
from antiphon.library import open as open_app
from tests.support import interactions_stream as steps
from tests.support import responses_stream as items
from tests.support.keeping_provider import Api, Interactions, KeepingProvider, Responses, Serve
from tests.support.upstream import WAIT_S

TEXT = "It rains 🧭."


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """The same talk as one dialect has it: its answers event by event, and as they are kept."""

    profile: str
    base: str
    api: Api
    answer: list[dict[str, Any]]
    asks: list[dict[str, Any]]
    fails: list[dict[str, Any]]
    running: dict[str, Any]
    whole: dict[str, Any]
    failed: dict[str, Any]
    code: str


OOPS = {"code": "server_error", "message": "Oh."}
FAULT = {"code": "UNAVAILABLE", "message": "Oh."}
RESPONSES = Talk(
    profile="openai-responses",
    base="/v1",
    api=Responses(),
    answer=[items.created(), *items.thinking(0, "hm"), *items.said(1, "It ", "rains ", "🧭."), items.ended("completed")],
    asks=[items.created(), *items.said(0, "I look."), *items.call(1, "c1", "get_weather", '{"city":', '"Oslo"}'), items.ended("completed")],
    fails=[items.created(), *items.said(0, "It "), items.ended("failed", error=OOPS)],
    running=items.response("in_progress"),
    whole=items.response("completed", items.message(TEXT)),
    failed=items.response("failed", error=OOPS),
    code="server_error",
)  # fmt: skip
INTERACTIONS = Talk(
    profile="gemini-interactions",
    base="/v1beta",
    api=Interactions(),
    answer=[steps.created(), *steps.thinking(0, "hm"), *steps.said(1, "It ", "rains ", "🧭."), steps.ended("completed")],
    asks=[steps.created(), *steps.said(0, "I look."), *steps.call(1, "c1", "get_weather", '{"city":', '"Oslo"}'), steps.ended("requires_action")],
    fails=[steps.created(), *steps.said(0, "It "), steps.ended("failed", errors=[FAULT])],
    running=steps.interaction("in_progress", steps.output("It ")),
    whole=steps.interaction("completed", steps.output(TEXT)),
    failed=steps.interaction("failed", errors=[FAULT]),
    code="UNAVAILABLE",
)  # fmt: skip
TALKS = (RESPONSES, INTERACTIONS)
CUTS = [
    pytest.param(talk, at, id=f"{talk.profile}-{at}")
    for talk in TALKS
    for at in range(1, len(talk.answer))
]


@pytest.fixture(params=TALKS, ids=lambda talk: talk.profile)
def talk(request: pytest.FixtureRequest) -> Talk:
    """What is true of every dialect whose provider keeps an answer."""
    assert isinstance(request.param, Talk)
    return request.param


class Weather:
    """A tool that remembers when it ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def __call__(self, city: str) -> str:
        self.ran.append(city)
        return f"{city}: rain"

    @property
    def function(self) -> Function:
        parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
        return Function(name="get_weather", run=self, parameters=parameters)


@asynccontextmanager
async def talking(
    folder: Path,
    talk: Talk,
    provider: KeepingProvider,
    functions: Iterable[Function] = (),
    *,
    background: bool = True,
    **options: Any,
) -> AsyncIterator[Antiphon]:
    model = Model(
        name="thinker",
        profile=talk.profile,
        model="gpt-6-astra",
        base_url=f"http://127.0.0.1:{provider.port}{talk.base}",
        facts=MappingProxyType({"background": background}),
    )
    flags: dict[str, Any] = {"retry_base_s": 0.0, "cancel_grace_s": 0.0, **options}
    models = Models(named=MappingProxyType({"thinker": model}))
    settings = Settings(db=str(folder / "antiphon.db"), models=models, **flags)
    async with asyncio.timeout(WAIT_S), open_app(settings=settings, functions=functions) as app:
        yield app


async def attempts(run: RunHandle) -> list[tuple[int, State, str | None]]:
    """Return generation, state and handle of every attempt, in order."""
    told = await run.explain()
    return [(a.generation, a.state, a.handle) for step in told.operations for a in step.attempts]


async def failure(run: RunHandle) -> AntiphonError:
    with pytest.raises(AntiphonError) as caught:
        await run.result()
    return caught.value


@pytest.mark.req("M65", "M66", "M75")
@pytest.mark.parametrize(("talk", "cut_at"), CUTS)
async def test_a_stream_that_breaks_anywhere_goes_on_behind_what_was_read(
    tmp_path: Path, talk: Talk, cut_at: int
) -> None:
    async with KeepingProvider(
        talk.api, [talk.answer], [Serve(events=cut_at, hold=True)]
    ) as provider:
        async with talking(tmp_path, talk, provider) as app:
            run = await _cut_when_bound(app, provider)
            assert (await run.result()).text == TEXT
            assert await attempts(run) == [(1, State.COMMITTED, talk.api.handle)]
            kinds = [type(event).__name__ async for event in run.events()]
            assert "Withdrawn" not in kinds  # what was shown stands
        (body,) = provider.received.created
        assert (body["background"], body["store"], body["stream"]) == (True, True, True)
        assert provider.received.resumed == [cut_at - 1]
        assert (provider.received.retrieved, provider.received.canceled) == (0, 0)


async def test_it_may_break_again_and_again(tmp_path: Path, talk: Talk) -> None:
    breaks = [
        Serve(events=2, hold=True),
        Serve(events=0),
        Serve(events=3),
        Serve(status=503),
        Serve(events=1),
    ]
    async with KeepingProvider(talk.api, [talk.answer], breaks) as provider:
        async with talking(tmp_path, talk, provider) as app:
            run = await _cut_when_bound(app, provider)
            assert (await run.result()).text == TEXT
            assert await attempts(run) == [(1, State.COMMITTED, talk.api.handle)]
        assert len(provider.received.created) == 1
        # What had come when a connection broke may be lost with it: then it is asked for again.
        positions = [position or 0 for position in provider.received.resumed]
        assert (positions[0], len(positions)) == (1, 5)
        assert positions == sorted(positions)


@pytest.mark.req("M65", "M66")
@pytest.mark.parametrize("broken_at", [1, 3, 7])
async def test_an_answer_that_begins_anew_instead_is_shown_once(
    tmp_path: Path, broken_at: int, talk: Talk
) -> None:
    breaks = [Serve(events=broken_at, hold=True), Serve(anew=True)]
    async with KeepingProvider(talk.api, [talk.answer], breaks) as provider:
        async with talking(tmp_path, talk, provider) as app:
            run = await _cut_when_bound(app, provider)
            assert (await run.result()).text == TEXT
            assert await attempts(run) == [(1, State.COMMITTED, talk.api.handle)]
            kinds = [type(event).__name__ async for event in run.events()]
            assert "Withdrawn" not in kinds
        assert provider.received.resumed == [broken_at - 1]


@pytest.mark.req("M65", "M77", "M88")
async def test_a_process_that_dies_in_mid_stream_leaves_an_answer_that_the_next_one_reads(
    tmp_path: Path, talk: Talk
) -> None:
    weather = Weather()
    script = [Serve(events=4, hold=True)]
    async with KeepingProvider(talk.api, [talk.asks, talk.answer], script) as provider:
        async with talking(tmp_path, talk, provider, [weather.function]) as app:
            chat = await app.create()
            run = await chat.send("Weather?")
            await asyncio.wait_for(provider.held.wait(), WAIT_S)
            await _seen(run)
            _bury(app)
        assert weather.ran == []
        async with talking(tmp_path, talk, provider, [weather.function]) as app:
            chat = await app.conversation(chat.id)
            again = await chat.run(run.id)
            assert (await again.result()).text == TEXT
            assert await attempts(again) == [
                (1, State.COMMITTED, talk.api.handle),
                (2, State.COMMITTED, talk.api.handle),
            ]
            assert [m.text for m in await chat.line() if m.role.value == "assistant"] == [
                "I look.",
                TEXT,
            ]
        assert weather.ran == ["Oslo"]
        assert provider.received.resumed == [None]
        assert len(provider.received.created) == 2  # the two steps of the run, each once


async def _cut_when_bound(app: Antiphon, provider: KeepingProvider) -> RunHandle:
    """Start a run, and break its connection once what came over it was read."""
    store, bound = app.engine.world.store, asyncio.Event()
    submit = store.submit

    def watched(command: Command[Any]) -> Any:
        if isinstance(command, BindHandle):
            bound.set()
        return submit(command)

    store.submit = watched  # type: ignore[method-assign]
    run = await (await app.create()).send("Weather?")
    await asyncio.wait_for(bound.wait(), WAIT_S)
    provider.let_go.set()
    return run


async def _seen(run: RunHandle) -> None:
    """Wait until the beginning of the answer was shown: its handle was recorded before."""
    async for event in run.events():
        if type(event).__name__ == "Preview":
            return


def _bury(app: Antiphon) -> None:
    """Let nothing that this process still does reach the store, as if it had been killed."""
    store = app.engine.world.store

    async def dead(*_: object) -> object:
        await asyncio.Event().wait()
        raise AssertionError

    def buried(*_: object) -> asyncio.Future[object]:
        return asyncio.get_running_loop().create_future()

    store.do = dead  # type: ignore[method-assign,assignment]
    store.do_all = dead  # type: ignore[method-assign,assignment]
    store.submit = buried  # type: ignore[method-assign,assignment]


async def test_an_engine_that_is_closed_in_mid_stream_leaves_it_too(
    tmp_path: Path, talk: Talk
) -> None:
    async with KeepingProvider(talk.api, [talk.answer], [Serve(events=4, hold=True)]) as provider:
        async with talking(tmp_path, talk, provider) as app:
            chat = await app.create()
            run = await chat.send("Weather?")
            await _seen(run)
        async with talking(tmp_path, talk, provider) as app:
            chat = await app.conversation(chat.id)
            again = await chat.run(run.id)
            assert (await again.result()).text == TEXT
            assert await attempts(again) == [(1, State.COMMITTED, talk.api.handle)]
        assert len(provider.received.created) == 1


# What the provider says instead.


@pytest.mark.req("M66")
async def test_what_is_not_streamed_again_is_found_whole(tmp_path: Path, talk: Talk) -> None:
    async with KeepingProvider(
        talk.api, [talk.answer], [Serve(events=5, hold=True), *[Serve(status=400)] * 2]
    ) as provider:
        provider.states = [talk.running, talk.whole]
        async with talking(tmp_path, talk, provider) as app:
            run = await _cut_when_bound(app, provider)
            assert (await run.result()).text == TEXT
            assert await attempts(run) == [(1, State.COMMITTED, talk.api.handle)]
        assert (provider.received.retrieved, len(provider.received.created)) == (2, 1)


@pytest.mark.parametrize("how", ["streamed", "retrieved"])
async def test_a_response_that_has_failed_meanwhile_is_known_to_have_ended(
    tmp_path: Path, talk: Talk, how: str
) -> None:
    script = [Serve(events=2, hold=True), *([Serve(status=400)] if how == "retrieved" else [])]
    async with KeepingProvider(talk.api, [talk.fails], script) as provider:
        provider.states = [talk.failed]
        async with talking(tmp_path, talk, provider, resend_after_unknown=Resend.NEVER) as app:
            run = await _cut_when_bound(app, provider)
            problem = await failure(run)
            assert (type(problem), problem.code) == (ProviderFailed, talk.code)
            assert await attempts(run) == [(1, State.CLOSED, talk.api.handle)]
        assert len(provider.received.created) == 1


async def test_after_a_proven_end_the_process_that_saw_the_cut_may_ask_once_more(
    tmp_path: Path, talk: Talk
) -> None:
    async with KeepingProvider(
        talk.api, [talk.fails, talk.answer], [Serve(events=2, hold=True)]
    ) as provider:
        async with talking(tmp_path, talk, provider) as app:
            run = await _cut_when_bound(app, provider)
            assert (await run.result()).text == TEXT
            assert [(g, s) for g, s, _ in await attempts(run)] == [
                (1, State.FAILED),
                (2, State.COMMITTED),
            ]
        first, second = provider.received.created
        assert first == second


async def test_an_answer_that_is_not_kept_any_more_is_lost(tmp_path: Path, talk: Talk) -> None:
    async with KeepingProvider(
        talk.api, [talk.answer], [Serve(events=3, hold=True), Serve(status=404)]
    ) as provider:
        async with talking(tmp_path, talk, provider, resend_after_unknown=Resend.NEVER) as app:
            run = await _cut_when_bound(app, provider)
            assert isinstance(await failure(run), OutcomeUnknown)
            assert [s for _, s, _ in await attempts(run)] == [State.CLOSED]
        assert provider.received.resumed == [2]


async def test_what_nobody_answers_for_is_settled_by_its_deadline(
    tmp_path: Path, talk: Talk
) -> None:
    script = [Serve(events=3, hold=True)]
    async with KeepingProvider(talk.api, [talk.answer], script, then=Serve(status=503)) as provider:
        async with talking(
            tmp_path, talk, provider, deadline_s=0.5, resend_after_unknown=Resend.NEVER
        ) as app:
            run = await _cut_when_bound(app, provider)
            assert isinstance(await failure(run), OutcomeUnknown)
            assert [s for _, s, _ in await attempts(run)] == [State.CLOSED]
        assert len(provider.received.created) == 1
        assert len(provider.received.resumed) > 2


# Who does not ask.


async def test_a_response_in_the_foreground_is_never_asked_after(
    tmp_path: Path, talk: Talk
) -> None:
    async with KeepingProvider(talk.api, [talk.answer], [Serve(events=3)]) as provider:
        async with talking(
            tmp_path, talk, provider, background=False, resend_after_unknown=Resend.NEVER
        ) as app:
            run = await (await app.create()).send("Weather?")
            assert isinstance(await failure(run), OutcomeUnknown)
            assert [(s, h) for _, s, h in await attempts(run)] == [(State.CLOSED, None)]
        (body,) = provider.received.created
        assert (body.get("background"), body["store"]) == (None, False)
        assert provider.received.resumed == []


@pytest.mark.req("M66")
@pytest.mark.parametrize("script", [[Serve(events=3, hold=True)], [Serve(events=3, hold=True), Serve(events=1, hold=True)]], ids=["sent", "resumed"])  # fmt: skip
async def test_a_cancel_stops_the_provider_too(
    tmp_path: Path, talk: Talk, script: list[Serve]
) -> None:
    async with KeepingProvider(talk.api, [talk.answer], script) as provider:
        async with talking(tmp_path, talk, provider) as app:
            run = await (await app.create()).send("Weather?")
            for _ in script:
                await asyncio.wait_for(provider.held.wait(), WAIT_S)
                provider.held.clear()
                await _seen(run)
                if len(provider.received.resumed) + 1 < len(script):
                    provider.let_go.set()
            assert (await run.cancel()).status is RunStatus.CANCELED
            await asyncio.wait_for(provider.told_to_stop.wait(), WAIT_S)
            assert isinstance(await failure(run), RunCanceled)
            assert [s for _, s, _ in await attempts(run)] == [State.CANCELED]
        assert (provider.received.canceled, len(provider.received.created)) == (1, 1)
