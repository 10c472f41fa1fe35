"""Everything that is recorded about a run, as one value."""

from __future__ import annotations

import msgspec

from antiphon.core.blocks import Message
from antiphon.core.ids import Digest, OperationId
from antiphon.core.knowledge.retrieval import Searched
from antiphon.core.manifest import Manifest, Mapping
from antiphon.core.planning.trace import PromptTrace
from antiphon.core.records import Attempt, Call, Quarantined, Run


class OperationTold(msgspec.Struct, frozen=True, kw_only=True):
    """One intended model call, all that its profile changed, and every try at it.

    `answer` is what was answered to a question beside the turn; a turn's answer is in the tree.
    """

    manifest: Manifest
    digest: Digest
    mappings: tuple[Mapping, ...]
    attempts: tuple[Attempt, ...]
    answer: str | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it is stored: nothing here is worked out anew or guessed."""

    run: Run
    input: Message | None
    operations: tuple[OperationTold, ...]
    calls: tuple[Call, ...]
    quarantined: tuple[Quarantined, ...]


class PlanTold(msgspec.Struct, frozen=True, kw_only=True):
    """What one dispatch was made of, what it cost, and why; and what was looked up for its input."""

    operation: OperationId
    trace: PromptTrace
    retrieval: tuple[Searched, ...] = ()
