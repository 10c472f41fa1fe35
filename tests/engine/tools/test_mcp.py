"""MCP servers as tools: real servers over their own streams and over HTTP, well and misbehaving."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from antiphon import CallsWaiting, RunHandle, Settings, Text
from antiphon.core.blocks import Image
from antiphon.core.ids import ConversationId
from antiphon.core.records import Approval, Call, CallState, RunStatus
from antiphon.engine.edge.clock import SystemClock
from antiphon.engine.tools.mcp.connection import tool_name
from antiphon.engine.tools.mcp.servers import Asking, McpServer, read_servers
from antiphon.engine.tools.toolbox import open_toolbox
from antiphon.errors import InvalidInput
from antiphon.library import Antiphon
from tests.support.engines import app_on
from tests.support.provider import ScriptedProvider, Step, asks, says

BIN = Path(sys.executable).parent
TIME = McpServer(command=str(BIN / "mcp-server-time"), args=["--local-timezone", "UTC"])
SCRIPT = Path(__file__).parents[2] / "support" / "mcp_server.py"

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def misbehaving(effects: Path, **changes: object) -> McpServer:
    return McpServer(
        command=sys.executable,
        args=[str(SCRIPT)],
        env={"EFFECTS": str(effects)},
        **changes,  # type: ignore[arg-type]  # each test knows its fields
    )


def settings(**servers: McpServer) -> Settings:
    return Settings(retry_base_s=0.0, cancel_grace_s=0.0, mcp=servers)


async def turn(
    db: Path, call: tuple[str, str], **servers: McpServer
) -> tuple[list[Call], ScriptedProvider]:
    """Let the model ask for one call, then answer; return the ledger."""
    provider = ScriptedProvider(asks(("c1", *call)), says("Done."))
    async with app_on(db, provider, clock=SystemClock(), settings=settings(**servers)) as app:
        run = await (await app.create()).send("Go")
        async with asyncio.timeout(30):
            await run.result()
        return list((await run.explain()).calls), provider


def text_of(call: Call) -> str:
    return "".join(part.text for part in call.content if isinstance(part, Text))


@pytest.fixture
def effects(tmp_path: Path) -> Path:
    return tmp_path / "effects"


def count(effects: Path) -> int:
    return len(effects.read_text().splitlines()) if effects.exists() else 0


@pytest.mark.req("M43")
async def test_a_servers_tools_are_offered_and_its_hints_are_honoured(tmp_path: Path) -> None:
    (call,), provider = await turn(
        tmp_path / "a.db", ("clock_get_current_time", '{"timezone":"UTC"}'), clock=TIME
    )
    assert (call.state, call.read_only) == (CallState.SUCCESS, True)
    assert json.loads(text_of(call))["timezone"] == "UTC"
    offered = [tool["function"]["name"] for tool in json.loads(provider.bodies[0])["tools"]]
    assert offered == ["clock_get_current_time", "clock_convert_time"]


async def test_an_error_of_a_tool_is_a_result_that_the_model_can_read(tmp_path: Path) -> None:
    (call,), _ = await turn(
        tmp_path / "a.db", ("clock_get_current_time", '{"timezone":"Nowhere/Bad"}'), clock=TIME
    )
    assert (call.state, call.code) == (CallState.ERROR, "tool_error")
    assert "Nowhere/Bad" in text_of(call)


def make_repository(repo: Path) -> None:
    """Make one with a commit and a staged file."""
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    (repo / "a.txt").write_text("a")
    for command in (
        ["config", "user.name", "t"],
        ["config", "user.email", "t@t.invalid"],
        ["commit", "-q", "--allow-empty", "-m", "first"],
        ["add", "a.txt"],
    ):
        subprocess.run(["git", "-C", str(repo), *command], check=True)


def commits(repo: Path) -> int:
    done = subprocess.run(
        ["git", "-C", str(repo), "rev-list", "--count", "HEAD"], capture_output=True, check=True
    )
    return int(done.stdout)


@pytest.mark.req("M69")
async def test_an_effect_happens_once_where_the_model_asks_for_a_commit(tmp_path: Path) -> None:
    """The reference server for git: commits can be counted by git itself."""
    repo = tmp_path / "repo"
    make_repository(repo)
    server = McpServer(command=str(BIN / "mcp-server-git"), args=["--repository", str(repo)])
    arguments = json.dumps({"repo_path": str(repo), "message": "second"})
    provider = ScriptedProvider(
        asks(("c1", "git_git_commit", arguments), ("c2", "git_git_commit", arguments)),
        says("Committed."),
    )
    async with app_on(
        tmp_path / "a.db", provider, clock=SystemClock(), settings=settings(git=server)
    ) as app:
        run = await (await app.create()).send("Commit")
        async with asyncio.timeout(30):
            await run.result()
        calls = list((await run.explain()).calls)
    assert [call.state for call in calls] == [CallState.SUCCESS, CallState.SUCCESS]
    assert calls[1].reused_from == "c1"
    assert commits(repo) == 2


async def test_content_of_every_kind_comes_through(tmp_path: Path, effects: Path) -> None:
    (call,), _ = await turn(tmp_path / "a.db", ("bad_show", "{}"), bad=misbehaving(effects))
    text, image, link = call.content
    assert text == Text(text="a map")
    assert image == Image(media_type="image/png", data="aGk=")
    assert isinstance(link, Text)
    assert "file:///log.txt" in link.text


@pytest.mark.req("M145")
async def test_a_flood_is_kept_whole_and_cut_for_the_model(tmp_path: Path, effects: Path) -> None:
    (call,), provider = await turn(
        tmp_path / "a.db",
        ("bad_flood", '{"characters":150000}'),
        bad=misbehaving(effects, max_result_chars=1000),
    )
    assert len(text_of(call)) == 150_000
    (told,) = [m["content"] for m in provider.messages() if m["role"] == "tool"]
    assert isinstance(told, str)
    assert len(told) < 1200
    assert "of 150000 characters" in told


async def until_unknown(run: RunHandle) -> Call:
    async with asyncio.timeout(30):
        async for event in run.events():
            if isinstance(event, CallsWaiting):
                return event.calls[0]
    raise AssertionError("the run did not wait")


async def started(app: Antiphon, provider: ScriptedProvider, *scripts: list[Step]) -> RunHandle:
    provider.scripts = list(scripts)
    return await (await app.create()).send("Go")


@pytest.mark.req("M69")
async def test_a_server_that_dies_after_the_effect_leaves_a_call_of_unknown_fate_and_comes_back(
    tmp_path: Path, effects: Path
) -> None:
    provider = ScriptedProvider()
    own = settings(bad=misbehaving(effects))
    async with app_on(tmp_path / "a.db", provider, clock=SystemClock(), settings=own) as app:
        run = await started(
            app, provider, asks(("c1", "bad_pay_and_die", '{"amount":1}')), says("Good.")
        )
        call = await until_unknown(run)
        assert (call.state, count(effects)) == (CallState.UNKNOWN, 1)
        assert (await run.row()).end_code == "tool_unknown"
        async with asyncio.timeout(30):
            assert (await (await run.resolve("c1", "it is paid")).result()).text == "Good."
        assert count(effects) == 1
        # It was started again by itself, and serves the next run.
        states: list[tuple[CallState, str | None]] = []
        async with asyncio.timeout(30):
            while not states or states[-1][0] is not CallState.SUCCESS:
                run = await started(
                    app, provider, asks(("c1", "bad_pay", '{"amount":2}')), says("Paid.")
                )
                await run.result()
                (row,) = (await run.explain()).calls
                states.append((row.state, row.code))
        assert set(states[:-1]) <= {(CallState.ERROR, "tool_unavailable")}
        assert count(effects) == 2


async def test_a_reading_tool_whose_server_dies_is_an_error_at_once(
    tmp_path: Path, effects: Path
) -> None:
    (call,), _ = await turn(tmp_path / "a.db", ("bad_look_and_die", "{}"), bad=misbehaving(effects))
    assert (call.state, call.code) == (CallState.ERROR, "tool_unavailable")


@pytest.mark.req("M69")
async def test_a_server_that_pays_and_does_not_answer_in_time_is_told_as_that(
    tmp_path: Path, effects: Path
) -> None:
    (call,), _ = await turn(
        tmp_path / "a.db",
        ("bad_pay_and_stall", '{"amount":1}'),
        bad=misbehaving(effects, timeout_s=0.5),
    )
    assert (call.state, call.code, count(effects)) == (CallState.ERROR, "timeout_unknown", 1)
    assert "may have taken effect" in text_of(call)


async def test_calls_that_write_wait_for_approval_where_the_file_says_so(
    tmp_path: Path, effects: Path
) -> None:
    provider = ScriptedProvider()
    own = settings(bad=misbehaving(effects, approval=Asking.WRITES))
    async with app_on(tmp_path / "a.db", provider, clock=SystemClock(), settings=own) as app:
        run = await started(
            app,
            provider,
            asks(("c1", "bad_flood", '{"characters":3}'), ("c2", "bad_pay", '{"amount":1}')),
            says("Paid."),
        )
        call = await until_unknown(run)
        assert (call.call_id, call.approval, count(effects)) == ("c2", Approval.NEEDED, 0)
        async with asyncio.timeout(30):
            assert (await (await run.approve("c2")).result()).text == "Paid."
        assert count(effects) == 1


async def test_a_server_that_cannot_be_started_is_told_and_the_others_serve(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = {
        "gone": McpServer(command="/nonexistent/server"),
        "closed": McpServer(url="http://127.0.0.1:9/mcp", token_env="NO_SUCH_TOKEN"),
        "clock": TIME,
    }
    async with open_toolbox((), servers, SystemClock()) as toolbox:
        assert set(toolbox) == {"clock_get_current_time", "clock_convert_time"}
        assert [one.protocol for one in toolbox.connections] == [None, None, "2026-07-28"]
        gone, closed, clock = toolbox.told()
        assert "nonexistent" in gone
        assert "NO_SUCH_TOKEN" in closed
        assert clock == "clock: 2 tools"
    told = sorted(record.message for record in caplog.records)
    assert [message.split(" is not there")[0] for message in told] == [
        "The MCP server closed",
        "The MCP server gone",
    ]


async def test_a_call_that_found_no_server_runs_when_the_server_comes(
    tmp_path: Path, effects: Path
) -> None:
    db, there = tmp_path / "a.db", tmp_path / "there"
    script = 'test -e "$0" && exec "$@"'
    late = McpServer(
        command="sh",
        args=["-c", script, str(there), sys.executable, str(SCRIPT)],
        env={"EFFECTS": str(effects)},
        approval=Asking.ALWAYS,
    )
    provider = ScriptedProvider()
    there.touch()
    async with app_on(db, provider, clock=SystemClock(), settings=settings(bad=late)) as app:
        run = await started(app, provider, asks(("c1", "bad_pay", '{"amount":1}')), says("Paid."))
        await until_unknown(run)
    there.unlink()
    async with app_on(db, provider, clock=SystemClock(), settings=settings(bad=late)) as app:
        again = await (await app.conversation(run.conversation)).run(run.id)
        await again.approve("c1")
        await app.engine.idle(ConversationId(run.conversation))
        assert (await again.row()).status is RunStatus.WAITING
        assert count(effects) == 0
        there.touch()
        async with asyncio.timeout(30):
            while (await again.row()).open:
                await app.engine.idle(ConversationId(run.conversation))
                await asyncio.sleep(0.01)
        assert (await again.row()).status is RunStatus.SUCCESS
    assert count(effects) == 1


# Over HTTP.


@pytest.fixture
def address(effects: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "EFFECTS": str(effects), "PORT": str(port)}
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), "http"], env=environment, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        assert any("running on" in line for line in process.stderr), "the server did not start"
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


async def test_a_server_over_http_serves_as_one_over_its_streams_does(
    tmp_path: Path, effects: Path, address: str
) -> None:
    (call,), _ = await turn(
        tmp_path / "a.db", ("web_pay", '{"amount":5}'), web=McpServer(url=address)
    )
    assert (call.state, text_of(call), count(effects)) == (CallState.SUCCESS, "paid 5", 1)


# Names and configuration.


def test_names_are_what_every_provider_takes_and_no_two_tools_share_one() -> None:
    names = [
        tool_name("files", "read"),
        tool_name("files", "odd name/with.dots"),
        tool_name("files", "odd name.with/dots"),
        tool_name("files", "x" * 80 + "1"),
        tool_name("files", "x" * 80 + "2"),
    ]
    assert names[0] == "files_read"
    assert len(set(names)) == 5
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)


def test_the_files_tables_are_read() -> None:
    found = read_servers(
        {"files": {"command": "x", "args": ["/srv"], "approval": "writes"}}, "antiphon.toml"
    )
    assert found == {"files": McpServer(command="x", args=["/srv"], approval=Asking.WRITES)}


@pytest.mark.parametrize(
    ("table", "at"),
    [
        ({"files": {}}, "mcp.files"),
        ({"files": {"command": "x", "url": "http://x"}}, "mcp.files"),
        ({"files": {"url": "ftp://x"}}, "mcp.files"),
        ({"files": {"command": "x", "colour": 1}}, "mcp.files"),
        ({"files": {"command": "x", "timeout_s": 0}}, "mcp.files"),
        ({"no name": {"command": "x"}}, "mcp.no name"),
        ("files", "mcp"),
    ],
)
def test_a_table_that_means_nothing_is_refused_with_its_place(table: object, at: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_servers(table, "antiphon.toml")
    assert caught.value.code == "invalid_setting"
    assert caught.value.at == f"antiphon.toml: {at}"
