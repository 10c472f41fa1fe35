"""The Vercel AI SDK's UI message stream, version 1: front ends of `useChat` work unchanged.

    useChat({ transport: new DefaultChatTransport({ api: "/antiphon/v1/chat" }) })

A chat is a conversation. The messages that such a client sends are what it has on its screen,
previews among them; of all of them only the last one is read, and the others say where in the
tree it belongs. History is what the server has.

`request` takes a body apart, `beginning` does what it asks for, `write` tells a run in chunks,
`transcript` a line as whole messages.
"""

from antiphon.server.uistream.routes import routes

__all__ = ["routes"]
