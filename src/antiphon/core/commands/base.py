"""What every command has, and who speaks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from antiphon.core.ids import ConversationId, NodeId

R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """Who speaks: a node under its epoch. Stale epochs are refused where it matters."""

    node: NodeId
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[R]):
    """Base of all commands; `R` is what the store answers with when it is done."""

    conversation: ConversationId
    now_ms: int
