"""DeepSeek Harness itself, by its base URL: `make e2e-harness`.

The program is installed in a place of its own and runs unchanged, in a process of its own; our
server is another, and the provider behind it is a script here. The forms of its requests are kept
in tests/data/deepseek_harness.json, without its words, and `make test` sends them to the door; here
they are compared with what the program writes. `ARGS=--write` keeps them anew.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from tests.server.process import server_process
from tests.support import messages_stream as said

RECORDED: Final = Path(__file__).parent / "data" / "deepseek_harness.json"
PYTHON: Final = Path(__file__).parents[1] / ".harness" / "bin" / "python"
QUESTIONS: Final = ("What is in a.txt?", "Write b.txt.")
WAIT_S: Final = 120.0
MODEL, ELSEWHERE = "deepseek-v4-flash", "deepseek-v4-pro"
OWN_TRIES: Final = 6
"""How often the program asks where a stream broke: each is a request of its own, without a key."""

PROGRAM: Final = """
import json, sys
from deepseek_harness import DeepSeekHarness

url, model, home, folder, *questions = sys.argv[1:]
with DeepSeekHarness(
    dsh_home=home, cwd=folder, base_url=url, api_key="any", model=model, request_timeout_seconds=60
) as harness:
    for question in questions:
        told = {}
        try:
            result = harness.run(question, session_id="s-1")
            told = {"said": result.final_response, "finish": result.finish_reason, "events": result.events}
        except Exception as error:
            told = {"error": str(error)}
        print(json.dumps(told), flush=True)
"""


class Provider:
    """Answers one script after the other, as bytes of Messages; the last is cut, as often as asked."""

    def __init__(self, *scripts: bytes) -> None:
        self.scripts = list(scripts)
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.heads.append(str(request.headers).lower())
        reply = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await reply.prepare(request)
        if len(self.scripts) > 1:
            await reply.write(self.scripts.pop(0))
        else:
            await reply.write(self.scripts[0])
            assert request.transport is not None
            request.transport.close()
        return reply


@asynccontextmanager
async def listening(provider: Provider) -> AsyncIterator[str]:
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/messages", provider.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


async def asked(url: str, model: str, folder: Path, *questions: str) -> list[dict[str, Any]]:
    """Return what the program made of each question."""
    (folder / "work").mkdir(parents=True)
    (folder / "work" / "a.txt").write_text("a lamp\n", "utf-8")
    program = await asyncio.create_subprocess_exec(
        PYTHON, "-c", PROGRAM, url, model, str(folder / "home"), str(folder / "work"), *questions,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(program.communicate(), WAIT_S)
    written = (folder / "work" / "b.txt").exists()
    return [{**json.loads(line), "written": written} for line in out.splitlines()]


def scripts() -> list[bytes]:
    """A step with a thought and a call, one that answers, and one that breaks inside a call."""
    reads = said.call(1, "toolu_1", "read", '{"file_path": "a.txt"}')
    writes = {"type": "tool_use", "id": "toolu_2", "name": "write", "input": {}}
    half = {"type": "input_json_delta", "partial_json": '{"file_path": "b.txt", "content": "ha'}
    return [
        said.start() + said.thinking(0, "Look.") + reads + said.end("tool_use"),
        said.start() + said.text(0, "A ", "lamp.") + said.end("end_turn"),
        said.start() + said.block(0, writes, half, stop=False),
    ]


def form(value: Any, key: str = "") -> Any:
    """Return a request without the program's words: what is long, what names a place or a moment."""
    match value:
        case dict():
            return {name: form(part, name) for name, part in value.items()}
        case list():
            return [form(part, key) for part in value]
        case str() if key in KEPT or (
            len(value) <= MOST_KEPT and "/" not in value and key in SHORT
        ):
            return value
        case str():
            return "..."
        case bool():
            return value
        case int() if key not in NUMBERS:
            return 0
        case _:
            return value


KEPT: Final = frozenset({"type", "role", "model", "signature", "tool_use_id", "id", "effort"})
SHORT: Final = frozenset({"name", "text", "thinking", "required", "enum", "file_path"})
NUMBERS: Final = frozenset({"max_tokens", "version", "sessionFormatVersion"})
MOST_KEPT: Final = 40


def essence(request: dict[str, Any]) -> dict[str, Any]:
    """Return the form of a request with one tool, one event and one plugin in place of all."""
    told: dict[str, Any] = form(request)
    told["tools"] = [tool for tool in told["tools"] if tool["name"] in ("read", "write")]
    told["dsh_session_log"]["events"] = [
        {"seq": 0, "time": 0, "type": event["type"], "data": {}}
        for event in told["dsh_session_log"]["events"][:1]
    ]
    told["dsh_plugin_packages"]["packages"] = told["dsh_plugin_packages"]["packages"][:1]
    return told


async def main() -> None:
    direct = Provider(*scripts())
    behind = Provider(*scripts())
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        async with listening(direct) as url:
            await asked(url, MODEL, folder / "direct", *QUESTIONS)
        recorded = [essence(body) for body in direct.bodies[:3]]
        if "--write" in sys.argv:
            RECORDED.write_text(json.dumps(recorded, indent=1) + "\n", "utf-8")
        assert json.loads(RECORDED.read_text("utf-8")) == recorded, "it writes other requests now"

        async with listening(behind) as root:
            (folder / "antiphon.toml").write_text(
                f'resend_after_unknown = "never"\n'
                f'[models."{MODEL}"]\nprofile = "anthropic"\nbase_url = "{root}"\n'
                f'[models."{ELSEWHERE}"]\nprofile = "openai-chat"\nbase_url = "{root}"\n',
                "utf-8",
            )
            with server_process(folder) as server:
                url = f"{server.url}/v1"
                looked, broke = await asked(url, MODEL, folder / "behind", *QUESTIONS)
                [refused] = await asked(url, ELSEWHERE, folder / "other", QUESTIONS[0])

    assert (looked["said"], looked["finish"]) == ("A lamp.", "completed"), looked
    # The thought goes out again with the call that it led to, and the result under the call's id.
    thought, call = behind.bodies[1]["messages"][1]["content"]
    assert thought == {"type": "thinking", "thinking": "Look.", "signature": "Eq=="}
    [result] = behind.bodies[1]["messages"][2]["content"]
    assert (call["id"], result["tool_use_id"]) == ("toolu_1", "toolu_1")
    assert "a lamp" in json.dumps(result)
    # What is only a log went no further, and neither did who the program says that it is.
    assert "dsh_session_log" in direct.bodies[0]
    assert not any("dsh_" in key for body in behind.bodies for key in body)
    assert not any("deepseek-harness" in head for head in behind.heads)
    # The half call ran nowhere, as often as the program asked again by itself.
    assert broke["finish"] == "error", broke
    assert not broke["written"]
    assert len(behind.bodies) == 2 + OWN_TRIES, len(behind.bodies)
    # A model that has no word for an option is not asked at all.
    assert refused["finish"] == "error", refused
    assert "output_config" in json.dumps(refused["events"])
    print(
        f"DeepSeek Harness: {len(behind.bodies)} requests, nothing lost, nothing run that was half"
    )


if __name__ == "__main__":
    asyncio.run(main())
