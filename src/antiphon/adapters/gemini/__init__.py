"""Gemini's generateContent. Version 1."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.adapters.base import Parsed
from antiphon.adapters.dialect import Dialect, Pieces
from antiphon.adapters.gemini import errors, kept, parse, read
from antiphon.adapters.gemini.profile import GEMINI, Wire, facts_of
from antiphon.adapters.gemini.render import ContentsLine
from antiphon.core.manifest import Policy
from antiphon.core.rules.findings import Finding

PIECES = Pieces(line=ContentsLine, reader=read.Reader, classify=errors.classify, parse=parse.parse)


class Gemini(Dialect[Wire]):
    """The dialect at version 1, with the facts of one model."""

    def __init__(self, facts: Mapping[str, object] | None = None) -> None:
        super().__init__(GEMINI, Wire(), facts, PIECES)

    def known(self, policy: Policy) -> Mapping[str, object]:
        """Return what a model's name says of it."""
        return facts_of(policy.model)

    def compare(self, parsed: Parsed, stored: Mapping[str, object]) -> tuple[Finding, ...]:
        """Return where a kept signature is missing, unless the model is said not to mind."""
        enforced = self.profile.signed_calls
        if not enforced and "thought_signatures" in self.stated:
            return ()
        return tuple(kept.findings(parsed, stored, enforced=enforced))


__all__ = ["Gemini"]
