"""One conversation over several providers: real HTTP, answers as they really come, every body judged.

Each dialect takes its turn in the middle of a talk that others began and go on with: text, an
image, calls and their results, thinking. A dialect that is new in the registry is in it by itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from antiphon.adapters import registry
from antiphon.core.asking import Ask
from antiphon.core.blocks import Block, Image, Message, Reasoning, Role, Text, ToolCall
from antiphon.engine.catalogue.models import Model, Models
from antiphon.engine.settings import Settings
from antiphon.engine.tools.function import Function
from antiphon.handles.chat import Chat
from antiphon.library import open as open_app
from tests.adapters import chat_judge, messages_judge
from tests.support.lines import PNG
from tests.support.published_types import problems
from tests.support.transcripts import response, transcript
from tests.support.upstream import CLOSE, READ, WAIT_S, RawUpstream, Step

THINKS = ("*_then_tool", "02_*")
CALLS = ("02_*",)
SAYS = ("01_*",)

WEATHER = Function(
    name="get_weather",
    run=lambda city: f"{city}: rain",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


@dataclass(frozen=True)
class Said:
    """One model call as the provider received it, and what our record says of it."""

    profile: str
    path: str
    body: bytes
    mappings: tuple[tuple[str, str], ...]


class Talk:
    """A conversation, and the upstream that plays every provider."""

    def __init__(self, chat: Chat, upstream: RawUpstream) -> None:
        self.chat = chat
        self.said: list[Said] = []
        self._upstream = upstream

    async def turn(self, profile: str, content: str | Sequence[Block] = "And now?") -> Message:
        run = await self.chat.send(content, ask=Ask(model=profile))
        answer = await run.result()
        for operation in (await run.explain()).operations:
            request = self._upstream.requests[len(self.said)]
            mappings = tuple((m.rule, m.block) for m in operation.mappings)
            path = request.head.split(b" ", 2)[1].decode()
            self.said.append(Said(profile, path, request.body, mappings))
        return answer


@asynccontextmanager
async def talking(folder: Path, *played: tuple[str, tuple[str, ...]]) -> AsyncIterator[Talk]:
    """Open a conversation whose upstream answers with these transcripts, one a call."""
    scripts: list[list[Step]] = [
        [READ, response(transcript(profile, *cases)), CLOSE] for profile, cases in played
    ]
    async with RawUpstream(*scripts) as upstream:
        address = f"http://127.0.0.1:{upstream.port}/v1"
        models = Models(
            named=MappingProxyType(
                {
                    name: Model(name=name, profile=name, model=f"{name}-model", base_url=address)
                    for name in registry.available()
                }
            )
        )
        settings = Settings(db=str(folder / "talk.db"), models=models, retries=0)
        async with asyncio.timeout(WAIT_S), open_app(settings=settings, functions=[WEATHER]) as app:
            yield Talk(await app.create(), upstream)


def opaque(messages: Sequence[Message]) -> Iterator[tuple[str, str]]:
    """Yield every word of opaque state on a line, with the profile that it belongs to."""
    for message in messages:
        for block in message.blocks:
            if isinstance(block, Reasoning | ToolCall) and block.opaque is not None:
                for word in _words(msgspec.json.decode(block.opaque.value)):
                    yield block.opaque.profile, word


def foreign(messages: Sequence[Message], profile: str) -> set[str]:
    """Return the words of opaque state that are not `profile`'s to see."""
    found = list(opaque(messages))
    return {word for _, word in found} - {word for whose, word in found if whose == profile}


def _words(value: Any) -> Iterator[str]:
    match value:
        case str() if len(value) > 12:
            yield value
        case dict():
            for inner in value.values():
                yield from _words(inner)
        case list():
            for inner in value:
                yield from _words(inner)
        case _:
            pass


def judged(said: Said) -> list[str]:
    """Return what the published types, and the rules that people reported, say of a body."""
    found = problems(said.profile, said.body)
    if said.profile == "openai-chat":
        found += chat_judge.problems(said.body)
    elif said.profile == "anthropic":
        found += messages_judge.problems(said.body)
    return found


@pytest.mark.req("M2", "M31", "M42")
@pytest.mark.parametrize("guest", registry.available())
async def test_a_talk_goes_on_with_any_provider_and_back(tmp_path: Path, guest: str) -> None:
    host, thinker = "openai-chat", "anthropic"
    played = (
        (host, CALLS), (host, SAYS),
        (guest, THINKS), (guest, SAYS),
        (host, SAYS),
        (thinker, THINKS), (thinker, SAYS),
        (guest, CALLS), (guest, SAYS),
    )  # fmt: skip
    async with talking(tmp_path, *played) as talk:
        picture = Image(media_type="image/png", data=PNG)
        await talk.turn(host, [Text(text="What is the weather there?"), picture])
        for profile in (guest, host, thinker, guest):
            await talk.turn(profile)
        line = await talk.chat.line()
        assert [m.role for m in line].count(Role.TOOL) == 4
        assert len({call.call_id for m in line for call in m.calls}) == 4
        assert [s.profile for s in talk.said] == [profile for profile, _ in played]
        for said in talk.said:
            assert judged(said) == [], said.profile
            for word in foreign(line, said.profile):
                assert word.encode() not in said.body
        thoughts = [m for m in line if any(isinstance(b, Reasoning) for b in m.blocks)]
        dropped = {block for rule, block in talk.said[4].mappings if rule == "reasoning_dropped"}
        assert {block.rpartition(".")[0] for block in dropped} == {
            m.id for m in thoughts if line.index(m) < 8 and guest != host
        }


async def test_thinking_goes_back_in_its_loop_and_stays_there(tmp_path: Path) -> None:
    claude = "anthropic"
    async with talking(tmp_path, (claude, THINKS), (claude, SAYS), (claude, SAYS)) as talk:
        await talk.turn(claude, "What is the weather there?")
        await talk.turn(claude)
        asked, looped, later = (json.loads(said.body)["messages"] for said in talk.said)
        kinds = [block["type"] for block in looped[1]["content"]]
        assert kinds == ["redacted_thinking", "thinking", "tool_use"]
        assert looped[1]["content"][1]["signature"] == "EqMDCkYIsigFULL=="
        assert later[: len(looped)] == looped
        assert asked == looped[:1]
        assert all(said.mappings == () and judged(said) == [] for said in talk.said)


async def test_thinking_falls_with_a_deletion_above_it_and_only_then(tmp_path: Path) -> None:
    claude = "anthropic"
    played = ((claude, SAYS), (claude, THINKS), (claude, SAYS), (claude, SAYS), (claude, THINKS))
    async with talking(tmp_path, *played, (claude, SAYS), (claude, SAYS)) as talk:
        first = await talk.turn(claude, "Hello")
        await talk.turn(claude, "What is the weather there?")
        thought = (await talk.chat.line())[3]
        await talk.turn(claude)
        assert b"EqMDCkYIsigFULL==" in talk.said[-1].body
        await talk.chat.delete([first.id])
        await talk.turn(claude)  # thinks anew, behind what is left
        assert talk.said[-1].body.count(b"EqMDCkYIsigFULL==") == 1
        fallen = {f"{thought.id}.0", f"{thought.id}.1"}
        assert {b for rule, b in talk.said[-1].mappings if rule == "reasoning_dropped"} == fallen
        before = talk.said[-1].body
        await talk.turn(claude)
        assert talk.said[-1].body.startswith(before[: before.rindex(b"]}")])
        assert all(judged(said) == [] for said in talk.said)
