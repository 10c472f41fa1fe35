"""Let a run call the MCP project's reference servers for Node: part of `make conformance-mcp`.

They speak the era of sessions. A scripted model asks for the calls; what the ledger holds afterwards,
and what the servers have done to their files, is compared with what was asked.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from antiphon import Settings
from antiphon.core.blocks import File, Image, Text
from antiphon.core.records import Call, CallState
from antiphon.engine.edge.clock import SystemClock
from antiphon.engine.tools.mcp.servers import McpServer
from tests.mcp_conformance import BOUND_S, tools, with_node
from tests.support.engines import app_on
from tests.support.provider import ScriptedProvider, asks, says

VERSION: Final = "2026.8.31"
SERVERS: Final = ("everything", "filesystem", "memory")
TOLD: Final = "the tide is at four"


def servers(node: str, folder: Path) -> dict[str, McpServer]:
    """Return the servers as a configuration names them."""

    def server(name: str, *args: str, **env: str) -> McpServer:
        program = folder / f"node_modules/@modelcontextprotocol/server-{name}/dist/index.js"
        return McpServer(command=node, args=[str(program), *args], env=env)

    return {
        "everything": server("everything"),
        "files": server("filesystem", str(folder / "files")),
        "memory": server("memory", MEMORY_FILE_PATH=str(folder / "memory.jsonl")),
    }


async def turn(node: str, folder: Path) -> dict[str, Call]:
    """Run each call below in a run of its own step, and return the ledger by tool."""
    note = str(folder / "files/note.txt")
    entity = {"name": "tide", "entityType": "time", "observations": [TOLD]}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("files_write_file", {"path": note, "content": TOLD}),
        ("files_read_text_file", {"path": note}),
        ("files_get_file_info", {"path": "/etc/passwd"}),
        ("memory_create_entities", {"entities": [entity]}),
        ("memory_read_graph", {}),
        ("everything_get-sum", {"a": 2, "b": 3}),
        ("everything_get-tiny-image", {}),
        ("everything_get-resource-links", {"count": 2}),
        ("everything_get-structured-content", {"location": "Chicago"}),
        ("everything_get-resource-reference", {"resourceType": "Blob", "resourceId": 1}),
        ("everything_echo", {"message": 7}),
    ]
    steps = [asks((f"c{n}", name, json.dumps(given))) for n, (name, given) in enumerate(calls)]
    provider = ScriptedProvider(*steps, says("Done."))
    settings = Settings(mcp=servers(node, folder))
    async with app_on(folder / "a.db", provider, clock=SystemClock(), settings=settings) as app:
        for connection in app.engine.world.functions.connections:
            print(
                f"{connection.name}: protocol {connection.protocol}, {len(connection.tools)} tools"
            )
        run = await (await app.create()).send("Go")
        await run.result()
        return {call.name: call for call in (await run.explain()).calls}


def judged(calls: dict[str, Call], folder: Path) -> dict[str, bool]:
    """Return what holds of the calls, by name."""

    def text(name: str) -> str:
        return "\n".join(part.text for part in calls[name].content if isinstance(part, Text))

    def kinds(name: str) -> set[type]:
        return {type(part) for part in calls[name].content}

    refused = calls["files_get_file_info"]
    unfit = calls["everything_echo"]
    wrong = (refused, unfit)
    return {
        "what was written is in the file": (folder / "files/note.txt").read_text() == TOLD,
        "and is read": TOLD in text("files_read_text_file"),
        "what may not be read is an error": (refused.state, refused.code)
        == (CallState.ERROR, "tool_error"),
        "what was remembered is in the file": TOLD in (folder / "memory.jsonl").read_text(),
        "and is read from the graph": TOLD in text("memory_read_graph"),
        "a sum is right": "5" in text("everything_get-sum"),
        "an image is an image": Image in kinds("everything_get-tiny-image"),
        "links are told with their addresses": text("everything_get-resource-links").count("://")
        >= 2,
        "structured content is there": "temperature" in text("everything_get-structured-content"),
        "an embedded resource is a file": File in kinds("everything_get-resource-reference"),
        "arguments that do not fit are not sent": (unfit.state, unfit.code)
        == (CallState.ERROR, "invalid_arguments"),
        "hints are honoured": calls["files_read_text_file"].read_only
        and calls["files_write_file"].idempotent
        and not calls["memory_create_entities"].idempotent,
        "every other call succeeded": all(
            call.state is CallState.SUCCESS for call in calls.values() if call not in wrong
        ),
    }


def main() -> int:
    """Return 0 where everything holds."""
    node, npm = tools()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "files").mkdir()
        packages = [f"@modelcontextprotocol/server-{server}@{VERSION}" for server in SERVERS]
        subprocess.run(
            [*npm, "install", "--silent", "--no-save", "--prefix", name, *packages],
            check=True,
            timeout=BOUND_S * 4,
            env=with_node(node),
        )
        found = judged(asyncio.run(turn(node, folder)), folder)
    for what, holds in found.items():
        print(f"{'passed' if holds else 'failed':8} {what}")
    print(f"{sum(found.values())} of {len(found)} hold")
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
