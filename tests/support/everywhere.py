"""A history that may be sent over every dialect, and what it renders to there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from antiphon.adapters import registry
from antiphon.adapters.base import Rendering, render
from antiphon.core.blocks import Image, Message
from antiphon.core.manifest import Policy, ToolDeclaration
from tests.support.lines import KEY, PNG, answer, asks, call, line, model, user

DIALECTS: Final = registry.available()
TOOLS: Final = (
    ToolDeclaration(name="look", description="Looks."),
    ToolDeclaration(name="find_it"),
)
EXACT: Final = (
    '{"whole":12345678901234567890,"most":1e400,"price":1.10,"pi":3.14159265358979323846264,'
    '"zero":-0.0,"a":[0.1]}'
)
"""Arguments whose numbers no double holds, or holds without their spelling."""

TALK: Final = line(
    user("What is it?", Image(media_type="image/png", data=PNG)),
    asks(call("call:1", "look", EXACT), call("b"), text="I look."),
    answer("call:1", "A lamp.", "And a cat."),
    answer("b", "2"),
    user("Hurry!"),
    model("It is that."),
    user("Thanks."),
)


def rendered(dialect: str, messages: Sequence[Message], **options: Any) -> Rendering:
    policy = Policy(model="m-1", profile=dialect, **options)
    return render(registry.get(dialect), messages, policy, TOOLS, key=KEY)


def fingerprints() -> dict[str, list[str]]:
    """Return the digests of requests of every dialect, for comparing two processes."""
    return {d: [rendered(d, TALK[:n]).request_digest for n in (1, 5, 7)] for d in DIALECTS}
