"""Commands that write while a server holds the database go through that server."""

from __future__ import annotations

import os
from typing import Any

from antiphon.cli.opening import KEY_VARIABLE
from antiphon.errors import AntiphonError, InvalidInput


async def through(
    server: str, method: str, path: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Ask the server that has the database, at a path of ours, and return what it says.

    Raises:
        InvalidInput: It refused.
        AntiphonError: `server_unreachable`.
    """
    import aiohttp

    secret = os.environ.get(KEY_VARIABLE)
    headers = {"authorization": f"Bearer {secret}"} if secret else {}
    told: dict[str, Any] = {}
    problem: str | None = None
    try:
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, f"{server}/antiphon/v1{path}", json=body) as answer,
        ):
            told = await answer.json()
    except aiohttp.ClientError as error:
        problem = str(error)
    if problem is not None:
        raise AntiphonError(
            f"The server at {server} has the database and does not answer: {problem}",
            code="server_unreachable",
        )
    if "error" in told:
        refused = told["error"]
        hint = f" Put a key with the right to do so into {KEY_VARIABLE}."
        raise InvalidInput(
            refused["message"] + (hint if refused["code"] in ("bad_key", "forbidden") else ""),
            code=refused["code"],
            at=refused["at"],
        )
    return told
