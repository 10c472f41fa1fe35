"""What our own resources answer beside single rows: the server writes these, its clients read them."""

from __future__ import annotations

from typing import Final

import msgspec

from antiphon.core.asking import ModelTold
from antiphon.core.blocks import Message
from antiphon.core.ids import ConversationId
from antiphon.core.knowledge.kept import File, Remembered
from antiphon.core.records import Conversation, Run, RunStatus, Session

URGENCY: Final = (RunStatus.UNKNOWN, RunStatus.WAITING, RunStatus.PENDING, RunStatus.QUEUED)
"""The statuses of open runs, those first that a person may have to do something about."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """Conversations, last changed first; `cursor` asks for the next page, if there is one.

    `open` has those of them in which a run is open, with the most urgent status of one.
    """

    data: list[Conversation]
    cursor: ConversationId | None
    open: dict[ConversationId, RunStatus] = msgspec.field(default_factory=dict)


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """Every message there is, in the order in which they came, and every run.

    Or, where only the `newest` were asked for and there are more (`whole` is false): those of the
    line that is looked at, what stands beside them, and the runs that they name or that are open.
    """

    conversation: Conversation
    messages: list[Message]
    runs: list[Run]
    whole: bool = True


class Sessions(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of a conversation, in their order."""

    data: list[Session]


class Messages(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of one conversation, in their order."""

    data: list[Message]


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of one conversation, in the order they were started."""

    data: list[Run]


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """Files, as they were given."""

    data: list[File]


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept for a conversation and for all, as the model is told it."""

    data: list[Remembered]


class Models(msgspec.Struct, frozen=True, kw_only=True):
    """The models that runs may ask for, the default one first."""

    data: list[ModelTold]
