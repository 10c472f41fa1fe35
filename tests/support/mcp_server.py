"""An MCP server that misbehaves on demand, over its standard streams or over HTTP.

Every call of a tool with an effect appends a line to the file that EFFECTS names before anything
else happens, so that a test can count what really took place.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from mcp.server import MCPServer
from mcp.types import ImageContent, ResourceLink, TextContent, ToolAnnotations

server = MCPServer("misbehaving", log_level="ERROR")
EFFECTS = Path(os.environ.get("EFFECTS", os.devnull))


def effect(what: str) -> None:
    with EFFECTS.open("a", encoding="utf-8") as file:
        file.write(f"{what}\n")


@server.tool()
def pay(amount: int) -> str:
    """Pay."""
    effect(f"pay {amount}")
    return f"paid {amount}"


@server.tool()
def pay_and_die(amount: int) -> str:
    """Pay, and end before anybody hears of it."""
    effect(f"pay {amount}")
    os._exit(1)


@server.tool()
def pay_and_stall(amount: int) -> str:
    """Pay, and never answer."""
    effect(f"pay {amount}")
    time.sleep(60)
    return "late"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def look_and_die() -> str:
    """Look, and end before anybody hears of it."""
    effect("look")
    os._exit(1)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def flood(characters: int) -> str:
    """Return many characters."""
    return "x" * characters


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def fail() -> str:
    """Fail."""
    raise ValueError("no such seat")


@server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
def show() -> list[TextContent | ImageContent | ResourceLink]:
    """Return content of several kinds."""
    return [
        TextContent(text="a map"),
        ImageContent(data="aGk=", mime_type="image/png"),
        ResourceLink(name="log", uri="file:///log.txt"),
    ]


@server.tool(name="odd name/with.dots", annotations=ToolAnnotations(read_only_hint=True))
def odd() -> str:
    """Has a name that no provider takes."""
    return "odd"


if __name__ == "__main__":
    if sys.argv[1:] == ["http"]:
        import uvicorn

        app = server.streamable_http_app()
        uvicorn.run(app, port=int(os.environ["PORT"]), log_level="info", lifespan="on")
    else:
        server.run()
