"""Which MCP servers the configuration names.

[mcp.files]
command = "mcp-server-filesystem"
args = ["/srv/files"]

[mcp.search]
url = "https://tools.example/mcp"
token_env = "SEARCH_TOKEN"
approval = "writes"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from antiphon.errors import InvalidInput

NAME: Final = re.compile(r"[A-Za-z0-9-]{1,24}")


class Asking(StrEnum):
    """Which calls of a server wait for somebody to agree."""

    NEVER = "never"
    WRITES = "writes"
    """Those of tools that are not declared read-only."""
    ALWAYS = "always"


class McpServer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server: a command to start and to talk to over its standard streams, or an address.

    Attributes:
        env: What the command finds in its environment beside a few harmless variables of ours.
        token_env: The variable that holds the bearer token for `url`.
        timeout_s: Seconds until a call's outcome counts as unknown.
        only: Names of the tools that models are offered; all where it is empty.
    """

    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}
    url: str = ""
    token_env: str = ""
    timeout_s: Annotated[float, Meta(gt=0, le=86_400)] = 60.0
    approval: Asking = Asking.NEVER
    max_result_chars: Annotated[int, Meta(ge=0)] | None = None
    only: list[str] = []


def read_servers(tables: object, place: str) -> Mapping[str, McpServer]:
    """Return the servers of the file's `[mcp.NAME]` tables.

    Raises:
        InvalidInput: `invalid_setting`; `at` is the place.
    """
    if not isinstance(tables, dict):
        raise _bad(f"{place}: mcp", "Servers are tables, such as [mcp.files].")
    found = {}
    for name, table in tables.items():
        at = f"{place}: mcp.{name}"
        if NAME.fullmatch(name) is None:
            raise _bad(at, "A server's name is 1 to 24 letters, digits or hyphens.")
        try:
            server = msgspec.convert(table, McpServer)
        except msgspec.ValidationError as error:
            raise _bad(at, f"{error}.") from None
        if bool(server.command) == bool(server.url):
            raise _bad(at, "A server has either a command or a url.")
        if server.url and not server.url.startswith(("http://", "https://")):
            raise _bad(at, "A url begins with http:// or https://.")
        found[name] = server
    return found


def _bad(at: str, message: str) -> InvalidInput:
    return InvalidInput(message, code="invalid_setting", at=at)
