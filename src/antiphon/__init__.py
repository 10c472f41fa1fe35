"""Antiphon keeps LLM conversations and dispatches them to model providers.

An illegal request is never sent, a half answer never becomes history, a tool never runs
twice, and a crash, a cancel or a refresh never loses or forks what was said.

Public names are loaded when they are asked for, so that importing one part of the package
pulls in nothing of the others.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from antiphon.version import __version__

if TYPE_CHECKING:
    from antiphon.core.asking import Ask, Output
    from antiphon.core.blocks import Message, Text
    from antiphon.core.events import Preview
    from antiphon.core.knowledge.retrieval import Found, Passage, Question, Retriever, judged
    from antiphon.engine.settings import Settings
    from antiphon.engine.tools.function import (
        FateUnknown,
        Function,
        Lookup,
        ToolContext,
        ToolError,
    )
    from antiphon.engine.tools.typed import tool
    from antiphon.errors import AntiphonError
    from antiphon.handles.chat import Chat
    from antiphon.handles.events import (
        CallFinished,
        CallsWaiting,
        Committed,
        Ended,
        Unknown,
        Withdrawn,
    )
    from antiphon.handles.run import RunHandle
    from antiphon.library import Antiphon, open

_HOMES: Final = {
    "AntiphonError": "errors",
    "Antiphon": "library",
    "Ask": "core.asking",
    "CallFinished": "handles.events",
    "CallsWaiting": "handles.events",
    "Chat": "handles.chat",
    "Committed": "handles.events",
    "Ended": "handles.events",
    "FateUnknown": "engine.tools.function",
    "Found": "core.knowledge.retrieval",
    "Function": "engine.tools.function",
    "Lookup": "engine.tools.function",
    "Message": "core.blocks",
    "Output": "core.asking",
    "Passage": "core.knowledge.retrieval",
    "Preview": "core.events",
    "Question": "core.knowledge.retrieval",
    "Retriever": "core.knowledge.retrieval",
    "RunHandle": "handles.run",
    "Settings": "engine.settings",
    "Text": "core.blocks",
    "ToolContext": "engine.tools.function",
    "ToolError": "engine.tools.function",
    "Unknown": "handles.events",
    "Withdrawn": "handles.events",
    "judged": "core.knowledge.retrieval",
    "open": "library",
    "tool": "engine.tools.typed",
}

__all__ = [
    "Antiphon",
    "AntiphonError",
    "Ask",
    "CallFinished",
    "CallsWaiting",
    "Chat",
    "Committed",
    "Ended",
    "FateUnknown",
    "Found",
    "Function",
    "Lookup",
    "Message",
    "Output",
    "Passage",
    "Preview",
    "Question",
    "Retriever",
    "RunHandle",
    "Settings",
    "Text",
    "ToolContext",
    "ToolError",
    "Unknown",
    "Withdrawn",
    "__version__",
    "judged",
    "open",
    "tool",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'antiphon' has no attribute {name!r}")
    value: object = getattr(import_module(f"antiphon.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
