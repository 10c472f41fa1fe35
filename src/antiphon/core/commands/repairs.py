"""What an examination of a database may change."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.core.commands.base import Command
from antiphon.core.ids import OperationId
from antiphon.core.records import Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine(Command[None]):
    """Note what came late or from elsewhere. Changes nothing else."""

    operation: OperationId | None
    generation: int
    reason: str
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair(Command[Conversation]):
    """Mend one contradiction that an examination has found: `code` about `at`.

    The store asks once more whether it is there; Denied `sound` where it is not. An event says
    what was wrong. Nothing is made up: what had begun and was never told the end of is closed
    with a result that says so.
    """

    code: str
    at: str
