"""The rehearsal model: what it says, how it misbehaves when asked to, and its server's record."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from antiphon.core.manifest import WireRequest
from antiphon.engine.catalogue.models import REHEARSAL_HOST, REHEARSAL_MODEL
from antiphon.engine.edge.http import HttpTransport
from antiphon.engine.edge.rehearsal import RehearsalServer, ScriptMismatch
from antiphon.engine.edge.rehearsal_model import WORDS, Answer, Break, Hold, Pause, Stall
from antiphon.engine.ports import Cut, Reply
from antiphon.engine.settings import Settings
from antiphon.library import open as open_app
from tests.support.upstream import WAIT_S

DOCS = Path(__file__).parents[3] / "docs" / "rehearsal.md"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def called(*ids: str) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": "{}"}
    calls = [{"id": id_, "type": "function", "function": function} for id_ in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(id_: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": text}


class Client:
    """Speaks to one rehearsal server as the engine does."""

    def __init__(self, server: RehearsalServer) -> None:
        self.server = server
        self.transport = HttpTransport(hosts={REHEARSAL_HOST: server})

    async def post(self, body: bytes) -> Reply:
        wire = WireRequest(
            method="POST",
            url=f"{REHEARSAL_MODEL.base_url}/chat/completions",
            headers=(("content-type", "application/json"),),
            chunks=(body,),
        )
        async with asyncio.timeout(WAIT_S):
            return await self.transport.send(
                wire, api_key=None, connect_timeout_s=5, on_written=lambda: None
            )

    async def raw(self, body: bytes) -> tuple[int, bytes]:
        reply = await self.post(body)
        async with asyncio.timeout(WAIT_S):
            return reply.status, b"".join([chunk async for chunk in reply.chunks()])

    async def ask(self, *messages: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Return the whole answer's only choice."""
        status, body = await self.raw(json.dumps({"messages": messages, **options}).encode())
        assert status == 200, body
        choice: dict[str, Any] = json.loads(body)["choices"][0]
        return choice

    async def stream(self, *messages: dict[str, Any], **options: Any) -> bytes:
        request = {"messages": messages, "stream": True, **options}
        status, body = await self.raw(json.dumps(request).encode())
        assert status == 200, body
        return body


@asynccontextmanager
async def serving(script: list[Answer] | None = None) -> AsyncIterator[Client]:
    async with RehearsalServer(script) as server:
        client = Client(server)
        yield client
        await client.transport.close()


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with serving() as client:
        yield client


async def read(chunks: AsyncIterator[bytes]) -> bytes:
    async with asyncio.timeout(WAIT_S):
        return b"".join([chunk async for chunk in chunks])


def events(stream: bytes) -> list[Any]:
    lines = [line for line in stream.split(b"\n\n") if line]
    assert all(line.startswith(b"data: ") for line in lines)
    return [None if line == b"data: [DONE]" else json.loads(line[6:]) for line in lines]


def said(stream: bytes) -> str:
    return "".join(
        choice["delta"].get("content") or ""
        for event in events(stream)
        if event
        for choice in event.get("choices", ())
    )


def finish(stream: bytes) -> str | None:
    finishes = [
        c["finish_reason"]
        for e in events(stream)
        if e
        for c in e.get("choices", ())
        if c["finish_reason"]
    ]
    assert len(finishes) <= 1
    return finishes[0] if finishes else None


# ------------------------------------------------------------------------------------ plain talk


async def test_an_answer_says_that_it_is_no_model_and_what_it_was_sent(client: Client) -> None:
    choice = await client.ask(
        {"role": "system", "content": "be kind"}, user("good morning"), tools=[WEATHER]
    )
    text = choice["message"]["content"]
    assert text.startswith("Rehearsal model: ")
    assert "good morning" in text
    assert "2 messages" in text
    assert "get_weather" in text
    assert choice["finish_reason"] == "stop"


async def test_streamed_and_whole_answers_say_the_same(client: Client) -> None:
    stream = await client.stream(user("早上好 🙂 good morning"))
    whole = await client.ask(user("早上好 🙂 good morning"))
    assert said(stream) == whole["message"]["content"]
    assert finish(stream) == whole["finish_reason"] == "stop"


async def test_a_stream_comes_in_many_pieces_with_one_id_and_ends_as_openai_s_do(
    client: Client,
) -> None:
    pieces = events(await client.stream(user("hi"), stream_options={"include_usage": True}))
    assert pieces[-1] is None
    assert len({piece["id"] for piece in pieces[:-1]}) == 1
    assert pieces[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert pieces[-3]["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop"}
    assert pieces[-2]["choices"] == []
    assert pieces[-2]["usage"]["total_tokens"] == sum(
        pieces[-2]["usage"][kind] for kind in ("prompt_tokens", "completion_tokens")
    )
    assert all(piece["usage"] is None for piece in pieces[:-2])
    assert (
        sum(
            bool(piece["choices"] and piece["choices"][0]["delta"].get("content"))
            for piece in pieces[:-1]
        )
        > 5
    )


async def test_the_token_limit_cuts_the_answer_and_says_so(client: Client) -> None:
    for limit in ("max_tokens", "max_completion_tokens"):
        stream = await client.stream(user("hi"), **{limit: 2})
        assert (said(stream), finish(stream)) == ("Rehearsal model:", "length")


async def test_the_same_request_gets_the_same_words_and_another_response_id(client: Client) -> None:
    first, second = [events(await client.stream(user("hi")))[:-1] for _ in range(2)]
    assert {piece.pop("id") for piece in first} != {piece.pop("id") for piece in second}
    assert [piece["choices"] for piece in first] == [piece["choices"] for piece in second]


# ----------------------------------------------------------------------------------------- tools


async def test_it_asks_for_a_tool_that_is_offered(client: Client) -> None:
    arguments = '{"city": "Paris"}'
    for word in ("/tool", "tool"):
        choice = await client.ask(user(f"{word} get_weather {arguments}"), tools=[WEATHER])
        (call,) = choice["message"]["tool_calls"]
        assert call["function"] == {"name": "get_weather", "arguments": arguments}
        assert choice["finish_reason"] == "tool_calls"


async def test_a_streamed_call_comes_in_fragments(client: Client) -> None:
    stream = await client.stream(user('/tool get_weather {"city": "Paris"}'), tools=[WEATHER])
    deltas = [e["choices"][0]["delta"] for e in events(stream) if e]
    fragments = [d["tool_calls"][0] for d in deltas if "tool_calls" in d]
    assert fragments[0]["id"].startswith("call_")
    assert len(fragments) > 2
    assert "".join(f["function"].get("arguments", "") for f in fragments) == '{"city": "Paris"}'
    assert finish(stream) == "tool_calls"


async def test_several_lines_are_several_calls_with_different_ids(client: Client) -> None:
    asked = user('/tool get_weather {"city": "Paris"}\n/tool get_weather {"city": "Rome"}')
    calls = (await client.ask(asked, tools=[WEATHER]))["message"]["tool_calls"]
    assert [json.loads(call["function"]["arguments"])["city"] for call in calls] == [
        "Paris",
        "Rome",
    ]
    assert len({call["id"] for call in calls}) == 2


async def test_calls_of_two_turns_never_share_an_id(client: Client) -> None:
    line = [user("/tool get_weather {}")]
    first = (await client.ask(*line, tools=[WEATHER]))["message"]
    id_ = first["tool_calls"][0]["id"]
    line += [{"role": "assistant", **first}, result(id_, "rain"), user("/tool get_weather {}")]
    second = (await client.ask(*line, tools=[WEATHER]))["message"]
    assert second["tool_calls"][0]["id"] != id_


async def test_it_uses_the_results_and_names_them(client: Client) -> None:
    choice = await client.ask(
        user("/tool get_weather {}"),
        called("a", "b"),
        result("b", "sun"),
        result("a", "rain"),
        tools=[WEATHER],
    )
    assert choice["message"]["content"] == (
        "Rehearsal model: get_weather answered “sun”; get_weather answered “rain”."
    )


@pytest.mark.parametrize(
    "options", [{}, {"tools": [WEATHER], "tool_choice": "none"}], ids=["no tools", "tools disabled"]
)
async def test_a_tool_that_is_not_offered_is_not_called(
    client: Client, options: dict[str, Any]
) -> None:
    choice = await client.ask(user("/tool get_weather {}"), **options)
    assert choice["finish_reason"] == "stop"
    assert "get_weather" in choice["message"]["content"]


@pytest.mark.parametrize(
    "tool_choice",
    ["required", {"type": "function", "function": {"name": "get_weather"}}],
    ids=["required", "named"],
)
async def test_a_demanded_call_is_made_with_the_least_that_its_schema_takes(
    client: Client, tool_choice: Any
) -> None:
    choice = await client.ask(user("hello"), tools=[WEATHER], tool_choice=tool_choice)
    (call,) = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"city": "example"}


async def test_loop_asks_for_its_tool_again_until_none_is_offered(client: Client) -> None:
    line = [user("loop get_weather {}"), called("a"), result("a", "rain")]
    assert (await client.ask(*line, tools=[WEATHER]))["finish_reason"] == "tool_calls"
    assert (await client.ask(*line, tools=[WEATHER], tool_choice="none"))["finish_reason"] == "stop"


# ------------------------------------------------------------------------ a strict upstream


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param([], id="no message"),
        pytest.param([user("x"), result("a", "1")], id="a result without a call"),
        pytest.param([user("x"), called("a", "b"), result("a", "1")], id="a call without a result"),
        pytest.param(
            [user("x"), called("a"), user("hurry"), result("a", "1")], id="a message in between"
        ),
        pytest.param(
            [user("x"), called("a"), result("a", "1"), result("a", "2")],
            id="two results for one call",
        ),
        pytest.param([user("x"), called("a")], id="a call at the end"),
        pytest.param([user("x"), called("a"), user("y")], id="a call forgotten"),
    ],
)
async def test_an_illegal_order_is_refused_as_openai_refuses_it(
    client: Client, messages: list[dict[str, Any]]
) -> None:
    status, body = await client.raw(json.dumps({"messages": messages}).encode())
    assert status == 400
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"messages": "x"}', b"\xff", b"null"])
async def test_a_body_that_is_no_request_is_refused(client: Client, body: bytes) -> None:
    status, text = await client.raw(body)
    assert status == 400
    assert "error" in json.loads(text)


# ----------------------------------------------------------------------- misbehaving on demand


async def test_fail_gives_the_status_and_the_pause_that_were_asked_for(client: Client) -> None:
    reply = await client.post(json.dumps({"messages": [user("fail 429 7")]}).encode())
    assert (reply.status, reply.headers["retry-after"]) == (429, "7")
    assert "error" in json.loads(b"".join([chunk async for chunk in reply.chunks()]))


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_once_fails_the_first_time_and_works_the_second(client: Client, stream: bool) -> None:
    body = json.dumps({"messages": [user("fail 503 once")], "stream": stream}).encode()
    assert [(await client.raw(body))[0] for _ in range(3)] == [503, 200, 200]


@pytest.mark.parametrize(
    ("word", "finished"),
    [("truncate", "length"), ("filter", "content_filter"), ("unfinished", None)],
)
async def test_a_word_ends_the_answer_in_its_own_way(
    client: Client, word: str, finished: str | None
) -> None:
    stream = await client.stream(user(f"{word} 3"))
    assert finish(stream) == finished
    assert said(stream) == "Rehearsal model: this"
    assert (events(stream)[-1] is None) == (finished is not None)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_cut_breaks_the_connection_in_the_middle(client: Client, stream: bool) -> None:
    reply = await client.post(json.dumps({"messages": [user("cut 2")], "stream": stream}).encode())
    chunks = reply.chunks()
    assert await anext(chunks)
    with pytest.raises(Cut):
        await read(chunks)


async def test_stall_says_nothing_more_until_the_client_leaves(client: Client) -> None:
    reply = await client.post(json.dumps({"messages": [user("stall 2")], "stream": True}).encode())
    got = b""
    chunks = reply.chunks()
    while b"model:" not in got:
        got += await anext(chunks)
    waiting = asyncio.ensure_future(anext(chunks))
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    waiting.cancel()
    await reply.close()
    received = client.server.received[0]
    assert await client.server.wait_end(received) == "left"


async def test_hold_goes_on_when_it_is_released(client: Client) -> None:
    asking = asyncio.create_task(client.stream(user("hold 3")))
    await asyncio.wait_for(client.server.wait_held(), WAIT_S)
    assert not asking.done()
    client.server.release()
    stream = await asking
    assert finish(stream) == "stop"
    assert said(stream).endswith("in the middle of it.")


async def test_a_refusal_an_empty_answer_and_an_error_event(client: Client) -> None:
    refused = events(await client.stream(user("refuse")))
    assert any(event["choices"][0]["delta"].get("refusal") for event in refused if event)
    empty = await client.stream(user("empty"))
    assert (said(empty), finish(empty)) == ("", "stop")
    broken = events(await client.stream(user("error 1")))
    assert "error" in broken[-1]


async def test_half_a_tool_call_is_cut_inside_its_arguments(client: Client) -> None:
    choice = await client.ask(user('halftool get_weather {"city": "Paris"}'), tools=[WEATHER])
    arguments = choice["message"]["tool_calls"][0]["function"]["arguments"]
    assert '{"city": "Paris"}'.startswith(arguments)
    assert arguments != '{"city": "Paris"}'
    assert choice["finish_reason"] == "length"


async def test_a_word_counts_only_at_the_beginning(client: Client) -> None:
    choice = await client.ask(user("please cut the cake and fail 429"))
    assert "cut the cake" in choice["message"]["content"]


def test_every_word_is_documented_and_every_documented_word_exists() -> None:
    documented = set(re.findall(r"^\| `/?(\w+)", DOCS.read_text("utf-8"), re.MULTILINE))
    assert documented == set(WORDS)


# ------------------------------------------------------------------------------------ the script


async def test_a_script_is_played_piece_by_piece_and_what_was_asked_is_kept() -> None:
    script = [
        Answer(body=(b"data: 1\n\n", Pause(0), b"data: 2\n\n")),
        Answer(status=529, content_type="text/plain", headers={"x-a": "b"}, body=(b"busy",)),
    ]
    async with serving(script) as client:
        assert await client.raw(b"anything") == (200, b"data: 1\n\ndata: 2\n\n")
        reply = await client.post(b"\x00\xff")
        assert (reply.status, reply.headers["x-a"], reply.headers["content-length"]) == (
            529,
            "b",
            "4",
        )
        await reply.close()
    assert [received.body for received in client.server.received] == [b"anything", b"\x00\xff"]
    assert client.server.received[0].path == "/v1/chat/completions"
    assert client.server.received[0].end == "whole"


async def test_an_answer_nobody_asked_for_is_complained_about() -> None:
    with pytest.raises(ScriptMismatch, match="1 scripted answer"):
        async with serving([Answer(body=(b"x",)), Answer()]) as client:
            await client.raw(b"{}")


async def test_a_request_beyond_the_script_is_refused_and_complained_about() -> None:
    server = RehearsalServer([])
    client = Client(server)
    status, _ = await client.raw(b"{}")
    assert status == 500
    with pytest.raises(ScriptMismatch, match="1 request"):
        await client.transport.close()


async def test_a_failure_of_the_test_itself_is_not_hidden_by_the_complaint() -> None:
    with pytest.raises(ZeroDivisionError):
        async with serving([Answer()]):
            raise ZeroDivisionError


async def test_things_can_happen_before_the_head() -> None:
    async with serving(
        [Answer(before=(Hold("head"),), body=(b"x",)), Answer(before=(Break(),))]
    ) as client:
        asking = asyncio.create_task(client.raw(b"{}"))
        await asyncio.wait_for(client.server.wait_held("head"), WAIT_S)
        assert not asking.done()
        client.server.release("head")
        assert await asking == (200, b"x")
        with pytest.raises(Cut):
            await client.raw(b"{}")
    assert [received.end for received in client.server.received] == ["whole", "broken"]


async def test_closing_ends_an_answer_under_way() -> None:
    async with serving([Answer(body=(b"x", Stall()))]) as client:
        chunks = (await client.post(b"{}")).chunks()
        assert await anext(chunks) == b"x"
        await client.server.close()
        with pytest.raises(Cut):
            await asyncio.wait_for(anext(chunks), WAIT_S)


# ---------------------------------------------------------------------------- others as clients


async def test_the_official_client_reads_it(client: Client) -> None:
    await client.server.address()
    sdk = openai.AsyncOpenAI(api_key="none", base_url=client.server.url, max_retries=0)
    async with sdk:
        assert [model.id async for model in sdk.models.list()] == ["rehearsal"]
        parts: list[str] = []
        stream = await sdk.chat.completions.create(
            model="rehearsal", messages=[{"role": "user", "content": "hi"}], stream=True
        )
        async for chunk in stream:
            parts += [choice.delta.content or "" for choice in chunk.choices]
        assert "".join(parts).startswith("Rehearsal model: ")
        whole = await sdk.chat.completions.create(
            model="rehearsal",
            messages=[{"role": "user", "content": "/tool get_weather {}"}],
            tools=[WEATHER],  # type: ignore[list-item]  # a dict is what the client sends
        )
        assert whole.choices[0].finish_reason == "tool_calls"


@pytest.fixture
def process() -> Iterator[Callable[..., Any]]:
    """Start the server as a process of its own; kill whatever is left of it afterwards."""
    started: list[asyncio.subprocess.Process] = []

    async def start(*options: str) -> tuple[asyncio.subprocess.Process, str]:
        command = (sys.executable, "-m", "antiphon.engine.edge.rehearsal", "--delay", "0", *options)
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
        started.append(child)
        assert child.stdout is not None
        line = await asyncio.wait_for(child.stdout.readline(), WAIT_S)
        return child, line.decode().strip()

    yield start
    for child in started:
        if child.returncode is None:
            child.kill()


def fetch(url: str, data: bytes | None = None) -> Any:
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=WAIT_S) as answer:
        return json.loads(answer.read() or b"null")


async def test_another_process_can_script_it_hold_it_and_read_what_came(
    process: Callable[..., Any],
) -> None:
    child, url = await process()
    steer = url.removesuffix("/v1") + "/rehearsal"
    script = [
        {"content_type": "application/json", "body": ["{}", {"hold": "here"}, {"pause": 0}, ""]}
    ]
    await asyncio.to_thread(fetch, f"{steer}/script", json.dumps(script).encode())
    asking = asyncio.create_task(asyncio.to_thread(fetch, f"{url}/chat/completions", b"\x00body"))
    await asyncio.to_thread(fetch, f"{steer}/held/here")
    (received,) = await asyncio.to_thread(fetch, f"{steer}/received")
    assert (base64.b64decode(received["body"]), received["end"]) == (b"\x00body", None)
    await asyncio.to_thread(fetch, f"{steer}/release/here", b"")
    assert await asking == {}
    child.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(child.wait(), WAIT_S) == 0


async def test_it_ends_with_its_input_where_asked_to(process: Callable[..., Any]) -> None:
    child, _ = await process("--stdin")
    child.stdin.close()
    assert await asyncio.wait_for(child.wait(), WAIT_S) == 0


# -------------------------------------------------------------------------------- in its place


async def test_without_a_key_the_library_talks_to_it_over_the_wire_of_any_provider(
    tmp_path: Path,
) -> None:
    settings = Settings.load(
        {"db": str(tmp_path / "antiphon.db"), "rehearsal_delay_s": 0.0}, env={}
    )
    async with asyncio.timeout(WAIT_S):
        async with open_app(settings=settings) as app:
            chat = await app.create()
            run = await chat.send("good morning")
            answer = await run.result()
            body = await run.request()
        assert "you said “good morning”" in answer.text
        async with open_app(settings=settings) as app:  # another server on another port by now
            again = await (await app.conversation(chat.id)).run(run.id)
            assert await again.request() == body


def test_what_is_only_imported_does_not_load_the_http_client() -> None:
    code = "import sys, antiphon.library, antiphon.engine.edge.http; sys.exit('aiohttp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=WAIT_S).returncode == 0
