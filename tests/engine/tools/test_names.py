"""Tools whose names the provider does not take: the model asks by another, and never the wiser we."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon import Function
from antiphon.core.blocks import ToolCall
from antiphon.handles.chat import Chat
from tests.support.engines import app_on
from tests.support.provider import ScriptedProvider, Step, asks, says

READ = "files.read"
TAKEN = "files_read_2"


class Offered(ScriptedProvider):
    """A provider that asks for tools by the names that it was offered them by."""

    def __init__(self, *scripts: list[Step] | tuple[str, ...]) -> None:
        super().__init__()
        self._scripts = list(scripts)

    async def send(self, request: Any, **options: Any) -> Any:
        script = self._scripts.pop(0)
        if isinstance(script, tuple):
            offered = {t["function"]["description"]: t["function"]["name"] for t in json.loads(request.body)["tools"]}  # fmt: skip
            calls = [(f"c{len(self.requests)}{n}", offered[what], '{"path":"a"}') for n, what in enumerate(script)]  # fmt: skip
            script = asks(*calls)
        self.scripts.append(script)
        return await super().send(request, **options)


def functions(ran: list[str]) -> list[Function]:
    def named(name: str) -> Function:
        def run(path: str) -> str:
            ran.append(name)
            return f"{name} of {path}"

        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        return Function(name=name, description=name, run=run, parameters=schema, repeatable=True)

    return [named(READ), named(TAKEN), named("x" * 80)]


async def called(chat: Chat) -> list[str]:
    return [b.name for m in await chat.line() for b in m.blocks if isinstance(b, ToolCall)]


@pytest.mark.req("M31", "M42")
async def test_a_tool_of_a_name_that_is_not_taken_runs_and_is_kept_under_its_own(
    tmp_path: Path,
) -> None:
    ran: list[str] = []
    provider = Offered((READ, "x" * 80), says("Read."), (READ, TAKEN), says("Again."))
    async with app_on(tmp_path / "a.db", provider, functions=functions(ran)) as app:
        chat = await app.create()
        run = await chat.send("Read it.")
        assert (await run.result()).text == "Read."
        assert (await (await chat.send("Once more.")).result()).text == "Again."
        expected = [READ, "x" * 80, READ, TAKEN]
        assert sorted(ran) == sorted(expected)
        assert await called(chat) == expected
        first, second, _, last = provider.bodies
        assert last.startswith(second.removesuffix(b"]}"))
        sent = json.loads(last)["messages"]
        results = {m["tool_call_id"]: m["content"] for m in sent if m["role"] == "tool"}
        assert results["c20"] == f"{READ} of a"
        declared = [t["function"]["name"] for t in json.loads(first)["tools"]]
        asked = [c["function"]["name"] for m in sent for c in m.get("tool_calls", ())]
        assert asked == [declared[0], declared[2], declared[0], TAKEN]
        (_, looked) = (await run.explain()).operations
        told = {m.detail for m in looked.mappings if m.rule == "tool_name_respelled"}
        assert told == {f"{READ} as {declared[0]}", f"{'x' * 80} as {declared[2]}"}
