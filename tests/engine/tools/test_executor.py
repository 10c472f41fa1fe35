"""Tool turns over a real store: what runs, how often, and what the model is told."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path

import msgspec
import pytest

from antiphon import (
    Ask,
    CallsWaiting,
    Ended,
    FateUnknown,
    Function,
    Lookup,
    RunHandle,
    Settings,
    ToolContext,
    ToolError,
    tool,
)
from antiphon.core.blocks import Text
from antiphon.core.manifest import ToolDeclaration
from antiphon.core.records import Approval, Call, CallState, RunStatus
from antiphon.core.tools.ledger import WAS_RUNNING
from antiphon.errors import Conflict, InvalidInput, ProviderFailed, RunCanceled
from tests.support.clock import SimulatedClock
from tests.support.engines import app_on
from tests.support.provider import ScriptedProvider, asks, says

QUICK = {"retry_base_s": 0.0, "cancel_grace_s": 0.0}


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "antiphon.db"


async def calls(run: RunHandle) -> list[Call]:
    return list((await run.explain()).calls)


async def waiting(run: RunHandle) -> CallsWaiting:
    async for event in run.events():
        if isinstance(event, CallsWaiting):
            return event
        assert not isinstance(event, Ended)
    raise AssertionError("it did not wait")


async def final(run: RunHandle) -> str:
    """Return the answer of a run that nobody but the clock lets go on."""
    async with asyncio.timeout(5):
        while True:
            try:
                return (await run.result()).text
            except ProviderFailed as error:
                assert error.code == "missing_tool_result"  # noqa: PT017 - it waits still
            await asyncio.sleep(0)


def told(provider: ScriptedProvider, call_id: str) -> str:
    """Return what the newest request says of a call."""
    found = [m for m in provider.messages() if m.get("tool_call_id") == call_id]
    assert len(found) == 1
    content = found[0]["content"]
    return content if isinstance(content, str) else json.dumps(content)


@pytest.mark.req("M143", "M146")
async def test_the_same_call_again_is_answered_from_the_ledger_and_says_whose_result_it_has(
    db: Path,
) -> None:
    ran: list[int] = []

    @tool
    def pay(amount: int) -> str:
        ran.append(amount)
        return f"paid {amount}"

    provider = ScriptedProvider(
        asks(("c1", "pay", '{"amount":1}')),
        asks(("c2", "pay", '{ "amount": 1 }'), ("c3", "pay", '{"amount":2}')),
        says("Done."),
    )
    async with app_on(db, provider, functions=[pay]) as app:
        run = await (await app.create()).send("Pay")
        assert (await run.result()).text == "Done."
        assert ran == [1, 2]
        rows = await calls(run)
        assert [(row.state, row.reused_from) for row in rows] == [
            (CallState.SUCCESS, None),
            (CallState.SUCCESS, "c1"),
            (CallState.SUCCESS, None),
        ]
        assert told(provider, "c2") == "paid 1"


@pytest.mark.req("M143")
async def test_the_same_call_twice_in_one_answer_runs_once(db: Path) -> None:
    ran: list[int] = []

    @tool
    async def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    provider = ScriptedProvider(
        asks(("c1", "pay", '{"amount":1}'), ("c2", "pay", '{"amount":1}')), says("Once.")
    )
    async with app_on(db, provider, functions=[pay]) as app:
        run = await (await app.create()).send("Pay")
        assert (await run.result()).text == "Once."
        assert ran == [1]
        assert [row.reused_from for row in await calls(run)] == [None, "c1"]


@pytest.mark.req("M143")
async def test_a_model_that_asks_the_same_over_and_over_is_told_so(db: Path) -> None:
    ran: list[str] = []

    @tool(read_only=True)
    def read(path: str) -> str:
        ran.append(path)
        return "nothing new"

    turns = [asks((f"c{n}", "read", '{"path":"log"}')) for n in range(1, 6)]
    provider = ScriptedProvider(*turns, says("Nothing."))
    async with app_on(db, provider, functions=[read]) as app:
        run = await (await app.create()).send("Read")
        assert (await run.result()).text == "Nothing."
        assert ran == ["log"]
        codes = [row.code for row in await calls(run)]
        assert codes == [None, None, None, "repeated_call", "repeated_call"]
        assert "3 times before" in told(provider, "c4")


@pytest.mark.req("M145")
async def test_a_long_result_is_whole_in_the_ledger_and_cut_for_the_model(db: Path) -> None:
    @tool(max_result_chars=100)
    def flood() -> str:
        return "x" * 5000

    provider = ScriptedProvider(asks(("c1", "flood", "{}")), says("Enough."))
    async with app_on(db, provider, functions=[flood]) as app:
        run = await (await app.create()).send("Flood")
        await run.result()
        assert (await calls(run))[0].content == (Text(text="x" * 5000),)
        shown = told(provider, "c1")
        assert "first 100 of 5000" in shown
        assert "x" * 101 not in shown


@pytest.mark.req("M145")
async def test_a_model_that_asks_for_the_rest_as_it_is_told_gets_it(db: Path) -> None:
    text = "".join(f"line {n}\n" for n in range(40))

    @tool(max_result_chars=120)
    def read(start: int = 0, length: int = 1000) -> str:
        return text[start : start + length]

    provider = ScriptedProvider(
        asks(("c0", "read", "{}")),
        asks(("c1", "read", '{"start":120,"length":100}')),
        asks(("c2", "read", '{"start":220,"length":100}')),
        says("Read."),
    )
    async with app_on(db, provider, functions=[read]) as app:
        run = await (await app.create()).send("Read")
        await run.result()
    shown = [told(provider, f"c{n}") for n in range(3)]
    assert "Ask for a smaller part to see the rest." in shown[0]
    assert shown[0].startswith(text[:100])
    assert shown[1:] == [text[120:220], text[220:320]]


@pytest.mark.req("M69")
@pytest.mark.parametrize("sync", [False, True], ids=["async", "in a thread"])
async def test_a_function_that_takes_longer_than_its_time_is_told_as_that(
    db: Path, sync: bool
) -> None:
    go_on = threading.Event()

    @tool(timeout_s=0.05)
    async def dig() -> str:
        await asyncio.Event().wait()
        return "dug"

    @tool(timeout_s=0.05, name="dig")
    def dig_in_a_thread() -> str:
        go_on.wait(10)
        return "dug"

    provider = ScriptedProvider(asks(("c1", "dig", "{}")), says("Hm."))
    function = dig_in_a_thread if sync else dig
    try:
        async with app_on(db, provider, functions=[function]) as app:
            run = await (await app.create()).send("Dig")
            assert (await run.result()).text == "Hm."
            (row,) = await calls(run)
            assert (row.state, row.code) == (CallState.ERROR, "timeout_unknown")
            assert "may have taken effect" in told(provider, "c1")
            go_on.set()
    finally:
        go_on.set()


async def test_an_error_in_a_tools_own_words_has_its_code(db: Path) -> None:
    @tool
    def book(seat: str) -> str:
        raise ToolError(f"{seat} is taken", code="taken")

    provider = ScriptedProvider(asks(("c1", "book", '{"seat":"1A"}')), says("Sorry."))
    async with app_on(db, provider, functions=[book]) as app:
        run = await (await app.create()).send("Book")
        await run.result()
        (row,) = await calls(run)
        assert (row.state, row.code) == (CallState.ERROR, "taken")
        assert "1A is taken" in told(provider, "c1")


@pytest.mark.req("M144")
@pytest.mark.parametrize("amount", ["1e400", "0.10000000000000000555"])
async def test_a_number_that_a_function_would_be_given_rounded_is_refused(
    db: Path, amount: str
) -> None:
    ran: list[object] = []
    pay = Function(name="pay", run=ran.append, parameters={"type": "object"})
    provider = ScriptedProvider(asks(("c1", "pay", f'{{"object":{amount}}}')), says("Sorry."))
    async with app_on(db, provider, functions=[pay]) as app:
        run = await (await app.create()).send("Pay")
        await run.result()
        (row,) = await calls(run)
        assert (row.state, row.code, ran) == (CallState.ERROR, "invalid_arguments", [])
        assert amount in told(provider, "c1")


async def test_a_function_that_meets_an_answer_of_the_wrong_shape_is_not_said_not_to_have_run(
    db: Path,
) -> None:
    """What it paid is paid, though what it read afterwards was not what it expected."""
    reads: list[int] = []

    @tool
    def pay(amount: int) -> str:
        return msgspec.json.decode(b"[]", type=str)

    @tool(read_only=True)
    def balance() -> int:
        reads.append(1)
        return len(reads)

    provider = ScriptedProvider(
        asks(("c1", "balance", "{}")),
        asks(("c2", "pay", '{"amount":1}')),
        asks(("c3", "balance", "{}")),
        says("Hm."),
    )
    async with app_on(db, provider, functions=[pay, balance]) as app:
        run = await (await app.create()).send("Pay")
        await run.result()
        row = (await calls(run))[1]
        assert (row.state, row.code) == (CallState.ERROR, "exception")
        assert "Nothing was run" not in told(provider, "c2")
        assert len(reads) == 2, "what was read before may be another after it"


async def test_a_callers_tool_may_not_take_the_name_of_one_that_runs_here(db: Path) -> None:
    @tool
    def pay(amount: int) -> str:
        return str(amount)

    provider = ScriptedProvider(says("Fine."))
    async with app_on(db, provider, functions=[pay]) as app:
        chat = await app.create()
        with pytest.raises(InvalidInput) as caught:
            await chat.send("Hi", ask=Ask(tools=(ToolDeclaration(name="pay"),)))
        assert (caught.value.code, caught.value.at) == ("tool_name_conflict", "pay")
        # Naming one of ours as it is chooses among them.
        run = await chat.send("Hi", ask=Ask(tools=(pay.declaration,)))
        assert (await run.result()).text == "Fine."


# Approval.


def approved_tool(ran: list[int]) -> Function:
    @tool(approval=True)
    def pay(amount: int) -> str:
        ran.append(amount)
        return f"paid {amount}"

    return pay


async def test_a_call_that_needs_approval_waits_for_it_and_then_runs_once(db: Path) -> None:
    ran: list[int] = []
    provider = ScriptedProvider(asks(("c1", "pay", '{"amount":1}')), says("Paid."))
    async with app_on(db, provider, functions=[approved_tool(ran)]) as app:
        run = await (await app.create()).send("Pay")
        (call,) = (await waiting(run)).calls
        assert call.approval is Approval.NEEDED
        assert (await run.row()).end_code == "approval_required"
        assert not ran
        run = await run.approve("c1")
        assert (await run.result()).text == "Paid."
        assert ran == [1]
        with pytest.raises(Conflict) as caught:
            await run.approve("c1", arguments='{"amount":9}')
        assert caught.value.code == "not_approvable"


async def test_approval_survives_a_restart(db: Path) -> None:
    ran: list[int] = []
    provider = ScriptedProvider(asks(("c1", "pay", '{"amount":1}')), says("Paid."))
    async with app_on(db, provider, functions=[approved_tool(ran)]) as app:
        chat = await app.create()
        run = await chat.send("Pay")
        await waiting(run)
    async with app_on(db, provider, functions=[approved_tool(ran)]) as app:
        again = await (await app.conversation(chat.id)).run(run.id)
        assert not ran
        assert (await (await again.approve("c1")).result()).text == "Paid."
        assert ran == [1]


async def test_changed_arguments_are_run_and_the_model_is_told(db: Path) -> None:
    ran: list[int] = []
    provider = ScriptedProvider(asks(("c1", "pay", '{"amount":100}')), says("Paid."))
    async with app_on(db, provider, functions=[approved_tool(ran)]) as app:
        run = await (await app.create()).send("Pay")
        await waiting(run)
        for bad in ('{"amount":"x"}', '{"amount":1', '{"amount":1,"amount":2}', "[]"):
            with pytest.raises(InvalidInput) as caught:
                await run.approve("c1", arguments=bad)
            assert caught.value.code == "invalid_arguments"
        run = await run.approve("c1", arguments='{"amount":1}')
        assert (await run.result()).text == "Paid."
        assert ran == [1]
        (row,) = await calls(run)
        assert (row.arguments, row.changed_arguments) == ('{"amount":100}', '{"amount":1}')
        assert "A person changed the arguments" in told(provider, "c1")


async def test_a_refused_call_does_not_run_and_the_model_is_told_why(db: Path) -> None:
    ran: list[int] = []
    provider = ScriptedProvider(asks(("c1", "pay", '{"amount":1}')), says("Not paid."))
    async with app_on(db, provider, functions=[approved_tool(ran)]) as app:
        run = await (await app.create()).send("Pay")
        await waiting(run)
        run = await run.refuse("c1", reason="Too much.")
        assert await final(run) == "Not paid."
        assert not ran
        assert [row.code for row in await calls(run)] == ["refused"]
        assert "Too much." in told(provider, "c1")


async def test_an_approval_that_comes_too_late_is_refused_and_the_call_is_closed(
    db: Path,
) -> None:
    ran: list[int] = []
    provider = ScriptedProvider(asks(("c1", "pay", '{"amount":1}')), says("Not paid."))
    clock = SimulatedClock()
    settings = Settings(approval_timeout_s=60, **QUICK)  # type: ignore[arg-type]  # floats
    async with app_on(
        db, provider, functions=[approved_tool(ran)], settings=settings, clock=clock
    ) as app:
        run = await (await app.create()).send("Pay")
        await waiting(run)
        await clock.advance(59)
        assert (await run.row()).status is RunStatus.WAITING
        await clock.advance(2)
        assert await final(run) == "Not paid."
        assert [row.code for row in await calls(run)] == ["approval_expired"]
        assert not ran


# Calls of unknown fate.


@pytest.mark.req("M69")
async def test_a_call_of_unknown_fate_is_looked_up_and_never_run_again(db: Path) -> None:
    ran: list[str] = []
    answers: list[object] = [Lookup.RUNNING, Lookup.RUNNING, "survey 7"]
    asked: list[str] = []

    async def order() -> str:
        ran.append("order")
        raise FateUnknown

    async def status(context: ToolContext) -> object:
        asked.append(context.idempotency_key)
        return answers.pop(0)

    provider = ScriptedProvider(asks(("c1", "order", "{}")), says("Ordered."))
    clock = SimulatedClock()
    function = Function(name="order", run=order, lookup=status)
    async with app_on(db, provider, functions=[function], clock=clock) as app:
        run = await (await app.create()).send("Order")
        event = await waiting(run)
        assert event.calls[0].state is CallState.UNKNOWN
        assert (await run.row()).end_code == "tool_unknown"
        await clock.advance(30)
        assert await final(run) == "Ordered."
        assert ran == ["order"]
        assert len(set(asked)) == 1
        assert "survey 7" in told(provider, "c1")


@pytest.mark.req("M69")
async def test_not_executed_counts_only_after_the_deadline(db: Path) -> None:
    async def order() -> str:
        raise FateUnknown

    def status(_: ToolContext) -> Lookup:
        return Lookup.NOT_EXECUTED

    provider = ScriptedProvider(asks(("c1", "order", "{}")), says("Try later."))
    clock = SimulatedClock()
    function = Function(name="order", run=order, lookup=status, timeout_s=60)
    async with app_on(db, provider, functions=[function], clock=clock) as app:
        run = await (await app.create()).send("Order")
        await waiting(run)
        await clock.advance(55)
        assert (await run.row()).status is RunStatus.WAITING
        await clock.advance(10)
        assert await final(run) == "Try later."
        assert [row.code for row in await calls(run)] == ["not_executed"]


@pytest.mark.req("M69")
async def test_where_nobody_can_be_asked_the_model_is_told_after_the_deadline(db: Path) -> None:
    async def order() -> str:
        raise FateUnknown

    provider = ScriptedProvider(asks(("c1", "order", "{}")), says("Who knows."))
    clock = SimulatedClock()
    function = Function(name="order", run=order, timeout_s=60)
    async with app_on(db, provider, functions=[function], clock=clock) as app:
        run = await (await app.create()).send("Order")
        await waiting(run)
        await clock.advance(61)
        assert await final(run) == "Who knows."
        assert [row.code for row in await calls(run)] == ["timeout_unknown"]


async def test_a_person_may_say_what_became_of_it(db: Path) -> None:
    async def order() -> str:
        raise FateUnknown

    provider = ScriptedProvider(asks(("c1", "order", "{}")), says("Good."))
    async with app_on(db, provider, functions=[Function(name="order", run=order)]) as app:
        run = await (await app.create()).send("Order")
        await waiting(run)
        run = await run.resolve("c1", "it is there")
        assert (await run.result()).text == "Good."
        with pytest.raises(Conflict) as caught:
            await run.resolve("c1", "it is not")
        assert caught.value.code == "duplicate_tool_result"


# Cancel, and many at once.


async def test_a_cancel_stops_what_can_be_stopped_and_says_that_it_may_have_taken_effect(
    db: Path,
) -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    async def dig() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    provider = ScriptedProvider(asks(("c1", "dig", "{}")))
    async with app_on(db, provider, functions=[Function(name="dig", run=dig)]) as app:
        run = await (await app.create()).send("Dig")
        await asyncio.wait_for(began.wait(), 5)
        await run.cancel()
        await asyncio.wait_for(stopped.wait(), 5)
        with pytest.raises(RunCanceled):
            await run.result()
        (row,) = await calls(run)
        assert (row.state, row.content) == (CallState.CANCELED, (Text(text=WAS_RUNNING),))


async def test_no_more_tools_run_at_once_than_the_setting_allows(db: Path) -> None:
    at_once, most = 0, 0

    @tool
    async def work(n: int) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        for _ in range(5):
            await asyncio.sleep(0)
        at_once -= 1
        return str(n)

    many = [(f"c{n}", "work", f'{{"n":{n}}}') for n in range(10)]
    provider = ScriptedProvider(asks(*many), says("All."))
    settings = Settings(max_parallel_tools=3, **QUICK)  # type: ignore[arg-type]  # floats
    async with app_on(db, provider, functions=[work], settings=settings) as app:
        run = await (await app.create()).send("Work")
        await run.result()
        assert most == 3
        results = [m["tool_call_id"] for m in provider.messages() if m["role"] == "tool"]
        assert results == [call_id for call_id, _, _ in many]
