"""Gemini's Interactions API. Version 1."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.adapters.dialect import KeptAnswers, Pieces
from antiphon.adapters.gemini import errors
from antiphon.adapters.gemini_interactions import handles, parse, read
from antiphon.adapters.gemini_interactions.profile import INTERACTIONS, Wire, facts_of
from antiphon.adapters.gemini_interactions.render import StepsLine
from antiphon.core.manifest import Policy

PIECES = Pieces(line=StepsLine, reader=read.Reader, classify=errors.classify, parse=parse.parse)


class GeminiInteractions(KeptAnswers[Wire]):
    """The dialect at version 1, with the facts of one model.

    No refusal of a request for a thought that it lacks is known: nothing is compared.
    """

    def __init__(self, facts: Mapping[str, object] | None = None) -> None:
        super().__init__(
            INTERACTIONS,
            Wire(),
            facts,
            PIECES,
            reader=read.Reader,
            handles=handles,
            background=lambda wire: wire.background,
        )

    def known(self, policy: Policy) -> Mapping[str, object]:
        """Return what a model's name says of it."""
        return facts_of(policy.model)


__all__ = ["GeminiInteractions"]
