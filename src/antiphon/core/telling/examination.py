"""What an examination of stored data comes to."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.core.ids import ConversationId


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that is not as it was written. `at` is the id it is about.

    One that can be mended names the conversation that it is in.
    """

    code: str
    at: str
    message: str
    conversation: ConversationId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One examination: how many things were looked at, and what was wrong with them."""

    name: str
    looked_at: int
    problems: tuple[Problem, ...]
