"""What people decide about calls over HTTP: each once, seen by whoever follows, told by `antiphon show`."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from antiphon import FateUnknown, Function, ToolContext, tool
from antiphon.engine.settings import Settings
from tests.cli.commands import Place
from tests.server.stage import ROOT, Served, served
from tests.support.clock import SimulatedClock
from tests.support.provider import ScriptedProvider, asks, says

QUICK: dict[str, Any] = {"retry_base_s": 0.0, "cancel_grace_s": 0.0}
WAIT_S = 10.0


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def begun(server: Served) -> str:
    """Ask for something, and return the run once it waits."""
    conversation = await server.conversation()
    run: str = (await server.send(conversation, "Go"))["id"]
    await server.idle(conversation)
    return run


async def ended(server: Served, run: str) -> dict[str, Any]:
    """Return what is told of a run, once nobody works on it any more."""
    told = (await server.client.get(f"{ROOT}/runs/{run}")).json
    await server.idle(told["run"]["conversation"])
    found: dict[str, Any] = (await server.client.get(f"{ROOT}/runs/{run}")).json
    return found


async def history(server: Served, run: str) -> list[tuple[str, str, str | None]]:
    """Return what happened to the run's calls, as whoever follows the conversation is told."""
    told = (await server.client.get(f"{ROOT}/runs/{run}/events")).json["data"]
    return [
        (one["event"]["call"], one["event"]["state"], one["event"].get("code"))
        for one in told
        if one["event"]["type"] == "call.changed"
    ]


async def decided(server: Served, run: str, call: str, verb: str, **body: Any) -> tuple[int, Any]:
    told = await server.client.post(f"{ROOT}/calls/{call}/{verb}", {"run": run, **body})
    return told.status, told.json.get("error", {}).get("code", told.json.get("state"))


async def shown(place: Place, run: str) -> str:
    """Return what `antiphon show` says of a run."""
    return (await asyncio.to_thread(place.do, "show", run)).out


def paying(ran: list[int]) -> Function:
    @tool(approval=True, max_result_chars=100)
    async def pay(amount: int, context: ToolContext) -> str:
        ran.append(amount)
        return f"paid {amount} " + "and a long receipt " * 90

    return pay


PAY = asks(("c1", "pay", '{"amount":100}'))


@pytest.mark.req("M34", "M146")
async def test_an_approval_with_other_arguments_is_taken_once_and_everybody_sees_what_was_run(
    place: Place,
) -> None:
    ran: list[int] = []
    provider = ScriptedProvider(PAY, says("Paid."))
    async with served(place.db, provider, functions=[paying(ran)]) as server:
        run = await begun(server)
        assert (await ended(server, run))["run"]["end_code"] == "approval_required"
        assert await decided(server, run, "c1", "approve", arguments='{"amount":"x"}') == (
            400, "invalid_arguments",
        )  # fmt: skip
        once = await decided(server, run, "c1", "approve", arguments='{"amount":1}')
        assert once[0] == 200
        told = await ended(server, run)
        again = await decided(server, run, "c1", "approve", arguments='{"amount":1}')
        assert again == (200, "SUCCESS")
        assert await decided(server, run, "c1", "approve", arguments='{"amount":2}') == (
            409, "not_approvable",
        )  # fmt: skip
        assert await decided(server, run, "c1", "refuse") == (400, "duplicate_tool_result")
        assert (told["run"]["status"], ran) == ("success", [1])
        (call,) = told["calls"]
        assert (call["arguments"], call["changed_arguments"]) == ('{"amount":100}', '{"amount":1}')
        assert await history(server, run) == [
            ("c1", "PENDING", None),
            ("c1", "EXECUTING", None), ("c1", "SUCCESS", None),
        ]  # fmt: skip
    page = await shown(place, run)
    for words in (
        'pay {"amount":100}  SUCCESS',
        "somebody agreed to it",
        '{"amount":1}',
        f"1 time, under the key {call['idempotency_key']}",
        "the first 98 of 1,778 characters",
    ):
        assert words in page, page


@pytest.mark.req("M34", "M146")
async def test_a_refusal_is_taken_once_and_the_model_goes_on_with_it(place: Place) -> None:
    ran: list[int] = []
    provider = ScriptedProvider(PAY, says("Then not."))
    async with served(place.db, provider, functions=[paying(ran)]) as server:
        run = await begun(server)
        for _ in range(2):
            assert await decided(server, run, "c1", "refuse", reason="Too much.") == (200, "ERROR")
        told = await ended(server, run)
        assert await decided(server, run, "c1", "refuse", reason="Too much.") == (200, "ERROR")
        assert await decided(server, run, "c1", "approve") == (409, "not_approvable")
        assert (told["run"]["status"], ran) == ("success", [])
        assert (await history(server, run))[-1] == ("c1", "ERROR", "refused")
    page = await shown(place, run)
    assert "refused, Not run: a person" in page
    assert "never, under the key" in page
    assert "nobody has agreed to it" in page


@pytest.mark.req("M34")
async def test_an_approval_after_its_time_is_told_as_that(place: Place) -> None:
    ran: list[int] = []
    clock = SimulatedClock()
    settings = Settings(approval_timeout_s=60, **QUICK)
    provider = ScriptedProvider(PAY, says("Too late."))
    async with served(
        place.db, provider, functions=[paying(ran)], settings=settings, clock=clock
    ) as server:
        run = await begun(server)
        await clock.advance(61)
        status, code = await decided(server, run, "c1", "approve")
        assert (status, code) in [(409, "approval_expired"), (409, "not_approvable")]
        await _until(server, run, "success")
        assert ran == []
        assert (await history(server, run))[-1] == ("c1", "ERROR", "approval_expired")
    assert "approval_expired, Not run" in (await shown(place, run))


@pytest.mark.req("M34", "M69")
async def test_a_call_of_unknown_fate_is_resolved_once(place: Place) -> None:
    async def order() -> str:
        raise FateUnknown

    provider = ScriptedProvider(asks(("c1", "order", "{}")), says("Good."))
    functions = [Function(name="order", run=order)]
    async with served(place.db, provider, functions=functions) as server:
        run = await begun(server)
        assert (await ended(server, run))["run"]["end_code"] == "tool_unknown"
        assert await decided(server, run, "c1", "approve") == (409, "not_approvable")
        for _ in range(2):
            found = await decided(server, run, "c1", "resolve", output="it is there")
            assert found == (200, "SUCCESS")
        assert (await ended(server, run))["run"]["status"] == "success"
        assert await decided(server, run, "c1", "resolve", output="it is not") == (
            400, "duplicate_tool_result",
        )  # fmt: skip
        assert [state for _, state, _ in await history(server, run)] == [
            "EXECUTING", "UNKNOWN", "SUCCESS",
        ]  # fmt: skip
    assert "SUCCESS  ← it is there" in (await shown(place, run))


@pytest.mark.req("M34")
async def test_the_applications_results_are_taken_once(place: Place) -> None:
    provider = ScriptedProvider(asks(("c1", "ask_user", "{}")), says("Blue."))
    async with served(place.db, provider) as server:
        conversation = await server.conversation()
        run = await server.send(conversation, "Go", tools=[{"name": "ask_user"}])
        await server.idle(conversation)
        path = f"{ROOT}/runs/{run['id']}/outputs"
        body = {"outputs": [{"call_id": "c1", "output": "blue"}]}
        assert [(await server.client.post(path, body)).status for _ in range(2)] == [202, 202]
        assert (await ended(server, run["id"]))["run"]["status"] == "success"
        assert (await server.client.post(path, body)).status == 202
        other = {"outputs": [{"call_id": "c1", "output": "red"}]}
        refused = await server.client.post(path, other)
        assert (refused.status, refused.json["error"]["code"]) == (400, "duplicate_tool_result")
        assert [state for _, state, _ in await history(server, run["id"])] == ["SUCCESS"]
    page = await shown(place, run["id"])
    assert "ask_user {}  SUCCESS  ← blue" in page
    assert "by the application" in page


@pytest.mark.req("M34")
async def test_a_stop_in_the_middle_of_a_tool_that_cannot_be_stopped_says_so_and_keeps_what_came_late(
    place: Place,
) -> None:
    began, go_on, dug = asyncio.Event(), threading.Event(), list[int]()
    loop = asyncio.get_running_loop()

    @tool
    def dig(metres: int) -> str:
        dug.append(metres)
        loop.call_soon_threadsafe(began.set)
        go_on.wait(WAIT_S)
        return f"dug {metres}"

    provider = ScriptedProvider(asks(("c1", "dig", '{"metres":3}'), ("c2", "dig", '{"metres":4}')))
    settings = Settings(max_parallel_tools=1, **QUICK)
    async with served(place.db, provider, functions=[dig], settings=settings) as server:
        conversation = await server.conversation()
        run = (await server.send(conversation, "Go"))["id"]
        try:
            await asyncio.wait_for(began.wait(), WAIT_S)
            stops = [await server.client.post(f"{ROOT}/runs/{run}/cancel", {}) for _ in range(2)]
            assert [(told.status, told.json["status"]) for told in stops] == [(200, "canceled")] * 2
            calls = (await server.client.get(f"{ROOT}/runs/{run}")).json["calls"]
        finally:
            go_on.set()
        assert [call["state"] for call in calls] == ["CANCELED", "CANCELED"]
        assert all("may have taken effect" in call["content"][0]["text"] for call in calls)
        async with asyncio.timeout(WAIT_S):
            while not (told := await ended(server, run))["quarantined"]:  # noqa: ASYNC110 - a thread sets no event of ours
                await asyncio.sleep(0.01)
        assert [one["reason"] for one in told["quarantined"]] == ["late_tool_result"]
        assert dug == [3], "nothing begins after a cancel, though it was claimed before"
    page = await shown(place, run)
    assert "CANCELED  ← canceled, Canceled while it was" in page
    assert "late_tool_result  c1 SUCCESS: dug 3" in page


async def _until(server: Served, run: str, status: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while (await ended(server, run))["run"]["status"] != status:  # noqa: ASYNC110 - the clock is the test's
            await asyncio.sleep(0)
