"""OpenAI's Responses API: each request is a stretch of a run, and outlives its connection."""

from antiphon.server.responses.routes import routes

__all__ = ["routes"]
