"""The official SDK, our server, a real small model: a turn with two tools, streamed. Part of `make e2e-model`.

The server is a process of its own on loopback, the tools run here, in the client. Two worked
examples in the history show the model how it is done; after the turn the server is killed, and
the conversation is read from the next one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openai import OpenAI, Stream
from openai.types.responses import Response, ResponseStreamEvent

from antiphon.engine.edge.local_model import INSTALL, installed
from tests.server.process import server_process

WAIT_S = 600.0
CONVERSATION = "conv_trips"
WEATHER = {"London": "rain, 9 C", "Berlin": "sun, 14 C", "Paris": "wind, 11 C"}
TIME = {"London": "10:05", "Berlin": "11:05", "Paris": "11:05"}
ANSWERS = {"get_weather": WEATHER, "get_time": TIME}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: Any = [
    {
        "type": "function",
        "name": name,
        "description": f"Get the current {name.removeprefix('get_')} for a city",
        "parameters": PARAMETERS,
        "strict": None,
    }
    for name in ANSWERS
]


def worked_examples() -> Iterator[dict[str, Any]]:
    """Yield an archive of two turns in which both tools were called, one after the other."""
    yield {"kind": "export", "version": 1}
    yield {"kind": "conversation", "id": CONVERSATION, "title": "Trips", "head": "Berlin-6"}
    parent = None
    for city in ("London", "Berlin"):
        said = f"In {city} it is {TIME[city]} and there is {WEATHER[city]}."
        turn = [("user", _text(f"What is the weather in {city}, and what time is it there?"))]
        for name, found in ANSWERS.items():
            turn.append(("assistant", _call(name, city)))
            turn.append(("tool", _result(name, city, found[city])))
        turn.append(("assistant", _text(said)))
        for number, (role, block) in enumerate(turn, 1):
            id_ = f"{city}-{number}"
            yield {"kind": "message", "id": id_, "parent_id": parent, "role": role} | {
                "blocks": [block]
            }
            parent = id_


def _text(text: str) -> dict[str, Any]:
    return {"kind": "text", "text": text}


def _call(name: str, city: str) -> dict[str, Any]:
    arguments = json.dumps({"city": city})
    return {"kind": "tool_call", "call_id": f"call_{name}_{city}", "name": name} | {
        "arguments": arguments
    }


def _result(name: str, city: str, found: str) -> dict[str, Any]:
    return {
        "kind": "tool_result",
        "call_id": f"call_{name}_{city}",
        "content": [_text(found)],
    }


def followed(stream: Stream[ResponseStreamEvent]) -> tuple[Response, str]:
    """Return what a stream came to and the text that it showed, having read it to its end."""
    shown, last, numbers = "", None, []
    for event in stream:
        numbers.append(event.sequence_number)
        if event.type == "response.output_text.delta":
            shown += event.delta
        last = event
    assert last is not None
    assert last.type == "response.completed", last
    assert numbers == sorted(set(numbers)), "the numbers rise"
    return last.response, shown


def two_tools(client: OpenAI) -> list[str]:
    """Make the turn; return the ids of its calls."""
    asked: Any = "What is the weather in Paris, and what time is it there?"
    print(f"  you>   {asked}")
    made: list[tuple[str, str]] = []
    for _ in range(4):
        stream = client.responses.create(
            model="local",
            conversation=CONVERSATION,
            input=asked,
            tools=TOOLS,
            stream=True,
            temperature=0.0,
            max_output_tokens=80,
        )
        response, shown = followed(stream)
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            assert response.output_text == shown != ""
            print(f"  model> {shown}")
            break
        for call in calls:
            print(f"  model> {call.name}({call.arguments})")
            made.append((call.name, json.loads(call.arguments)["city"]))
        asked = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": ANSWERS[call.name].get(json.loads(call.arguments)["city"], "unknown"),
            }
            for call in calls
        ]
    else:
        raise AssertionError(f"The model did not stop calling: {made}")
    assert made == [("get_weather", "Paris"), ("get_time", "Paris")], made
    return line(client)


def line(client: OpenAI) -> list[str]:
    """Return what stands in the conversation, as words, oldest first."""
    items = client.conversations.items.list(CONVERSATION, order="asc", limit=100)
    return [
        f"{item.type} {getattr(item, 'role', None) or getattr(item, 'call_id', '')}"
        for item in items
    ]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive = folder / "examples.jsonl"
        archive.write_text("".join(json.dumps(one) + "\n" for one in worked_examples()))
        db = str(folder / "chat.db")
        antiphon = [sys.executable, "-m", "antiphon"]
        subprocess.run(
            [*antiphon, "import", "--db", db, str(archive)],
            check=True,
            timeout=WAIT_S,
            stdout=subprocess.DEVNULL,
        )
        print("\n-- two tools in one turn, through the server, with the official SDK\n")
        with server_process(folder, "--db", db) as server:
            with OpenAI(base_url=f"{server.url}/v1", api_key="any", timeout=WAIT_S) as client:
                before = two_tools(client)
            server.kill()
        with (
            server_process(folder, "--db", db) as server,
            OpenAI(base_url=f"{server.url}/v1", api_key="any", timeout=WAIT_S) as client,
        ):
            assert line(client) == before
            print(f"\n  killed and begun again: {len(before)} items, the same as before")
    print("\ne2e-served: ok")


if __name__ == "__main__":
    if not installed():
        sys.exit(f"The real model is not installed: {INSTALL}")
    main()
