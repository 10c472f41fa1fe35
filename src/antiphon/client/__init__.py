"""Python client of an Antiphon server: the library's handles, over HTTP.

    async with antiphon.client.open("http://127.0.0.1:8000") as app:
        chat = await app.create()
        run = await chat.send("Hello")
        async for event in run.events():
            ...

The handles and events are those of `antiphon.open`; only what they stand on differs. A run
belongs to the server: a client that leaves, on purpose or not, cancels nothing.
"""

from antiphon.client.opening import Client, open
from antiphon.client.wire import Patience

__all__ = ["Client", "Patience", "open"]
