"""The stateless doors: clients that bring their whole history with every request.

What such a client may do, it does as with its provider; what it may not, it is told before
anything is sent. Each request is a conversation of its own and a run in it, with a manifest,
attempts and everything else that there is to see.
"""

from antiphon.server.doors import chat, messages

routes = [*chat.routes, *messages.routes]

__all__ = ["routes"]
