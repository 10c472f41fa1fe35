#!/usr/bin/env python3
"""Keeps docs/reason-codes.md true: it is made from the rules themselves.

    check_reason_codes.py [--write]

Without --write it only compares, and fails where the page is stale.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from antiphon.adapters import registry
from antiphon.adapters.anthropic.profile import WIRE_FACTS as ANTHROPIC_FACTS
from antiphon.adapters.openai_chat.profile import WIRE_FACTS
from antiphon.core.findings import GRAPH_CODES, PROFILE_CODES
from antiphon.core.profile import FACTS, Profile
from antiphon.core.reasons import REASONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reason-codes.md"

HEAD = """\
# Reason codes

Why a request may not be sent. `antiphon lint` prints these codes, an error of ours carries them, and
`antiphon_validator_refusals_total` counts by them. Codes may be added; none is ever renamed.

Findings are ordered by their place in the request; the first is the reason. Each has a code, a place and a
sentence about the block in question. Here stands the rule behind the code.

<!-- Made by scripts/check_reason_codes.py from src/antiphon/core/reasons.py; do not edit. -->
"""

GRAPH = """
## Rules of the graph

They hold for every provider.
"""

PROFILE = """
## Rules of a profile

They hold where a dialect, or one model behind it, has them: refusing what a provider would accept is as much a
mistake as letting through what it refuses. What can be mapped safely is mapped when Antiphon renders from its own
graph, and listed in the manifest; a request that somebody else has made is judged as it stands.
"""

FACTS_HEAD = """
## What may be stated about a model

A profile describes a dialect. What is known of one model beyond that is stated as facts, in the configuration
(`facts = {{ ... }}`) or in the `model_profile` of a document given to `antiphon lint`: {facts}. How a server that
speaks the dialect spells a request is stated the same way: {wire}; for `anthropic`: {anthropic}.
"""

PROFILES: Mapping[str, Profile] = {
    name: registry.get(name).profile for name in registry.available()
}


def active(profile: Profile, code: str) -> bool:
    """Return whether the table of `profile` switches the rule on."""
    switches = {
        "role_unsupported": profile.roles != frozenset(profile.kinds),
        "system_not_first": profile.system_first,
        "role_order": profile.alternation
        or profile.system_apart
        or profile.after_assistant is not None
        or profile.after_tool is not None,
        "must_start_with_user": profile.starts_with_user,
        "must_end_with_user": profile.ends_with_user
        or profile.prefill_trimmed
        or not profile.system_last,
        "empty_content": True,
        "block_not_allowed": True,
        "image_in_tool_result": not profile.result_media,
        "result_not_adjacent": profile.results_adjacent,
        "result_order": profile.results_in_call_order,
        "bad_call_id": profile.call_id_pattern is not None,
        "call_id_too_long": profile.call_id_max is not None,
        "bad_tool_name": profile.tool_name_pattern is not None,
        "schema_unsupported": True,
        "tool_config_missing": profile.tools_declared,
        "lost_signature": profile.signed_reasoning,
        "lost_reasoning": profile.reasoning in ("with_calls", "always"),
        "thinking_missing": profile.signed_reasoning,
        "thinking_modified": profile.signed_reasoning,
        "foreign_reasoning": profile.signed_reasoning,
        "too_many_blocks": profile.max_tools is not None or profile.max_blocks is not None,
    }
    return switches.get(code, False)


def page() -> str:
    """Return the page as it should stand."""
    return "".join(
        (HEAD, GRAPH, *entries(GRAPH_CODES), PROFILE, *table(), *entries(PROFILE_CODES), facts())
    )


def entries(codes: tuple[str, ...]) -> Iterator[str]:
    """Yield one section for each code."""
    for code in codes:
        reason = REASONS[code]
        yield f"\n### {code}\n\n{reason.rule}  \n*What helps:* {reason.remedy}\n"


def table() -> Iterator[str]:
    """Yield the table of rules and profiles."""
    names = list(PROFILES)
    yield f"\n| rule | {' | '.join(names)} |\n|---|{'---|' * len(names)}\n"
    for code in PROFILE_CODES:
        cells = ("yes" if active(PROFILES[name], code) else "" for name in names)
        yield f"| [{code}](#{code}) | {' | '.join(cells)} |\n"


def facts() -> str:
    """Return the section on facts."""
    return FACTS_HEAD.format(
        facts=", ".join(f"`{fact}`" for fact in FACTS),
        wire=", ".join(f"`{fact}`" for fact in WIRE_FACTS),
        anthropic=", ".join(f"`{fact}`" for fact in ANTHROPIC_FACTS),
    )


def main(arguments: list[str]) -> int:
    """Compare the page, or write it."""
    wanted = page()
    if arguments == ["--write"]:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(wanted, encoding="utf-8")
        return 0
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != wanted:
        print(f"{PAGE.name} is stale; run: .venv/bin/python scripts/check_reason_codes.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
