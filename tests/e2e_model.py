"""A conversation with a real small model, with a tool turn: `make e2e-model`.

SmolLM2-135M answers behind llama.cpp's own server, on this machine. A model of this size calls
a tool once it has seen how it is done, so two worked examples are imported first, by the command
line, as a user would. What is asserted is shape, ids and order; never a time, and never more of
the model's wording than which tool it asked for.

Standard output is the transcript; the README quotes it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import antiphon
from antiphon.core.blocks import Role, Status, ToolCall
from antiphon.core.records import CallState, RunStatus
from antiphon.engine.catalogue.models import LOCAL_HOST, Model, Models
from antiphon.engine.edge.local_model import INSTALL, NAME, installed
from antiphon.handles.chat import Chat
from antiphon.library import Antiphon

WEATHER = {"London": "rain, 9 C", "Berlin": "sun, 14 C", "Paris": "wind, 11 C"}
SAID = {"London": "It is raining in London, 9 C.", "Berlin": "It is sunny in Berlin, 14 C."}
CONVERSATION = "conv_weather"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WAIT_S = 600

asked: list[str] = []


def get_weather(city: str) -> str:
    asked.append(city)
    return WEATHER.get(city, "unknown")


TOOL = antiphon.Function(
    name="get_weather",
    run=get_weather,
    description="Get the current weather for a city",
    parameters=PARAMETERS,
    read_only=True,
)


def worked_examples() -> Iterator[dict[str, Any]]:
    """Yield the lines of an archive: two turns in which the tool was called as it should be."""
    yield {"kind": "export", "version": 1}
    yield {"kind": "conversation", "id": CONVERSATION, "title": "Weather", "head": "berlin-4"}
    parent = None
    for city, answer in SAID.items():
        turn: list[tuple[str, dict[str, Any]]] = [
            ("user", {"kind": "text", "text": f"What is the weather in {city}?"}),
            (
                "assistant",
                {"kind": "tool_call", "call_id": f"call_{city}", "name": "get_weather"}
                | {"arguments": json.dumps({"city": city})},
            ),
            (
                "tool",
                {"kind": "tool_result", "call_id": f"call_{city}"}
                | {"content": [{"kind": "text", "text": WEATHER[city]}]},
            ),
            ("assistant", {"kind": "text", "text": answer}),
        ]
        for number, (role, block) in enumerate(turn, 1):
            id_ = f"{city.lower()}-{number}"
            yield {
                "kind": "message",
                "id": id_,
                "parent_id": parent,
                "role": role,
                "blocks": [block],
            }
            parent = id_


def import_examples(folder: Path, db: Path) -> None:
    archive = folder / "examples.jsonl"
    archive.write_text(
        "".join(json.dumps(line) + "\n" for line in worked_examples()), encoding="utf-8"
    )
    command = [
        str(Path(sys.executable).with_name("antiphon")),
        "import",
        "--db",
        str(db),
        str(archive),
    ]
    subprocess.run(command, check=True, timeout=WAIT_S, stdout=subprocess.DEVNULL)


def ask(**options: Any) -> antiphon.Ask:
    return antiphon.Ask(model="local", temperature=0.0, **options)


def heading(text: str) -> None:
    print(f"\n-- {text}\n")


async def follow(run: antiphon.RunHandle) -> list[Any]:
    """Print what happens in a run as it happens; return its events."""
    seen: list[Any] = []
    async for event in run.events():
        match event:
            case antiphon.Preview(text=text):
                if not seen or not isinstance(seen[-1], antiphon.Preview):
                    print("  model> ", end="")
                print(text, end="", flush=True)
            case antiphon.Committed(message=message, finish=finish):
                for call in message.calls:
                    print(f"  model> {call.name}({call.arguments})", end="")
                cut = ", cut by the token limit" if finish == "length" else ""
                print(f"\n         committed{cut}")
            case antiphon.CallFinished(call=call):
                print(f"  tool>  {call.name}: {call.state}")
            case antiphon.Withdrawn(reason=reason):
                print(f"\n         withdrawn: {reason}")
            case antiphon.Ended(status=status, code=code):
                print(f"  run {status}{f' ({code})' if code and code != status else ''}")
            case _:
                print(f"  {event}")
        seen.append(event)
    return seen


def kinds(events: list[Any]) -> list[str]:
    """Return the names of the events, with a stretch of previews as one."""
    names = [type(event).__name__ for event in events]
    return [
        name
        for at, name in enumerate(names)
        if name != "Preview" or names[at - 1 : at] != ["Preview"]
    ]


def shown(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, antiphon.Preview))


async def tool_turn(chat: Chat) -> None:
    heading("a turn with a tool")
    print("  you>   What is the weather in Paris?")
    run = await chat.send("What is the weather in Paris?")
    events = await follow(run)

    assert kinds(events) == ["Committed", "CallFinished", "Preview", "Committed", "Ended"], kinds(
        events
    )
    asking, answered = [event.message for event in events if isinstance(event, antiphon.Committed)]
    (call,) = asking.calls
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})
    assert asked == ["Paris"], "the function ran once"
    (finished,) = [event.call for event in events if isinstance(event, antiphon.CallFinished)]
    assert (finished.call_id, finished.state) == (call.call_id, CallState.SUCCESS)
    assert events[-1].status is RunStatus.SUCCESS
    assert shown(events) == answered.text != ""

    line = await chat.line()
    assert [message.parent for message in line] == [None, *(message.id for message in line[:-1])]
    assert [message.role for message in line[-4:]] == [
        Role.USER,
        Role.ASSISTANT,
        Role.TOOL,
        Role.ASSISTANT,
    ]
    assert [message.id for message in line[-3::2]] == [asking.id, answered.id]
    calls = [
        block.call_id for message in line for block in message.blocks if isinstance(block, ToolCall)
    ]
    results = [result.call_id for message in line for result in message.results]
    assert calls == results
    assert len(set(calls)) == 3

    attempts = [attempt for step in (await run.explain()).operations for attempt in step.attempts]
    assert [attempt.state.value for attempt in attempts] == ["COMMITTED", "COMMITTED"]
    assert [attempt.generation for attempt in attempts] == [1, 2]

    sent = json.loads(await run.request())
    assert [message["role"] for message in sent["messages"]] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ] * 2 + [
        "user",
        "assistant",
        "tool",
    ]
    assert sent["messages"][-1]["content"] == WEATHER["Paris"]
    print(
        f"  sent   {len(sent['messages'])} messages in the last request, byte for byte as recorded"
    )


async def cut_turn(app: Antiphon) -> None:
    heading("an answer that the token limit cuts")
    chat = await app.create(ask=ask(max_output_tokens=8))
    print("  you>   Tell me about the sea.")
    events = await follow(await chat.send("Tell me about the sea."))
    (committed,) = [event for event in events if isinstance(event, antiphon.Committed)]
    assert committed.finish == "length"
    assert shown(events) == committed.message.text
    assert events[-1].status is RunStatus.SUCCESS


async def canceled_turn(app: Antiphon) -> None:
    heading("an answer that you stop")
    chat = await app.create(ask=ask(max_output_tokens=400))
    print("  you>   Tell me a long story about a ship.")
    run = await chat.send("Tell me a long story about a ship.")
    following = asyncio.create_task(follow(run))
    async for event in run.events():
        if isinstance(event, antiphon.Preview):
            break
    await run.cancel()
    events = await following
    assert events[-1].status is RunStatus.CANCELED
    assert not any(isinstance(event, antiphon.Committed) for event in events)

    again = await chat.send("Say hello.", ask=ask(max_output_tokens=16))
    print("  you>   Say hello.")
    events = await follow(again)
    assert events[-1].status is RunStatus.SUCCESS
    sent = json.loads(await again.request())
    assert [message["role"] for message in sent["messages"]] == ["user", "user"], (
        "no half answer was sent"
    )
    (kept,) = [message for message in await chat.tree() if message.status is Status.CANCELED]
    assert kept.role is Role.ASSISTANT
    assert kept.id not in {message.id for message in await chat.line()}


async def other_wires(folder: Path) -> None:
    """Ask for the weather over the other forms that the same server speaks."""
    for profile, path in (("openai-responses", "/v1"), ("anthropic", "")):
        heading(f"the same question over {profile}")
        asked.clear()
        db = folder / f"{profile}.db"
        await asyncio.to_thread(import_examples, folder, db)
        model = Model(
            name="local",
            profile=profile,
            model=NAME,
            base_url=f"http://{LOCAL_HOST}{path}",
        )
        models = Models(named=MappingProxyType({"local": model}))
        settings = antiphon.Settings(db=str(db), models=models)
        async with antiphon.open(settings=settings, functions=[TOOL]) as app:
            chat = await app.conversation(CONVERSATION, ask=ask(max_output_tokens=60))
            events = await follow(await chat.send("What is the weather in Paris?"))
            assert kinds(events) == ["Committed", "CallFinished", "Preview", "Committed", "Ended"]
            assert asked == ["Paris"]
            cut = await app.create(ask=ask(max_output_tokens=8))
            run = await cut.send("Tell me about the sea.")
            await follow(run)
            assert (await run.row()).end_code == "length", "cut, however the server calls it"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "chat.db"
        await asyncio.to_thread(import_examples, Path(folder), db)
        settings = antiphon.Settings.load({"db": str(db), "default_model": "local"}, env={})
        async with asyncio.timeout(WAIT_S):
            async with antiphon.open(settings=settings, functions=[TOOL]) as app:
                chat = await app.conversation(CONVERSATION, ask=ask(max_output_tokens=60))
                await tool_turn(chat)
                before = await chat.line()
                await cut_turn(app)
                await canceled_turn(app)
            async with antiphon.open(settings=settings, functions=[TOOL]) as app:
                heading("closed and opened again")
                chat = await app.conversation(CONVERSATION)
                assert await chat.line() == before
                print(f"  {len(before)} messages, the same as before")
            await other_wires(Path(folder))
    print("\ne2e-model: ok")


if __name__ == "__main__":
    if not installed():
        sys.exit(f"The real model is not installed: {INSTALL}")
    asyncio.run(main())
