"""Months of talk, in short: what `make soak` does with 5,000 messages, on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from antiphon.core.planning.trace import Prefix, PromptTrace, Reason
from tests.engine.long_talk import STRETCH, Took, grown, judged, prefix_problems
from tests.engine.long_talk import Talk as Judged
from tests.support.postgres import shared_server


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.needs("postgres"))])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Path | str]:
    if request.param == "sqlite":
        yield tmp_path / "a.db"
        return
    server = await asyncio.to_thread(shared_server)
    address = await asyncio.to_thread(server.database)
    yield address
    await asyncio.to_thread(server.give_back, address)


@pytest.mark.req("M46", "M159", "M162")
async def test_through_checkpoints_and_sessions_a_turn_goes_on_taking_what_it_took(
    place: Path | str,
) -> None:
    wrong, talks = await judged(place, messages=4 * 2 * STRETCH)
    assert wrong == []
    assert all(len(talk.stretches) == 4 for talk in talks)


def talk_of(*reads: int) -> Judged:
    talk = Judged("red", None, switches=False)  # type: ignore[arg-type]  # only what it took is asked
    talk.stretches = [Took(read=read) for read in reads]
    return talk


def test_the_judge_sees_what_grows_and_a_prefix_that_the_bytes_do_not_have() -> None:
    assert list(grown(talk_of(9, 100, 100, 114))) == []
    assert list(grown(talk_of(9, 100, 100, 120))) == ["red: read grew from 100 to 120"]
    was, now = b"[" + b"a" * 40 + b"]", b"[" + b"a" * 40 + b",b]"

    def told(matched: int, *moved: Reason, compaction: str | None = None) -> list[str]:
        prefix = Prefix(last_bytes=len(was), matched_bytes=matched, moved_by=moved)
        trace = PromptTrace(
            total_tokens=1,
            counted_by="e",
            blocks=(),
            messages=1,
            prefix=prefix,
            compaction=compaction,
        )
        return list(prefix_problems(trace, was, now, begins=False))

    assert told(41) == []
    assert told(40) == ["told 40 of 42 bytes, sent 41 of 42"]
    assert told(41, Reason.DELETION) != []
    assert told(41, compaction="made") != []
