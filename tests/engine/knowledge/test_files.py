"""Asking about files through the library: what is found goes along, with where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.core.blocks import Message
from antiphon.core.ids import LOCAL_TENANT
from antiphon.core.knowledge.kept import RememberedKind
from antiphon.engine.keeping.explain import exact_request
from antiphon.engine.settings import Settings
from antiphon.errors import InvalidInput, NotFound, StoreError
from antiphon.library import Antiphon
from tests.support.engines import app_on, talk
from tests.support.provider import ScriptedProvider, says

FEES = "# Fees\n\nA berth costs nine crowns a night.\n\n# Water\n\nFresh water is free of charge."
PRICES = "第一章 价格\n\n企业版每席每月九十九元，支持单点登录。\n\n第二章 退款\n\n退款须在付款后七天内申请。"  # noqa: RUF001


def content(provider: ScriptedProvider, request: int = -1, message: int = -1) -> str:
    return str(provider.messages(request)[message]["content"])


@pytest.mark.req("M115", "M123")
@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
async def test_a_question_is_answered_from_a_file_in_either_language(
    tmp_path: Path, encoding: str
) -> None:
    provider = ScriptedProvider(says("Nine."), says("七天。"))
    path = tmp_path / "价格.md"
    path.write_bytes(PRICES.encode(encoding))
    async with app_on(tmp_path / "a.db", provider) as app:
        chat = await app.create()
        english = await chat.attach(FEES.encode(), name="../../fees.md")
        chinese = await chat.attach(path)
        assert (english.name, english.passages) == ("fees.md", 2)
        assert (chinese.name, chinese.encoding) == ("价格.md", encoding)
        assert await chat.files() == [english, chinese]

        await talk(chat, "What does a berth cost for a night?")
        assert (
            '<rag source="fees.md#1">\nFees\n\nA berth costs nine crowns a night.\n</rag>'
            in content(provider)
        )
        assert "Fresh water" not in content(provider)
        await talk(chat, "怎么申请退款?")
        assert (
            '<rag source="价格.md#2">\n第二章 退款\n\n退款须在付款后七天内申请。\n</rag>'
            in content(provider)
        )
        assert "单点登录" not in content(provider)
        question = (await chat.line())[0]
        beside = await chat.beside(question.id)
        (search,) = beside.searched
        assert (search.source, search.status, search.used) == ("files", "hit", 1)
        assert search.best_score is not None
        assert search.candidates >= 1


@pytest.mark.req("M116", "M117", "M122")
async def test_what_is_in_no_file_is_told_to_be_there_not(tmp_path: Path) -> None:
    provider = ScriptedProvider(says("Not there."), says("Not there."))
    async with app_on(tmp_path / "a.db", provider) as app:
        chat = await app.create()
        await chat.attach(FEES.encode(), name="fees.md")
        for question, status in (
            ("明朝有几位皇帝?", "empty"),
            (
                "Write a long poem about the autumn leaves of a night in Mongolia please",
                "low_score",
            ),
        ):
            await talk(chat, question)
            assert 'notice="no_match"' in content(provider)
            assert "nine crowns" not in content(provider)
            asked: Message = (await chat.line())[-2]
            assert [s.status for s in (await chat.beside(asked.id)).searched] == [status]


@pytest.mark.req("M119", "M121")
async def test_where_the_index_fails_the_files_go_along_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = ScriptedProvider(says("Nine."))
    settings = Settings(max_reference_chars=400)
    async with app_on(tmp_path / "a.db", provider, settings=settings) as app:
        chat = await app.create()
        await chat.attach(FEES.encode(), name="fees.md")
        await chat.attach(("x" * 900).encode(), name="long.txt")

        async def broken(*_: object) -> None:
            raise StoreError("The disk is gone.", code="disk_error")

        monkeypatch.setattr(app.engine.world.store.knowledge, "index", broken)
        await talk(chat, "What does a berth cost?")
        assert 'notice="retrieval_failed"' in content(provider)
        assert "disk_error" in content(provider)
        assert f'<rag source="fees.md">\n{FEES}\n</rag>' in content(provider)
        assert "more characters did not fit]" in content(provider)


@pytest.mark.parametrize(
    ("data", "code"), [(b"", "empty_file"), (b"a\0b", "not_text"), (b"x" * 999, "file_too_large")]
)
async def test_what_cannot_be_read_is_refused_and_nothing_is_kept(
    tmp_path: Path, data: bytes, code: str
) -> None:
    settings = Settings(max_file_bytes=500)
    async with app_on(tmp_path / "a.db", ScriptedProvider(), settings=settings) as app:
        chat = await app.create()
        with pytest.raises(InvalidInput) as caught:
            await chat.attach(data, name="../a.bin")
        assert (caught.value.code, caught.value.at) == (code, "a.bin")
        assert await chat.files() == []
        with pytest.raises(InvalidInput) as caught:
            await chat.attach(tmp_path / "none.md")
        assert caught.value.code == "unreadable"


async def test_a_file_that_was_taken_away_is_asked_no_more_and_stays_where_it_was_found(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider(says("Nine."), says("Who knows."))
    async with app_on(tmp_path / "a.db", provider) as app:
        chat = await app.create()
        file = await chat.attach(FEES.encode(), name="fees.md")
        await talk(chat, "What does a berth cost?")
        await chat.detach(file.id)
        await app.engine.world.store.knowledge.delete_file(LOCAL_TENANT, file.id)
        await talk(chat, "What does a berth cost?")
        assert "nine crowns" in content(provider, 1, 0)
        assert content(provider, 1, 2) == "What does a berth cost?"
        run = (await chat.runs())[-1]
        assert (await exact_request(app.engine.world, run.id)).body == provider.bodies[-1]


async def context(app: Antiphon, provider: ScriptedProvider, words: str) -> str:
    chat = await app.create()
    await talk(chat, words)
    return content(provider, message=0)


@pytest.mark.req("M108", "M112")
async def test_what_is_remembered_stands_before_the_talk_from_the_next_message_on(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider(*(says("Yes.") for _ in range(5)))
    async with app_on(tmp_path / "a.db", provider) as app:
        chat = await app.create()
        await app.remember("language", "English")
        await talk(chat, "One?")
        assert '<memory key="language">\nEnglish\n</memory>' in content(provider, message=0)
        await chat.remember("language", "中文")
        await chat.remember("plot", "A lighthouse.", kind=RememberedKind.STABLE)
        await talk(chat, "Two?")
        assert content(provider, message=2) == "Two?"
        assert (
            '<stable key="plot">\nA lighthouse.\n</stable>\n<memory key="language">\n中文\n</memory>'
            in content(provider, message=0)
        )
        assert "English" in await context(app, provider, "Elsewhere?")
        await chat.forget("language")
        await chat.forget("plot", kind=RememberedKind.STABLE)
        with pytest.raises(NotFound):
            await chat.forget("language")
        await app.forget("language")
        await talk(chat, "Three?")
        assert content(provider, message=0) == "One?"
        for run, sent in zip(
            await chat.runs(), [*provider.bodies[:2], provider.bodies[3]], strict=True
        ):
            assert (await exact_request(app.engine.world, run.id)).body == sent


@pytest.mark.parametrize(
    ("key", "text", "code"),
    [
        ("", "t", "bad_key"),
        ("a/b", "t", "bad_key"),
        ("a\nb", "t", "bad_key"),
        ("k", " ", "empty_content"),
        ("k", "x" * 20_001, "text_too_long"),
        ("k", "a\0b", "bad_content"),
        ("k", "\ud800", "invalid_unicode"),
    ],
)
async def test_what_cannot_be_kept_is_refused(
    tmp_path: Path, key: str, text: str, code: str
) -> None:
    async with app_on(tmp_path / "a.db", ScriptedProvider()) as app:
        with pytest.raises(InvalidInput) as caught:
            await app.remember(key, text)
        assert caught.value.code == code
        assert await app.remembered() == []
