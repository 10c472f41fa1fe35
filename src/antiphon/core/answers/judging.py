"""The business schema of an answer: judged once it is committed, and never instead of that.

An answer is whole, unique and in order by the time that anybody asks what it says. Whether it is
what the application wanted is a verdict that stands beside it; it unmakes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from antiphon.core.answers.schemas import SchemaCheck
from antiphon.core.blocks import Message, Origin, Role, Status, Text, default_trust
from antiphon.core.ids import ConversationId, MessageId

SCHEMA_MISMATCH: Final = "schema_mismatch"
"""End code of a run whose answer does not fit the schema that was asked for."""

ANSWER_RETRIED: Final = "answer_retried"
"""End code of a run whose answer fits, or has no schema any more, after it was asked again."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a schema says of an answer. `at` and `rule` name the first thing that does not fit.

    Nothing of what the answer says is in it, so that it may stay where that is erased.
    """

    fits: bool
    at: str = ""
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What an answer has to fit, and whether its model is asked once more where it does not."""

    check: SchemaCheck
    retry: bool

    def verdict(self, text: str) -> Verdict:
        """Return what the schema says of an answer's `text`."""
        misfit = self.check.misfit(text)
        return (
            Verdict(fits=True)
            if misfit is None
            else Verdict(fits=False, at=misfit.at, rule=misfit.rule)
        )


def asking_again(
    message: MessageId, conversation: ConversationId, problem: str, now_ms: int
) -> Message:
    """Return what the model is told of an answer that does not fit."""
    text = (
        "Your answer has to be JSON that fits the schema that was asked for, and nothing else. "
        f"It does not: {problem}. Answer again."
    )
    return Message(
        id=message,
        conversation=conversation,
        parent=None,
        role=Role.USER,
        blocks=(Text(text=text),),
        origin=Origin.SYSTEM,
        trust=default_trust(Role.USER, Origin.SYSTEM),
        created_ms=now_ms,
        status=Status.PENDING,
    )
