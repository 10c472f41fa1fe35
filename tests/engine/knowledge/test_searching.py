"""A search for a message: made once, stored with it, and beside it in every later request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from antiphon.core.commands import Command, PlaceRun
from antiphon.core.knowledge.retrieval import Found, Passage, Question, RetrievalStatus, read_beside
from antiphon.engine.keeping.explain import exact_request
from antiphon.engine.keeping.forking import fork
from antiphon.errors import AntiphonError
from antiphon.handles.chat import Chat
from antiphon.library import Antiphon
from tests.engine.test_entering import added
from tests.support.clock import SimulatedClock, settle
from tests.support.engines import app_on, talk
from tests.support.provider import Hold, ScriptedProvider, says


class Handbook:
    """Finds what a test says, and remembers what it was asked."""

    def __init__(
        self, *answers: Sequence[Passage] | Found | Exception, name: str = "handbook"
    ) -> None:
        self.name = name
        self.asked: list[str] = []
        self._answers = list(answers)

    async def retrieve(self, question: Question) -> Found | Sequence[Passage]:
        self.asked.append(question.text)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Stuck:
    name = "stuck"

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.given_up = False

    async def retrieve(self, question: Question) -> Sequence[Passage]:
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up = True
        raise AssertionError


TIDES = [Passage(source="tides.md#1", text="High water is at six.", score=2.0)]
SHOALS = [Passage(source="shoals.md#3", text="The shoal is marked red.", score=1.0)]


def content(provider: ScriptedProvider, request: int, message: int) -> str:
    return str(provider.messages(request)[message]["content"])


async def statuses(app: Antiphon, chat: Chat) -> list[tuple[str, RetrievalStatus, str]]:
    """What is stored of the searches, in the order of the messages."""
    store, found = app.engine.world.store, []
    row = await chat.row()
    for message in await chat.tree():
        if message.beside is not None:
            value = read_beside(await store.content(row.tenant, message.beside))
            found += [(s.source, s.status, s.reason) for s in value.searched]
    return found


@pytest.mark.req("M32", "M112", "M115", "M123")
async def test_what_was_found_for_a_message_stays_beside_it_and_nowhere_else(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider(says("At six."), says("Red."))
    handbook = Handbook(TIDES, SHOALS)
    async with app_on(tmp_path / "a.db", provider, retrievers=[handbook]) as app:
        chat = await app.create()
        await talk(chat, "When is high water?")
        await talk(chat, "And the shoal?")
        assert handbook.asked == ["When is high water?", "And the shoal?"]
        first, again = content(provider, 0, 0), content(provider, 1, 0)
        assert first == again
        assert '<rag source="tides.md#1">\nHigh water is at six.\n</rag>' in first
        assert "<user_input>\nWhen is high water?\n</user_input>" in first
        assert "shoals.md#3" in content(provider, 1, 2)
        # People see, and an export holds, the user's own words.
        assert [m.text for m in await chat.line()] == [
            "When is high water?", "At six.", "And the shoal?", "Red.",
        ]  # fmt: skip
        assert await statuses(app, chat) == [("handbook", "hit", ""), ("handbook", "hit", "")]


@pytest.mark.req("M32")
async def test_the_bytes_sent_before_are_the_beginning_of_what_is_sent_next(tmp_path: Path) -> None:
    provider = ScriptedProvider(*(says("Yes.") for _ in range(3)))
    async with app_on(tmp_path / "a.db", provider, retrievers=[Handbook(TIDES, SHOALS, [])]) as app:
        chat = await app.create()
        for words in ("One?", "Two?", "Three?"):
            await talk(chat, words)
    one, two, three = provider.bodies
    assert two.startswith(one.removesuffix(b"]}"))
    assert three.startswith(two.removesuffix(b"]}"))


async def test_another_process_sends_the_same_and_looks_nothing_up_again(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("At six."), says("Red."))
    async with app_on(tmp_path / "a.db", provider, retrievers=[Handbook(TIDES)]) as app:
        chat = await app.create()
        await talk(chat, "When is high water?")
        ident = chat.id
    async with app_on(tmp_path / "a.db", provider, retrievers=[Handbook([])]) as app:
        chat = await app.conversation(ident)
        await talk(chat, "And the shoal?")
        for run, sent in zip(await chat.runs(), provider.bodies, strict=True):
            assert (await exact_request(app.engine.world, run.id)).body == sent
    assert content(provider, 1, 0) == content(provider, 0, 0)
    assert 'notice="no_match"' in content(provider, 1, 2)


@pytest.mark.req("M119", "M121")
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (AntiphonError("https://key@host said no", code="http_500"), "http_500"),
        (ValueError("password=secret"), "ValueError"),
    ],
)
async def test_a_search_that_fails_is_told_by_a_word_and_without_its_text(
    tmp_path: Path, error: Exception, reason: str
) -> None:
    provider = ScriptedProvider(says("The search failed."))
    async with app_on(tmp_path / "a.db", provider, retrievers=[Handbook(error)]) as app:
        chat = await app.create()
        assert await talk(chat, "When is high water?") == "The search failed."
        assert await statuses(app, chat) == [("handbook", "failed", reason)]
    sent = content(provider, 0, 0)
    assert (
        f'<rag source="handbook" notice="retrieval_failed">\nThis could not be searched ({reason})'
        in sent
    )
    assert "key@host" not in sent
    assert "secret" not in sent


@pytest.mark.req("M118", "M121")
async def test_a_search_that_takes_too_long_is_given_up_and_the_others_count(
    tmp_path: Path,
) -> None:
    provider, clock, stuck = ScriptedProvider(says("At six.")), SimulatedClock(), Stuck()
    async with app_on(
        tmp_path / "a.db", provider, clock=clock, retrievers=[stuck, Handbook(TIDES)]
    ) as app:
        chat = await app.create()
        run = await chat.send("When is high water?")
        await asyncio.wait_for(stuck.asked.wait(), 10)
        await settle()
        assert not provider.requests
        await clock.advance(5)
        assert (await run.result()).text == "At six."
        assert stuck.given_up
        assert await statuses(app, chat) == [
            ("stuck", "timeout", "timeout_5s"),
            ("handbook", "hit", ""),
        ]
    assert "High water is at six." in content(provider, 0, 0)


async def test_an_answer_anew_is_asked_with_what_was_found_the_first_time(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("At six."), says("At six o'clock."))
    handbook = Handbook(TIDES)
    async with app_on(tmp_path / "a.db", provider, retrievers=[handbook]) as app:
        chat = await app.create()
        answer = await (await chat.send("When is high water?")).result()
        await (await chat.regenerate(answer.id)).result()
    assert handbook.asked == ["When is high water?"]
    assert provider.bodies[0] == provider.bodies[1]


async def test_a_run_that_is_canceled_while_it_is_looked_up_is_never_sent(tmp_path: Path) -> None:
    provider, clock, stuck = ScriptedProvider(says("After.")), SimulatedClock(), Stuck()
    async with app_on(tmp_path / "a.db", provider, clock=clock, retrievers=[stuck]) as app:
        chat = await app.create()
        run = await chat.send("When is high water?")
        await asyncio.wait_for(stuck.asked.wait(), 10)
        await run.cancel()
        await clock.advance(5)
        await app.engine.idle(chat.id)
        assert not provider.requests
        assert (await app.engine.world.store.run(chat.id, run.id)).status == "canceled"


async def test_an_input_that_has_to_be_placed_again_is_not_looked_up_again(tmp_path: Path) -> None:
    provider, handbook = ScriptedProvider(says("At six.")), Handbook(TIDES)
    async with app_on(tmp_path / "a.db", provider, retrievers=[handbook]) as app:
        chat = await app.create()
        store, moves = app.engine.world.store, [await added(chat, "I am Ann.")]
        do_all = store.do_all

        async def after_a_move(*commands: Command[Any]) -> Any:
            if moves and any(isinstance(command, PlaceRun) for command in commands):
                await store.do(moves.pop())
            return await do_all(*commands)

        store.do_all = after_a_move  # type: ignore[method-assign]
        await (await chat.send("When is high water?")).result()
        assert len(await chat.tree()) == 3
    assert handbook.asked == ["When is high water?"]
    assert "High water is at six." in content(provider, 0, 1)


async def test_without_retrievers_a_message_goes_out_as_it_was_written(tmp_path: Path) -> None:
    provider = ScriptedProvider([Hold(), *says("Yes.")][1:])
    async with app_on(tmp_path / "a.db", provider) as app:
        await talk(await app.create(), "<ctx> & such")
    assert content(provider, 0, 0) == "<ctx> & such"


async def test_a_fork_keeps_what_stood_beside_though_the_first_conversation_is_erased(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider(says("At six."), says("Red."))
    async with app_on(tmp_path / "a.db", provider, retrievers=[Handbook(TIDES, [])]) as app:
        chat = await app.create()
        await talk(chat, "When is high water?")
        made = await fork(app.engine, await chat.row())
        await app.engine.erasure.erase([chat.id])
        await talk(await app.conversation(made.id), "And the shoal?")
    assert content(provider, 1, 0) == content(provider, 0, 0)
