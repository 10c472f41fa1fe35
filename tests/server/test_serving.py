"""How a process that serves treats what it has made."""

from __future__ import annotations

import asyncio
import gc
import socket

from antiphon.engine.settings import Settings
from antiphon.server.http.serving import NEW_OBJECTS, listen, seldom_collected


def test_what_was_there_before_is_not_looked_through_while_it_serves() -> None:
    before = gc.get_threshold(), gc.get_freeze_count()
    circle: list[object] = []
    circle.append(circle)
    with seldom_collected():
        assert all(one is not circle for one in gc.get_objects())
        assert gc.get_threshold() == (NEW_OBJECTS, *before[0][1:])
    assert any(one is circle for one in gc.get_objects())
    assert (gc.get_threshold(), gc.get_freeze_count()) == before


async def test_what_is_written_to_a_client_does_not_wait_for_its_word() -> None:
    told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = writer.get_extra_info("socket")
        told.set_result(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with listen(Settings(port=0)) as listener:
        async with await asyncio.start_server(connected, sock=listener), asyncio.timeout(5):
            _, client = await asyncio.open_connection(*listener.getsockname())
            assert await told != 0
            client.close()
