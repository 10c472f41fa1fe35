"""An MCP server of the era of sessions, written by hand: it keeps to no rule that a test wants broken.

It knows `initialize` and not `server/discover`, and speaks JSON-RPC over its standard streams, or
over HTTP where it is given a PORT, in a SESSION where that is named. Every effect is a line in the file that EFFECTS names, before
anything else happens; so is every cancel that it is sent, and each of its starts in STARTS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

VERSION: Final = "2025-06-18"
EFFECTS: Final = Path(os.environ["EFFECTS"])
SESSION: Final = os.environ.get("SESSION")
FAIL_BEHIND: Final = os.environ.get("FAIL_BEHIND", "nothing")
"""Over HTTP, calls of tools that begin so are answered by an error of a gateway, of this STATUS."""
NUMBER: Final = {"type": "object", "properties": {"amount": {}}, "required": ["amount"]}

canceled = threading.Event()


def note(line: str) -> None:
    with EFFECTS.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def tool(name: str, **hints: bool) -> dict[str, Any]:
    return {"name": name, "inputSchema": NUMBER, "annotations": hints}


TOOLS: Final = [
    tool("pay"),
    tool("pay_again", idempotentHint=True),
    tool("look", readOnlyHint=True),
    tool("answer_twice"),
    tool("answer_late"),
    tool("die"),
    tool("chatter"),
    tool("deaf"),
    tool("key"),
]


def answers(message: dict[str, Any]) -> Iterator[dict[str, Any] | str]:
    """Yield what is written in answer to a message: JSON, or a line that is none."""
    method, params = message.get("method"), message.get("params", {})
    if method == "notifications/cancelled":
        note("canceled")
        canceled.set()
    if "id" not in message:
        return
    if method == "initialize":
        about = {"name": "plain", "version": "1"}
        yield told(
            message,
            {"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": about},
        )
    elif method == "tools/list":
        yield told(message, {"tools": TOOLS})
    elif method == "tools/call":
        if params["name"] == "key":
            yield text(message, params["_meta"]["antiphon/idempotencyKey"])
            return
        amount = params["arguments"]["amount"]
        yield from called(message, params["name"], json.dumps(amount))
    else:
        error = {"code": -32601, "message": f"no method {method}"}
        yield {"jsonrpc": "2.0", "id": message["id"], "error": error}


def called(message: dict[str, Any], name: str, amount: str) -> Iterator[dict[str, Any] | str]:
    note(f"{name} {amount}")
    if name == "die":
        os._exit(1)
    if name == "deaf":
        # A process of its own, which a signal to the server alone would leave.
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        note(f"child {child.pid}")
        time.sleep(600)
    if name == "answer_late":
        canceled.wait(30)
    if name == "chatter":
        for number in range(2000):
            yield f"progress: {number} " + "." * 200
            yield {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": number}}  # fmt: skip
            yield {"jsonrpc": "2.0", "id": f"nobody-{number}", "result": {}}
    yield text(message, f"{name} {amount}")
    if name == "answer_twice":
        yield text(message, f"{name} {amount}, said a second time")


def text(message: dict[str, Any], words: str) -> dict[str, Any]:
    return told(message, {"content": [{"type": "text", "text": words}], "isError": False})


def told(message: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def over_streams() -> None:
    lock = threading.Lock()

    def write(one: dict[str, Any] | str) -> None:
        with lock:
            print(one if isinstance(one, str) else json.dumps(one), flush=True)

    for line in sys.stdin:

        def answer(line: str = line) -> None:
            for one in answers(json.loads(line)):
                write(one)

        if '"deaf"' in line:
            answer()  # and nothing is heard meanwhile
        else:
            apart(answer)


def apart(work: Callable[[], object]) -> None:
    """Work without waiting, so that a cancel is heard while a tool works."""
    threading.Thread(target=work, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        message = json.loads(body)
        known = self.headers.get("mcp-session-id", SESSION) == SESSION
        found = [one for one in answers(message) if not isinstance(one, str)] if known else []
        answer = json.dumps(found[0]).encode() if found else b""
        status = (200 if found else 202) if known else 404
        if message.get("params", {}).get("name", "-").startswith(FAIL_BEHIND):
            status, answer = int(os.environ["STATUS"]), b""
        self.send_response(status)
        if SESSION:
            self.send_header("mcp-session-id", SESSION)
        if answer:
            self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def do_GET(self) -> None:
        self.send_error(405)

    do_DELETE = do_GET

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    if starts := os.environ.get("STARTS"):
        with Path(starts).open("a", encoding="utf-8") as file:
            file.write(f"{time.monotonic()}\n")
    if "PORT" in os.environ:
        server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler)
        print("ready", flush=True)
        server.serve_forever()
    over_streams()
