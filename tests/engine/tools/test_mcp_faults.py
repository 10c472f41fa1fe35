"""MCP servers that do what they should not, spoken to as the older of the two eras does."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from antiphon import RunHandle
from antiphon.core.ids import CallId, ConversationId, RunId
from antiphon.core.records import CallState
from antiphon.engine.edge.clock import SystemClock
from antiphon.engine.tools.function import FateUnknown, Function, ToolContext, ToolError
from antiphon.engine.tools.mcp.connection import Connection
from antiphon.engine.tools.mcp.servers import McpServer
from antiphon.engine.tools.toolbox import Toolbox, open_toolbox
from antiphon.errors import RunCanceled
from tests.engine.tools.test_mcp import settings, text_of, turn, until_unknown
from tests.support.clock import SimulatedClock
from tests.support.engines import app_on
from tests.support.provider import ScriptedProvider, asks, says

SCRIPT = Path(__file__).parents[2] / "support" / "mcp_plain_server.py"
WAIT_S = 30.0

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def effects(tmp_path: Path) -> Path:
    return tmp_path / "effects"


def plain(effects: Path, **more: object) -> McpServer:
    starts = effects.with_name("starts")
    return McpServer(
        command=sys.executable,
        args=[str(SCRIPT)],
        env={"EFFECTS": str(effects), "STARTS": str(starts)},
        **more,  # type: ignore[arg-type]  # each test knows its fields
    )


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110 - other processes set no event
            await asyncio.sleep(0.01)


async def called(function: Function, amount: object = 1, key: str = "k1") -> str:
    context = ToolContext(
        conversation=ConversationId("conv_1"),
        run=RunId("run_1"),
        call_id=CallId("c1"),
        idempotency_key=key,
        execution=1,
    )
    async with asyncio.timeout(WAIT_S):
        (part,) = await function.run(context=context, arguments={"amount": amount})
    return str(part.text)


@pytest.mark.req("M43")
async def test_a_server_of_the_era_of_sessions_serves_and_its_hints_are_honoured(
    tmp_path: Path, effects: Path
) -> None:
    async with open_toolbox((), {"plain": plain(effects)}, SystemClock()) as box:
        (connection,) = box.connections
        assert connection.protocol == "2025-06-18"
        assert [box[f"plain_{name}"].idempotent for name in ("pay", "pay_again", "look")] == [
            False, True, False,
        ]  # fmt: skip
        assert [box[f"plain_{name}"].read_only for name in ("pay", "pay_again", "look")] == [
            False, False, True,
        ]  # fmt: skip
    (call,), _ = await turn(
        tmp_path / "a.db", ("plain_pay", '{"amount":123456789012345678901234567890}'),
        plain=plain(effects),
    )  # fmt: skip
    assert (call.state, text_of(call)) == (CallState.SUCCESS, "pay 123456789012345678901234567890")


@pytest.mark.req("M69")
async def test_a_server_is_given_the_key_of_the_call(tmp_path: Path, effects: Path) -> None:
    (call,), _ = await turn(tmp_path / "a.db", ("plain_key", '{"amount":1}'), plain=plain(effects))
    assert text_of(call) == call.idempotency_key


@pytest.mark.req("M144")
async def test_a_number_that_would_be_sent_rounded_is_not_sent(
    tmp_path: Path, effects: Path
) -> None:
    (call,), _ = await turn(
        tmp_path / "a.db", ("plain_pay", '{"amount":1e400}'), plain=plain(effects)
    )
    assert (call.state, call.code) == (CallState.ERROR, "invalid_arguments")
    assert lines(effects) == []


@pytest.mark.req("M34", "M69")
@pytest.mark.parametrize("tool", ["answer_twice", "chatter"])
async def test_a_second_answer_and_what_nobody_asked_for_are_heard_by_nobody(
    tmp_path: Path, effects: Path, tool: str
) -> None:
    provider = ScriptedProvider(
        asks(("c1", f"plain_{tool}", '{"amount":1}')),
        asks(("c2", "plain_pay", '{"amount":2}')),
        says("Done."),
    )
    own = settings(plain=plain(effects))
    async with app_on(tmp_path / "a.db", provider, clock=SystemClock(), settings=own) as app:
        run = await (await app.create()).send("Go")
        async with asyncio.timeout(WAIT_S):
            await run.result()
        rows = list((await run.explain()).calls)
    assert [text_of(row) for row in rows] == [f"{tool} 1", "pay 2"]
    assert lines(effects) == [f"{tool} 1", "pay 2"]


@pytest.mark.req("M34", "M69")
async def test_an_answer_after_its_time_changes_nothing_and_is_nobody_elses(
    tmp_path: Path, effects: Path
) -> None:
    """The server hears that the call was given up, and answers all the same."""
    provider = ScriptedProvider(
        asks(("c1", "plain_answer_late", '{"amount":1}')),
        asks(("c2", "plain_pay", '{"amount":2}')),
        says("Done."),
    )
    own = settings(plain=plain(effects, timeout_s=1.0))
    async with app_on(tmp_path / "a.db", provider, clock=SystemClock(), settings=own) as app:
        run = await (await app.create()).send("Go")
        async with asyncio.timeout(WAIT_S):
            await run.result()
        late, pay = (await run.explain()).calls
    assert (late.state, late.code) == (CallState.ERROR, "timeout_unknown")
    assert text_of(pay) == "pay 2"
    assert lines(effects) == ["answer_late 1", "canceled", "pay 2"]


# What is gone, and comes back.


class Pauses:
    """A clock whose sleepers are woken by the test, one after the other."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._woken = asyncio.Semaphore(0)

    def now_ms(self) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self._woken.acquire()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Callable[[], None]:
        raise NotImplementedError

    def wake(self) -> None:
        self._woken.release()


@pytest.mark.req("M69")
async def test_a_server_that_does_not_start_is_tried_less_and_less_often(effects: Path) -> None:
    clock, starts = Pauses(), effects.with_name("starts")
    broken = McpServer(command="sh", args=["-c", f"echo x >> {starts}"])
    connection = Connection("broken", broken, clock)

    def reached(times: int) -> bool:
        return len(clock.asked) == times

    await connection.start()
    try:
        for times in range(1, 9):
            await until(partial(reached, times))
            assert len(lines(starts)) == times
            clock.wake()
    finally:
        await connection.close()
    assert clock.asked[:8] == [0.5, 1, 2, 4, 8, 16, 30, 30]


@pytest.mark.req("M34", "M69")
async def test_while_a_server_is_away_its_tools_are_errors_that_say_so(effects: Path) -> None:
    clock = Pauses()
    async with open_toolbox((), {"plain": plain(effects)}, clock) as box:
        with pytest.raises(FateUnknown):
            await called(box["plain_die"])
        await until(lambda: clock.asked)
        for name in ("plain_pay", "plain_pay_again", "plain_look"):
            with pytest.raises(ToolError) as caught:
                await called(box[name])
            assert caught.value.code == "tool_unavailable"
            assert "nothing was run" in str(caught.value)
        assert box.missing()["plain"]
        assert lines(effects) == ["die 1"]
        clock.wake()
        await until(lambda: not box.missing())
        assert await called(box["plain_pay"]) == "pay 1"
        assert len(lines(effects.with_name("starts"))) == 2


@contextmanager
def over_http(effects: Path, port: int, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT)],
        env={**os.environ, "EFFECTS": str(effects), "PORT": str(port), **environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def web(port: int) -> dict[str, McpServer]:
    return {"web": McpServer(url=f"http://127.0.0.1:{port}/mcp")}


@pytest.mark.req("M69")
async def test_a_server_over_http_that_dies_under_a_call_leaves_its_fate_unknown(
    tmp_path: Path, effects: Path, port: int
) -> None:
    provider = ScriptedProvider(asks(("c1", "web_die", '{"amount":1}')), says("Good."))
    own = settings(**web(port))
    with over_http(effects, port):
        async with app_on(tmp_path / "a.db", provider, clock=SystemClock(), settings=own) as app:
            run = await (await app.create()).send("Go")
            call = await until_unknown(run)
            assert (call.state, lines(effects)) == (CallState.UNKNOWN, ["die 1"])


@pytest.mark.req("M69")
@pytest.mark.parametrize("tool", ["look", "pay"])
async def test_a_server_over_http_that_was_started_again_is_spoken_to_anew(
    effects: Path, port: int, tool: str
) -> None:
    """It knows nothing of the session that the one before it gave: nothing was run."""
    clock = Pauses()
    async with AsyncExitStack() as stack:
        with over_http(effects, port, SESSION="first"):
            box = await stack.enter_async_context(open_toolbox((), web(port), clock))
        stack.enter_context(over_http(effects, port, SESSION="second"))
        with pytest.raises(ToolError) as caught:
            await called(box[f"web_{tool}"])
        assert (caught.value.code, lines(effects)) == ("tool_unavailable", [])
        await until(lambda: clock.asked)
        clock.wake()
        await until(lambda: not box.missing())
        assert await called(box[f"web_{tool}"]) == f"{tool} 1"


@pytest.mark.req("M69")
@pytest.mark.parametrize("status", ["500", "502", "504"])
async def test_an_error_of_a_gateway_behind_an_effect_is_no_word_on_the_effect(
    effects: Path, port: int, status: str
) -> None:
    with over_http(effects, port, FAIL_BEHIND="pay", STATUS=status):
        async with open_toolbox((), web(port), SystemClock()) as box:
            with pytest.raises(FateUnknown):
                await called(box["web_pay"])
            with pytest.raises(ToolError) as caught:
                await called(box["web_pay_again"])
            assert "It may have been carried out" in str(caught.value)
    assert lines(effects) == ["pay 1", "pay_again 1"]


# Cancel.


async def in_mid_call(run: RunHandle, effects: Path, effect: str) -> None:
    await until(lambda: effect in lines(effects))
    await run.cancel()
    with pytest.raises(RunCanceled):
        await run.result()


@pytest.mark.req("M69")
async def test_a_server_is_told_of_a_cancel_and_the_call_says_that_it_was_running(
    tmp_path: Path, effects: Path
) -> None:
    provider = ScriptedProvider(asks(("c1", "plain_answer_late", '{"amount":1}')))
    own = settings(plain=plain(effects))
    async with app_on(tmp_path / "a.db", provider, clock=SystemClock(), settings=own) as app:
        run = await (await app.create()).send("Go")
        await in_mid_call(run, effects, "answer_late 1")
        await until(lambda: "canceled" in lines(effects))
        (call,) = (await run.explain()).calls
    assert (call.state, "may have taken effect" in text_of(call)) == (CallState.CANCELED, True)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until_deaf(box: Toolbox, effects: Path) -> tuple[asyncio.Task[str], int]:
    """Call the tool that hears nothing; return the call and a process that its server has begun."""
    call = asyncio.ensure_future(called(box["plain_deaf"]))
    await until(lambda: lines(effects)[-1:] != [] and lines(effects)[-1].startswith("child"))
    child = int(lines(effects)[-1].split()[1])
    assert alive(child)
    return call, child


@pytest.mark.req("M69")
async def test_a_server_that_a_cancel_does_not_reach_ends_with_all_its_processes_and_begins_anew(
    effects: Path,
) -> None:
    clock = SimulatedClock()
    async with open_toolbox((), {"plain": plain(effects)}, clock) as box:
        call, child = await until_deaf(box, effects)
        call.cancel()
        await asyncio.wait({call})
        await until(lambda: clock.sleeping)
        await clock.advance(5)
        await until(lambda: not alive(child))
        await until(lambda: clock.sleeping)
        await clock.advance(0.5)
        await until(lambda: not box.missing())
        assert await called(box["plain_pay"]) == "pay 1"


@pytest.mark.req("M69")
async def test_a_server_that_works_on_another_call_is_left_alone_until_it_is_let_go_of(
    effects: Path,
) -> None:
    clock = SimulatedClock()
    async with open_toolbox((), {"plain": plain(effects)}, clock) as box:
        beside = asyncio.ensure_future(called(box["plain_answer_late"]))
        await until(lambda: lines(effects))
        call, child = await until_deaf(box, effects)
        call.cancel()
        await asyncio.wait({call})
        await clock.advance(60)
        assert alive(child)
        assert not box.missing()
        beside.cancel()
        await asyncio.wait({beside})
    await until(lambda: not alive(child))
