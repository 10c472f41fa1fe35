"""The UI message stream of the AI SDK: what its clients are told, and what is made of what they say.

Its own parser reads the same streams in `tests/web`; here every chunk is looked at.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon import Function, tool
from antiphon.core.ids import RunId
from antiphon.core.records import RunStatus
from antiphon.core.recovery import Resend
from antiphon.engine.ports import Cut
from antiphon.engine.settings import Settings
from antiphon.errors import OutcomeUnknown
from antiphon.server.uistream.write import Writer
from tests.server.stage import Served, served
from tests.support.asgi import Exchange
from tests.support.provider import Hold, ScriptedProvider, Status, Step, asks, chunk, says

CHAT = "/antiphon/v1/chat"
WITHDRAW = {"antiphon-withdraw": "1"}
QUICK = Settings(retry_base_s=0.0, cancel_grace_s=0.0)

Chunk = dict[str, Any]


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


def user(name: str, text: str) -> Chunk:
    return {"id": name, "role": "user", "parts": [{"type": "text", "text": text}]}


def answered(run: str, text: str = "whatever the page holds") -> Chunk:
    parts = [{"type": "step-start"}, {"type": "text", "text": text, "state": "done"}]
    return {"id": run, "role": "assistant", "parts": parts}


def asking(*messages: Chunk, **more: Any) -> Chunk:
    return {"id": "chat-1", "trigger": "submit-message", "messages": list(messages), **more}


async def chunks(exchange: Exchange) -> list[Chunk | str]:
    assert exchange.status == 200, [await exchange.chunk()]
    assert exchange.headers["x-vercel-ai-ui-message-stream"] == "v1"
    return [
        frame.data if frame.data == "[DONE]" else json.loads(frame.data)
        async for frame in exchange.frames()
    ]


async def said(at: Served, body: Chunk, headers: dict[str, str] | None = None) -> list[Any]:
    async with at.client.asked("POST", CHAT, body, headers=headers) as exchange:
        return await chunks(exchange)


async def resumed(at: Served, headers: dict[str, str] | None = None) -> list[Any]:
    async with at.client.asked("GET", f"{CHAT}/chat-1/stream", headers=headers) as exchange:
        return await chunks(exchange)


async def transcript(at: Served) -> list[Chunk]:
    told = await at.client.get(f"{CHAT}/chat-1")
    assert told.status == 200, told.body
    messages: list[Chunk] = told.json["messages"]
    return messages


def types(told: list[Any]) -> list[str]:
    return [one if isinstance(one, str) else one["type"] for one in told]


def content(told: list[Any]) -> list[str]:
    """The types of what makes up the message, without how its run is."""
    return [kind for kind in types(told) if kind != "data-antiphon-run"]


def text(told: list[Any]) -> str:
    return "".join(one["delta"] for one in told if types([one]) == ["text-delta"])


def run_of(told: list[Any]) -> str:
    assert told[0]["type"] == "start"
    run: str = told[0]["messageId"]
    return run


@pytest.mark.parametrize("headers", [{}, WITHDRAW], ids=["committed", "previews"])
async def test_an_answer_comes_in_the_chunks_of_the_protocol(
    db: Path, headers: dict[str, str]
) -> None:
    async with served(db, ScriptedProvider(says("Hel", "lo"))) as at:
        told = await said(at, asking(user("u1", "Hi")), headers)
    parts = ["text-delta"] if not headers else types(told)[types(told).index("text-start") + 1 : types(told).index("text-end")]  # fmt: skip
    assert set(parts) == {"text-delta"}
    assert content(told) == ["start", "start-step", "text-start", *parts, "text-end", "finish-step", "finish", "[DONE]"]  # fmt: skip
    assert text(told) == "Hello"
    finish = told[-2]
    assert finish["finishReason"] == "stop"
    assert finish["messageMetadata"]["antiphon"]["run"] == run_of(told)


@pytest.mark.req("M78")
@pytest.mark.parametrize(
    ("headers", "shown"), [(WITHDRAW, "wrong right"), ({}, "right")], ids=["can", "cannot"]
)
async def test_text_that_is_taken_back_is_reset_for_those_who_can_and_never_shown_to_others(
    db: Path, headers: dict[str, str], shown: str
) -> None:
    hold = Hold()  # else it may be taken back before anybody has looked
    cut: list[Step] = [chunk({"content": "wrong "}), hold, Cut("cut", "gone")]
    told: list[Any] = []
    async with (
        served(db, ScriptedProvider(cut, says("right")), settings=QUICK) as at,
        at.client.asked("POST", CHAT, asking(user("u1", "Hi")), headers=headers) as exchange,
    ):
        async for frame in exchange.frames():
            told.append(frame.data if frame.data == "[DONE]" else json.loads(frame.data))
            if not headers or types(told)[-1] == "text-delta":
                hold.go.set()
    assert text(told) == shown
    assert ("reset-step" in types(told)) is bool(headers)
    if headers:
        at_reset = types(told).index("reset-step")
        assert text(told[:at_reset]) == "wrong "
        assert told[at_reset + 1]["type"] == "data-antiphon-withdrawn"
        assert told[at_reset + 1]["transient"] is True
    assert types(told)[-1] == "[DONE]"


@pytest.mark.req("M77")
async def test_what_a_page_holds_never_becomes_history(db: Path) -> None:
    provider = ScriptedProvider(says("Hello"), says("Fine"))
    async with served(db, provider) as at:
        run = run_of(await said(at, asking(user("u1", "Hi"))))
        await said(at, asking(user("u1", "Hi"), answered(run), user("u2", "How are you?")))
    assert [m["content"] for m in provider.messages()] == ["Hi", "Hello", "How are you?"]


async def test_the_same_request_again_is_the_same_run(db: Path) -> None:
    async with served(db, ScriptedProvider(says("Hello"))) as at:
        first = await said(at, asking(user("u1", "Hi")))
        again = await said(at, asking(user("u1", "Hi")))
    assert run_of(first) == run_of(again)
    assert content(first) == content(again)


@pytest.mark.req("M125", "M126")
async def test_another_answer_and_an_edit_are_branches_and_only_one_line_is_sent(db: Path) -> None:
    provider = ScriptedProvider(says("One"), says("Two"), says("Three"), says("Four"))
    async with served(db, provider) as at:
        await said(at, asking(user("u1", "Count")))
        two = await said(at, asking(user("u1", "Count"), trigger="regenerate-message"))
        assert text(two) == "Two"
        assert [m["content"] for m in provider.messages()] == ["Count"]
        three = await said(at, asking(user("u1", "Count on"), messageId="u1"))
        assert [m["content"] for m in provider.messages()] == ["Count on"]
        again = await said(at, asking(user("u1", "Count on"), messageId="u1"))
        assert run_of(again) == run_of(three)
        shown = asking(user("u1", "Count on"), answered(run_of(three)), user("u2", "And?"))
        await said(at, shown)
        assert [m["content"] for m in provider.messages()] == ["Count on", "Three", "And?"]
        told = [part["text"] for m in await transcript(at) for part in m["parts"] if "text" in part]
    assert told == ["Count on", "Three", "And?", "Four"]


async def test_a_page_that_shows_an_earlier_answer_goes_on_from_there(db: Path) -> None:
    provider = ScriptedProvider(says("One"), says("Two"), says("More"))
    async with served(db, provider) as at:
        one = run_of(await said(at, asking(user("u1", "Count"))))
        await said(at, asking(user("u1", "Count"), trigger="regenerate-message"))
        await said(at, asking(user("u1", "Count"), answered(one), user("u2", "More")))
    assert [m["content"] for m in provider.messages()] == ["Count", "One", "More"]


async def test_an_answer_that_was_never_given_here_is_refused(db: Path) -> None:
    async with served(db) as at:
        body = asking(answered("welcome", "Ask me anything"), user("u1", "Hi"))
        refused = await at.client.post(CHAT, body)
    assert (refused.status, refused.json["error"]["code"]) == (400, "unknown_message")


def deleting(*, approval: bool) -> tuple[Function, list[str]]:
    ran: list[str] = []

    @tool(approval=approval)
    def delete(path: str) -> str:
        """Delete a file."""
        ran.append(path)
        return f"{path} is gone"

    return delete, ran


async def test_a_tool_of_the_server_is_told_and_not_left_to_the_page(db: Path) -> None:
    delete, ran = deleting(approval=False)
    provider = ScriptedProvider(asks(("c1", "delete", '{"path": "a"}')), says("Done"))
    async with served(db, provider, functions=[delete]) as at:
        told = await said(at, asking(user("u1", "Delete a")), WITHDRAW)
    assert ran == ["a"]
    assert content(told)[1:-2] == [
        "start-step", "tool-input-available", "tool-output-available", "finish-step",
        "start-step", "text-start", *["text-delta"], "text-end", "finish-step",
    ]  # fmt: skip
    asked = next(one for one in told if one["type"] == "tool-input-available")
    assert (asked["toolName"], asked["input"]) == ("delete", {"path": "a"})
    assert asked["providerExecuted"] is True
    gave = next(one for one in told if one["type"] == "tool-output-available")
    assert gave["output"] == "a is gone"


@pytest.mark.parametrize("approved", [True, False])
async def test_a_call_waits_for_the_page_and_its_message_goes_on(db: Path, approved: bool) -> None:
    delete, ran = deleting(approval=True)
    provider = ScriptedProvider(asks(("c1", "delete", '{"path": "a"}')), says("Well"))
    async with served(db, provider, functions=[delete]) as at:
        told = await said(at, asking(user("u1", "Delete a")))
        assert content(told)[-4:] == ["tool-approval-request", "finish-step", "finish", "[DONE]"]
        assert told[-2]["finishReason"] == "tool-calls"
        assert (await at.client.get(f"{CHAT}/chat-1/stream")).status == 204
        assert ran == []
        shown = (await transcript(at))[-1]
        part = shown["parts"][-1]
        assert (part["state"], part["approval"]) == ("approval-requested", {"id": "c1"})
        part |= {"state": "approval-responded", "approval": {"id": "c1", "approved": approved}}
        body = asking(user("u1", "Delete a"), shown)
        more = await said(at, body)
        again = await said(at, body)
        end = (await transcript(at))[-1]
    assert run_of(more) == run_of(told) == shown["id"] == end["id"]
    output = "tool-output-available" if approved else "tool-output-denied"
    assert content(more)[:3] == ["start", output, "start-step"]
    assert text(more) == "Well"
    assert content(again) == content(more)
    assert ran == (["a"] if approved else [])
    states = [part["state"] for part in end["parts"] if part["type"] == "tool-delete"]
    assert states == ["output-available" if approved else "output-denied"]


async def test_a_tool_of_the_page_is_carried_out_there(db: Path) -> None:
    provider = ScriptedProvider(asks(("c1", "clock", "{}")), says("Noon"))
    declared = {"tools": [{"name": "clock", "parameters": {"type": "object"}}]}
    async with served(db, provider) as at:
        told = await said(at, asking(user("u1", "What time is it?"), **declared))
        asked = next(one for one in told if types([one]) == ["tool-input-available"])
        assert "providerExecuted" not in asked
        shown = answered(run_of(told))
        shown["parts"].append(
            {"type": "tool-clock", "toolCallId": "c1", "state": "output-available", "output": {"h": 12}}
        )  # fmt: skip
        more = await said(at, asking(user("u1", "What time is it?"), shown))
    assert text(more) == "Noon"
    assert provider.messages()[-1]["content"] == '{"h":12}'


async def test_what_assistant_ui_adds_to_a_request_is_what_it_means(db: Path) -> None:
    provider = ScriptedProvider(says("Noon"))
    context = {
        "tools": {"clock": {"description": "Tell the time", "parameters": {"type": "object"}}},
        "system": "Be brief.",
        "callSettings": {"temperature": 0.5, "maxTokens": 9},
        "config": {"modelName": "rehearsal"},
        "metadata": {},
    }
    async with served(db, provider) as at:
        await said(at, asking(user("u1", "What time is it?"), **context))
        foreign = {"config": {"baseUrl": "http://elsewhere.invalid"}}
        refused = await at.client.post(CHAT, asking(user("u2", "Hi"), **foreign))
    sent = json.loads(provider.bodies[0])
    assert (sent["temperature"], sent["tools"][0]["function"]["name"]) == (0.5, "clock")
    assert sent["messages"][0]["content"] == "Be brief."
    assert 9 in sent.values()  # however the dialect calls it
    assert (refused.status, refused.json["error"]["code"]) == (400, "unknown_field")


async def test_a_page_that_comes_back_is_told_all_of_the_answer(db: Path) -> None:
    hold = Hold()
    script = [chunk({"content": "Hel"}), hold, *says("lo")]
    async with served(db, ScriptedProvider(script)) as at:
        async with at.client.asked(
            "POST", CHAT, asking(user("u1", "Hi")), headers=WITHDRAW
        ) as exchange:
            async for frame in exchange.frames():
                if "Hel" in frame.data:
                    break
        shown = await transcript(at)
        assert [message["role"] for message in shown] == ["user"]  # the rest comes by its stream
        async with at.client.asked("GET", f"{CHAT}/chat-1/stream", headers=WITHDRAW) as exchange:
            hold.go.set()
            told = await chunks(exchange)
        assert text(told) == "Hello"
        assert (await at.client.get(f"{CHAT}/chat-1/stream")).status == 204
        assert [message["role"] for message in await transcript(at)] == ["user", "assistant"]


@pytest.mark.req("M137")
async def test_stop_is_a_call_and_what_was_shown_stays(db: Path) -> None:
    hold = Hold()
    script = [chunk({"content": "Hel"}), hold, *says("lo")]
    async with (
        served(db, ScriptedProvider(script), settings=QUICK) as at,
        at.client.asked("POST", CHAT, asking(user("u1", "Hi")), headers=WITHDRAW) as exchange,
    ):
        told: list[Any] = []
        async for frame in exchange.frames():
            told.append(frame.data if frame.data == "[DONE]" else json.loads(frame.data))
            if types(told)[-1] == "text-delta":
                assert (await at.client.post(f"{CHAT}/chat-1/stop")).status == 204
        assert "reset-step" not in types(told)
        assert content(told)[-3:] == ["message-metadata", "abort", "[DONE]"]
        assert text(told) == "Hel"
        canceled = told[-3]["messageMetadata"]["antiphon"]
        assert canceled["status"] == "canceled"
        tree = await at.client.get(f"/antiphon/v1/conversations/{canceled['conversation']}/tree")
        kept = tree.json["messages"][-1]
        assert (kept["status"], kept["blocks"][0]["text"]) == ("canceled", "Hel")


async def test_an_error_is_an_error_and_the_page_may_ask_again(db: Path) -> None:
    async with served(db, ScriptedProvider([Status(400)], says("Hello")), settings=QUICK) as at:
        told = await said(at, asking(user("u1", "Hi")))
        assert content(told) == ["start", "error", "finish", "[DONE]"]
        assert told[-2]["finishReason"] == "error"
        more = await said(at, asking(user("u1", "Hi"), trigger="regenerate-message"))
        assert text(more) == "Hello"
        assert [message["role"] for message in await transcript(at)] == ["user", "assistant"]


async def test_an_outcome_that_nobody_knows_is_said_and_its_text_taken_back(db: Path) -> None:
    script: list[Step] = [chunk({"content": "Hel"}), Cut("cut", "gone")]
    settings = Settings(retry_base_s=0.0, resend_after_unknown=Resend.NEVER)
    async with served(db, ScriptedProvider(script), settings=settings) as at:
        told = await said(at, asking(user("u1", "Hi")), WITHDRAW)
    assert content(told)[-6:] == [
        "reset-step", "data-antiphon-withdrawn", "error", "finish-step", "finish", "[DONE]"
    ]  # fmt: skip
    assert told[-2]["messageMetadata"]["antiphon"]["code"] == "outcome_unknown"


def test_a_run_whose_fate_stays_open_breaks_its_stream_off_and_is_no_end() -> None:
    writer = Writer(RunId("run_1"), {}, takes_withdrawals=True)
    told = [*writer.begin(), *writer.fail(OutcomeUnknown("Nobody knows.", at="run_1"))]
    assert types(told) == ["start", "data-antiphon-run", "error"]
    assert told[1]["data"]["status"] == "unknown"
    assert (writer.over, writer.whole) == (True, False)  # so that no [DONE] follows


async def test_pictures_and_files_are_carried(db: Path) -> None:
    provider = ScriptedProvider(says("Nice"))
    picture = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA"}
    message = {"id": "u1", "role": "user", "parts": [picture, {"type": "data-mood", "data": 1}]}
    async with served(db, provider) as at:
        await said(at, asking(message))
        [part] = (await transcript(at))[0]["parts"]
    assert part == picture
    content = provider.messages()[-1]["content"]
    assert isinstance(content, list)
    assert content[0]["image_url"]["url"] == picture["url"]


async def test_a_chat_is_one_conversation_whatever_its_id(db: Path) -> None:
    async with served(db, ScriptedProvider(says("Hello"), says("Fine"))) as at:
        first = (await said(at, asking(user("u1", "Hi"))))[-2]["messageMetadata"]["antiphon"]
        row = await at.conversation()
        other = await said(at, asking(user("u1", "Hi"), id=row))
        assert other[-2]["messageMetadata"]["antiphon"]["conversation"] == row
        assert first["conversation"] != row
        run = await at.client.get(f"/antiphon/v1/runs/{first['run']}")
        assert run.json["run"]["status"] == RunStatus.SUCCESS
        assert (await at.client.get(f"{CHAT}/nobody")).status == 404
        assert (await at.client.get(f"{CHAT}/conv_nobody/stream")).status == 404
