"""A request that says when its bytes are about to leave.

Apart from `http`, since whatever imports this imports the client, a quarter of a second of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import aiohttp

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ClientResponse
    from aiohttp.connector import Connection


class LeavingRequest(aiohttp.ClientRequest):
    """A request of the client's that calls `on_leaving` before anything of it is written.

    The client's own traces tell the same, and build ten values a request for nobody.
    """

    on_leaving: Callable[[], None]

    async def send(self, conn: Connection) -> ClientResponse:
        """Write the request to its connection, unless `on_leaving` raises."""
        self.on_leaving()
        return await super().send(conn)
