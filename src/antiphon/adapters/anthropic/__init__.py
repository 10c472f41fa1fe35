"""Anthropic Messages. Version 1."""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.adapters.anthropic import errors, kept, parse, read
from antiphon.adapters.anthropic.head import choice_of, contradictions
from antiphon.adapters.anthropic.profile import ANTHROPIC, Wire, facts_of
from antiphon.adapters.anthropic.render import AnthropicLine
from antiphon.adapters.base import Parsed
from antiphon.adapters.dialect import Dialect, Pieces
from antiphon.core.manifest import Policy
from antiphon.core.rules.findings import Finding

PIECES = Pieces(line=AnthropicLine, reader=read.Reader, classify=errors.classify, parse=parse.parse)


class Anthropic(Dialect[Wire]):
    """The dialect at version 1, with the facts of one model."""

    def __init__(self, facts: Mapping[str, object] | None = None) -> None:
        super().__init__(ANTHROPIC, Wire(), facts, PIECES)

    def known(self, policy: Policy) -> Mapping[str, object]:
        """Return what a model's name says of it, and what thinking in the options asks for."""
        return {**facts_of(policy.model), **parse.facts_of_options(policy.extra)}

    def compare(self, parsed: Parsed, stored: Mapping[str, object]) -> tuple[Finding, ...]:
        """Return options that exclude each other, and what of kept thinking is missing or changed."""
        policy = parsed.policy
        clashes = contradictions(policy, policy.max_output_tokens, choice_of(policy))
        refused = (
            Finding(code="malformed_item", at=at, position=-1, message=sentence)
            for at, sentence in clashes
        )
        return (*refused, *kept.findings(parsed, stored))


__all__ = ["Anthropic"]
