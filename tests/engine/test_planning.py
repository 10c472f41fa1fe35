"""Dispatches are planned: they fit, they say why they are as they are, and they can be made again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from antiphon.core.asking import Ask
from antiphon.core.planning.trace import BlockKind, PromptTrace, Reason
from antiphon.core.records import RunStatus
from antiphon.engine.catalogue.models import REHEARSAL_MODEL, Models
from antiphon.engine.settings import Settings
from antiphon.errors import Refused
from antiphon.handles.chat import Chat
from antiphon.handles.run import RunHandle
from tests.support.engines import app_on, talk
from tests.support.provider import DONE, ScriptedProvider, Step, chunk, usage

LONG = "words and more words, " * 30


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "antiphon.db"


def holding(window: int | None, *, compact_at: int = 0, **model: Any) -> Settings:
    """Settings with one model that holds so many tokens; older talk stays unless it is said."""
    small = replace(REHEARSAL_MODEL, name="small", context_window=window, **model)
    named = MappingProxyType({"small": small, "rehearsal": REHEARSAL_MODEL})
    models = Models(named=named, default="small")
    return Settings(retry_base_s=0.0, models=models, compact_at_percent=compact_at)


def answers(count: int) -> list[list[Step]]:
    """Answers of providers that report no usage, so that nothing is learned."""
    return [
        [chunk({"content": f"answer {n}. {LONG}"}), chunk({}, "stop"), DONE] for n in range(count)
    ]


async def say(chat: Chat, text: str, **ask: Any) -> PromptTrace:
    """Say `text` and return the plan of what was sent for it."""
    run = await chat.send(text, ask=Ask(**ask))
    await run.result()
    return (await run.plan()).trace


async def test_every_dispatch_has_a_plan_that_adds_up(db: Path) -> None:
    provider = ScriptedProvider(*answers(2))
    async with app_on(db, provider, settings=holding(4_000, max_output_tokens=500)) as app:
        chat = await app.create()
        first = await say(chat, "Hello", instructions="Be brief, and kind.")
        second = await say(chat, "Again", instructions="Be brief, and kind.")
        assert [b.kind for b in second.blocks] == [BlockKind.SYSTEM_POLICY, BlockKind.TRANSCRIPT]
        assert second.total_tokens == sum(b.tokens for b in second.blocks) > first.total_tokens
        assert (first.messages, second.messages) == (1, 3)
        assert (second.window, second.output_tokens, second.counted_by) == (4_000, 500, "estimate")
        assert second.left_out == ()


async def ended(run: RunHandle) -> RunStatus:
    async for _ in run.events():
        pass
    return (await run.row()).status


@pytest.mark.req("M107", "M114")
async def test_older_turns_are_left_out_only_where_the_caller_lets_them(db: Path) -> None:
    provider = ScriptedProvider(*answers(12))
    async with app_on(db, provider, settings=holding(1_600)) as app:
        free, strict = await app.create(), await app.create()
        traces = [await say(free, f"{n} {LONG}", truncation="auto") for n in range(6)]
        assert all(t.total_tokens <= 1_600 for t in traces)
        cut = next(t for t in traces if t.left_out)
        assert cut.left_out[0].reason is Reason.TRUNCATION
        sent = [m["content"] for m in provider.messages()]
        assert str(sent[0]).split()[0].isdigit()  # it begins with a turn
        assert str(sent[-1]).startswith("5 ")
        assert len(await free.line()) == 12  # nothing is gone from the talk itself
        before, n = len(provider.requests), 0
        while True:
            run = await strict.send(f"{n} {LONG}", ask=Ask(truncation="disabled"))
            if (await ended(run)) is RunStatus.ERROR:
                break
            n += 1
        with pytest.raises(Refused, match="over_window") as refused:
            await run.result()
        assert refused.value.exit_code == 3
        assert len(provider.requests) == before + n  # nothing was sent for the last
        assert (await run.explain()).operations == ()


async def test_one_message_larger_than_the_window_is_refused_whatever_may_be_left_out(
    db: Path,
) -> None:
    async with app_on(db, ScriptedProvider(), settings=holding(500)) as app:
        chat = await app.create()
        with pytest.raises(Refused) as refused:
            await say(chat, LONG * 20, truncation="auto")
        assert refused.value.code == "over_window"


async def test_what_was_cut_stays_cut_so_that_the_prefix_stays(db: Path) -> None:
    provider = ScriptedProvider(*answers(9))
    async with app_on(db, provider, settings=holding(2_600)) as app:
        chat = await app.create()
        traces = [await say(chat, f"{n} {LONG}", truncation="auto") for n in range(9)]
    moved = [t.prefix is not None and Reason.TRUNCATION in t.prefix.moved_by for t in traces]
    starts = [t.selection.start for t in traces]
    assert moved == [a != b for a, b in zip([None, *starts], starts, strict=False)]
    assert any(not a and b is not None for a, b in zip(moved, starts, strict=True))


async def test_a_process_that_starts_plans_as_the_one_before_it_would_have(tmp_path: Path) -> None:
    """The warm line and the cold one come to the same request, trace and all."""
    texts = [f"{n} {LONG}" for n in range(9)]
    kept = tmp_path / "kept.db"
    settings = holding(1_600)
    warm_provider = ScriptedProvider(*answers(9))
    async with app_on(kept, warm_provider, settings=settings) as app:
        chat = await app.create()
        warm = [await say(chat, text, truncation="auto") for text in texts]
    cold_provider, name = ScriptedProvider(*answers(9)), None
    cold = []
    for text in texts:
        async with app_on(tmp_path / "new.db", cold_provider, settings=settings) as app:
            chat = await app.create() if name is None else await app.conversation(name)
            name = chat.id
            cold.append(await say(chat, text, truncation="auto"))
    bare = [[json.loads(b)["messages"] for b in p.bodies] for p in (warm_provider, cold_provider)]
    assert bare[0] == bare[1]
    for one, other in zip(warm, cold, strict=True):
        assert (one.total_tokens, one.blocks, one.prefix) == (
            other.total_tokens,
            other.blocks,
            other.prefix,
        )


@pytest.mark.req("M52")
async def test_a_request_of_which_much_was_left_out_renders_to_its_digest_again(db: Path) -> None:
    provider = ScriptedProvider(*answers(6))
    async with app_on(db, provider, settings=holding(1_600)) as app:
        chat = await app.create()
        runs = []
        for n in range(6):
            runs.append(await chat.send(f"{n} {LONG}", ask=Ask(truncation="auto")))
            await runs[-1].result()
        for number, run in enumerate(runs):
            assert await run.request() == provider.bodies[number]


async def test_the_prefix_that_is_reported_is_that_of_the_real_bytes(db: Path) -> None:
    provider = ScriptedProvider(*answers(4))
    async with app_on(db, provider, settings=holding(100_000)) as app:
        chat = await app.create()
        traces = [
            await say(chat, "one", instructions="A."),
            await say(chat, "two", instructions="A."),
        ]
        run = await chat.send("three", ask=Ask(instructions="B."))
        await run.result()
        traces.append((await run.plan()).trace)
        traces.append(await say(chat, "four", instructions="B.", temperature=0.5))
        bodies = provider.bodies
        for number, trace in enumerate(traces[1:], start=1):
            real = 0
            while real < len(bodies[number - 1]) and bodies[number][real : real + 1] == bodies[number - 1][real : real + 1]:  # fmt: skip
                real += 1
            assert trace.prefix is not None
            assert trace.prefix.matched_bytes == real
            assert trace.prefix.last_bytes == len(bodies[number - 1])
        reasons = [t.prefix.moved_by if t.prefix else None for t in traces]
        assert reasons == [None, (), (Reason.INSTRUCTIONS,), (Reason.OPTIONS,)]


async def test_an_answer_gets_what_is_free_and_the_plan_says_what_was_asked(db: Path) -> None:
    provider = ScriptedProvider(*answers(3))
    async with app_on(db, provider, settings=holding(2_000)) as app:
        chat = await app.create()
        traces = [await say(chat, LONG * 2, max_output_tokens=1_500) for _ in range(3)]
    assert traces[0].output_reduced_from is None
    for trace, body in zip(traces[1:], provider.bodies[1:], strict=True):
        assert trace.output_reduced_from == 1_500
        assert trace.output_tokens is not None
        assert trace.total_tokens + trace.output_tokens + trace.margin_tokens <= 2_000
        sent = json.loads(body)
        assert trace.output_tokens in (sent.get("max_tokens"), sent.get("max_completion_tokens"))


async def test_an_unknown_window_bounds_nothing(db: Path) -> None:
    async with app_on(db, ScriptedProvider(*answers(1)), settings=holding(None)) as app:
        trace = await say(await app.create(), LONG * 500)
    assert trace.window is None
    assert trace.total_tokens > 50_000


async def test_estimates_learn_from_what_the_provider_reports(db: Path) -> None:
    def reporting(given: int) -> list[Step]:
        return [chunk({"content": "Fine."}), chunk({}, "stop"), usage(given, 2), DONE]

    provider = ScriptedProvider(reporting(1_600), reporting(1_700))
    async with app_on(db, provider, settings=holding(50_000)) as app:
        chat = await app.create()
        first = await say(chat, LONG * 8)
        second = await say(chat, "And?")
        assert first.factor_permille == 1150
        unscaled = first.total_tokens * 1000 // 1150
        assert second.factor_permille == pytest.approx(1_600_000 / unscaled * 1.05, abs=3)


async def test_deleted_and_failed_messages_are_counted_among_what_stayed_out(db: Path) -> None:
    provider = ScriptedProvider(*answers(3))
    async with app_on(db, provider, settings=holding(50_000)) as app:
        chat = await app.create()
        await talk(chat, "one")
        await talk(chat, "two")
        await chat.delete([(await chat.line())[0].id])
        trace = await say(chat, "three")
        assert [(gone.reason, gone.count) for gone in trace.left_out] == [(Reason.DELETION, 1)]
        assert trace.prefix is not None
        assert trace.prefix.moved_by == (Reason.DELETION,)
