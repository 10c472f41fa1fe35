"""OpenAI Responses, and every server that speaks it. Version 1."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.adapters.base import Parsed
from antiphon.adapters.dialect import KeptAnswers, Pieces
from antiphon.adapters.openai_responses import errors, handles, kept, parse, read
from antiphon.adapters.openai_responses.profile import OPENAI_RESPONSES, Wire
from antiphon.adapters.openai_responses.render import ResponsesLine
from antiphon.core.rules.findings import Finding

PIECES = Pieces(line=ResponsesLine, reader=read.Reader, classify=errors.classify, parse=parse.parse)


class OpenAIResponses(KeptAnswers[Wire]):
    """The dialect at version 1, with the facts of one model."""

    def __init__(self, facts: Mapping[str, object] | None = None) -> None:
        super().__init__(
            OPENAI_RESPONSES,
            Wire(),
            facts,
            PIECES,
            reader=read.Reader,
            handles=handles,
            background=lambda wire: wire.background,
        )

    def compare(self, parsed: Parsed, stored: Mapping[str, object]) -> tuple[Finding, ...]:
        """Return what of the items that belong together was torn apart."""
        return tuple(kept.findings(parsed, stored))


__all__ = ["OpenAIResponses"]
