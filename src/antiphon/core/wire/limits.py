"""How much of an answer is held in memory before the attempt is ended instead."""

from __future__ import annotations

from typing import Final

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Upper bounds on one answer. Passing one ends the attempt with its own code.

    Attributes:
        max_event_bytes: One event of a stream, terminated or not: `event_too_large`.
        max_arguments_bytes: The arguments of one tool call: `answer_too_large`.
        max_answer_bytes: All text of an answer, or a whole body: `answer_too_large`.
        max_blocks: Blocks of an answer, which is to say parallel calls: `answer_too_large`.
    """

    max_event_bytes: int = 4 * 1024 * 1024
    max_arguments_bytes: int = 1024 * 1024
    max_answer_bytes: int = 32 * 1024 * 1024
    max_blocks: int = 1024


DEFAULT_LIMITS: Final = Limits()
