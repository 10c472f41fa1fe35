"""OpenAI Chat Completions, and every server that speaks it. Version 1."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from antiphon.adapters.dialect import Dialect, Pieces
from antiphon.adapters.openai_chat import errors, parse, read
from antiphon.adapters.openai_chat.profile import OPENAI_CHAT, Wire
from antiphon.adapters.openai_chat.render import ChatLine
from antiphon.core.rules.profile import Profile


class OpenAIChat(Dialect[Wire]):
    """The dialect at version 1, with the facts of one model.

    Args:
        profile: What the dialect allows.
        facts: What is known of the model beyond that.
        wire: How the dialect spells a request.
    """

    def __init__(
        self,
        profile: Profile = OPENAI_CHAT,
        facts: Mapping[str, object] | None = None,
        wire: Wire = Wire(),  # noqa: B008  # frozen
    ) -> None:
        pieces = Pieces(
            line=ChatLine,
            reader=partial(read.Reader, origin=profile.name),
            classify=errors.classify,
            parse=partial(parse.parse, dialect=profile.name),
        )
        super().__init__(profile, wire, facts, pieces)


__all__ = ["OpenAIChat"]
