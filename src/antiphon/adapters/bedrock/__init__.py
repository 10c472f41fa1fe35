"""Amazon Bedrock: Converse and ConverseStream. Version 2, and the first for whoever goes back."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from antiphon.adapters.base import Parsed
from antiphon.adapters.bedrock import errors, kept, parse, read
from antiphon.adapters.bedrock.profile import ALTERNATING, BEDROCK, BEDROCK_1, Wire, facts_of
from antiphon.adapters.bedrock.render import BedrockLine
from antiphon.adapters.dialect import Dialect, Pieces
from antiphon.core.manifest import Policy
from antiphon.core.rules.findings import Finding
from antiphon.core.rules.profile import Profile

PIECES = Pieces(line=BedrockLine, reader=read.Reader, classify=errors.classify, parse=parse.parse)


class Bedrock(Dialect[Wire]):
    """The dialect at version 2, with the facts of one model."""

    version = 2

    def __init__(
        self, facts: Mapping[str, object] | None = None, *, profile: Profile = BEDROCK
    ) -> None:
        super().__init__(profile, Wire(), facts, PIECES)

    def told(self, facts: Mapping[str, object]) -> tuple[Profile, Wire]:
        """Return the dialect as `facts` change it; models of different makers differ in both."""
        turns = facts.get("alternation")
        if not isinstance(turns, str) or turns not in ALTERNATING:
            profile, wire = super().told(facts)
        else:
            # Whether neighbours of one role are joined by the service itself; ours always are.
            others = {name: value for name, value in facts.items() if name != "alternation"}
            profile, wire = super().told(others)
            profile = msgspec.structs.replace(profile, one_message_a_turn=ALTERNATING[turns])
        return msgspec.structs.replace(profile, signed_reasoning=wire.signed_reasoning), wire

    def known(self, policy: Policy) -> Mapping[str, object]:
        """Return what a model's id says of it, and what thinking in the options asks for."""
        return {**facts_of(policy.model), **parse.facts_of_options(policy.extra)}

    def compare(self, parsed: Parsed, stored: Mapping[str, object]) -> tuple[Finding, ...]:
        """Return what of the reasoning that was kept is missing, or not what came."""
        return tuple(kept.findings(parsed, stored))


class Bedrock1(Bedrock):
    """Version 1: the same to the byte, but it knows nothing of recorded sound."""

    version = 1

    def __init__(self, facts: Mapping[str, object] | None = None) -> None:
        super().__init__(facts, profile=BEDROCK_1)


__all__ = ["Bedrock", "Bedrock1"]
