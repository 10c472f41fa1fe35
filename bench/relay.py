"""The least that a gateway could do, as a process of its own: `python bench/relay.py UPSTREAM`.

Starlette and uvicorn, as ours, and aiohttp towards the provider: each piece of an answer is
passed on as it comes, and nothing is read, checked or kept.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route


def main() -> None:
    upstream = sys.argv[1]

    async def relay(request: Request) -> StreamingResponse:
        session: aiohttp.ClientSession = request.app.state.session
        address = f"{upstream}/{request.path_params['path']}"
        answer = await session.post(address, data=await request.body())

        async def pieces() -> AsyncIterator[bytes]:
            async with answer:
                async for piece in answer.content.iter_any():
                    yield piece

        return StreamingResponse(pieces(), media_type="text/event-stream")

    async def open_session() -> None:
        connector = aiohttp.TCPConnector(limit=0)
        app.state.session = aiohttp.ClientSession(connector=connector)

    app = Starlette(routes=[Route("/{path:path}", relay, methods=["POST"])])
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    print(listener.getsockname()[1], flush=True)
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="error", http="h11", lifespan="off", loop="asyncio")
    )

    async def serve() -> None:
        await open_session()
        await server.serve(sockets=[listener])

    import asyncio

    asyncio.run(serve())


if __name__ == "__main__":
    main()
