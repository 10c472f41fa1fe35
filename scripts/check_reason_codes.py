#!/usr/bin/env python3
"""Keeps docs/reason-codes.md true: it is made from the rules themselves.

    check_reason_codes.py [--write]

Without --write it only compares, and fails where the page is stale. The examples are judged each
time: what is shown as refused is refused for this very reason, what is shown as legal is accepted.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from antiphon.adapters import registry
from antiphon.adapters.anthropic.profile import WIRE_FACTS as ANTHROPIC_FACTS
from antiphon.adapters.bedrock.profile import WIRE_FACTS as BEDROCK_FACTS
from antiphon.adapters.gemini.profile import WIRE_FACTS as GEMINI_FACTS
from antiphon.adapters.gemini_interactions.profile import WIRE_FACTS as INTERACTIONS_FACTS
from antiphon.adapters.ollama.profile import WIRE_FACTS as OLLAMA_FACTS
from antiphon.adapters.openai_chat.profile import WIRE_FACTS
from antiphon.cli.requests.documents import document_of
from antiphon.cli.requests.judging import Verdict, judge
from antiphon.core.rules.findings import GRAPH_CODES, PROFILE_CODES
from antiphon.core.rules.profile import FACTS, Profile
from antiphon.core.rules.reasons import REASONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reason-codes.md"
EXAMPLES: Final[dict[str, dict[str, Any]]] = json.loads(
    (PAGE.parent / "examples" / "reason-codes.json").read_text("utf-8")
)
UNSHOWN: Final = {
    "arguments_mismatch": "Only stored results say which arguments they belong to.",
    "foreign_branch": "The command line walks from one leaf to the root, so it meets one branch only.",
    "over_window": "The window is a setting of the model.",
    "too_many_blocks": "An example would be very long.",
}
"""Rules that no short file can break, and why."""

HEAD = """\
# Reason codes

Why a request may not be sent. `antiphon lint` prints these codes, an error of ours carries them, and
`antiphon_validator_refusals_total` counts by them. Codes may be added; none is ever renamed.

Findings are ordered by their place in the request; the first is the reason. Each has a code, a place and a
sentence about the block in question. Here stands the rule behind the code.

<!-- Made by scripts/check_reason_codes.py from src/antiphon/core/rules/reasons.py; do not edit. -->
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
speaks the dialect spells a request is stated the same way: {wire}; for `anthropic`: {anthropic}; for
`gemini`: {gemini}; for `gemini-interactions`: {interactions}; for `bedrock`: {bedrock}; for `ollama`: {ollama}.
"""

Json: TypeAlias = dict[str, Any]

PROFILES: Mapping[str, Profile] = {
    name: registry.get(name).profile for name in registry.available()
}


BY_ADAPTER: Mapping[str, frozenset[str]] = {
    "gemini": frozenset({"lost_signature"}),
    "openai-responses": frozenset(
        {"item_order", "reasoning_unpaired", "lost_reasoning", "thinking_modified"}
    ),
}
"""Rules that no fact of the profile switches on: the adapter holds a request against its items."""


def active(profile: Profile, code: str) -> bool:
    """Return whether the table of `profile` switches the rule on."""
    switches = {
        "role_unsupported": profile.roles != frozenset(profile.kinds),
        "system_not_first": profile.system_first,
        "role_order": profile.alternation
        or profile.system_apart
        or profile.one_message_a_turn
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
        "response_count_mismatch": profile.results_together,
        "lost_signature": profile.signed_reasoning,
        "lost_reasoning": profile.reasoning in ("with_calls", "always"),
        "thinking_missing": profile.signed_reasoning,
        "thinking_modified": profile.signed_reasoning,
        "foreign_reasoning": profile.signed_reasoning,
        "too_many_blocks": any(
            most is not None
            for most in (
                profile.max_tools,
                profile.max_blocks,
                profile.max_images,
                profile.max_files,
            )
        ),
    }
    return switches.get(code, False) or code in BY_ADAPTER.get(profile.name, ())


def page() -> str:
    """Return the page as it should stand."""
    return "".join(
        (HEAD, GRAPH, *entries(GRAPH_CODES), PROFILE, *table(), *entries(PROFILE_CODES), facts())
    )


def entries(codes: tuple[str, ...]) -> Iterator[str]:
    """Yield one section for each code."""
    for code in codes:
        reason, shown = REASONS[code], EXAMPLES.get(code, {})
        yield f"\n### {code}\n\n{reason.rule}\n\n"
        yield f"*Holds for:* {holders(code)}.  \n*What helps:* {reason.remedy}\n"
        yield from source(code, shown.get("says", ()))
        if "bad" in shown:
            yield from example(code, shown["bad"], shown["fixed"])
        else:
            yield f"\n{UNSHOWN.get(code, 'No dialect of this release has the rule yet.')}\n"


def holders(code: str) -> str:
    """Return whose rule it is."""
    if code in GRAPH_CODES:
        return "every provider"
    names = [name for name, profile in PROFILES.items() if active(profile, code)]
    if len(names) == len(PROFILES):
        return "every dialect"
    return ", ".join(names) or "models of which it is stated"


def source(code: str, says: tuple[str, ...]) -> Iterator[str]:
    """Yield where the rule comes from: what providers answer, word for word, or what it follows from."""
    if says:
        yield "\nProviders say it in their own words:\n\n"
        yield from (f"> {sentence}\n>\n" for sentence in says[:-1])
        yield f"> {says[-1]}\n"
    elif code in GRAPH_CODES:
        yield "\n*Source:* Antiphon's own graph; it is never broken on the way to any provider.\n"
    else:
        yield "\n*Source:* the published request types and templates of those dialects.\n"


def example(code: str, bad: Json, fixed: Json) -> Iterator[str]:
    """Yield what breaks the rule and what keeps it, each judged first."""
    refused, accepted = judged(bad), judged(fixed)
    first = refused.findings[0] if refused.findings else None
    if first is None or first.code != code or refused.accepted:
        raise SystemExit(f"{code}: the bad example is not refused for it, but for {first}")
    if not accepted.accepted:
        raise SystemExit(f"{code}: the fixed example is refused: {accepted.findings[0]}")
    whose = bad.get("from")
    facts = bad.get("model_profile")
    of = f" ({whose}{f', where {inline(facts)} is stated' if facts else ''})" if whose else ""
    yield f"\nRefused{of}, at `{first.at}`: {first.message}\n\n```json\n{pretty(bad)}\n```\n"
    if "stored" in bad:
        yield f"\nKept of the answer before: `{inline(bad['stored'])}`\n"
    yield f"\nLegal:\n\n```json\n{pretty(fixed)}\n```\n"


def judged(document: Json) -> Verdict:
    """Return the verdict on an example."""
    return judge(document_of(document, json.dumps(document), "example"), source=None, profile=None)


def pretty(document: Json) -> str:
    """Return what an example says, a message a line."""
    said = document.get("request", document.get("graph"))
    if isinstance(said, list):
        return rows(said)
    lists = {name for name, value in said.items() if isinstance(value, list)}
    fields = (f'"{n}": {rows(v) if n in lists else inline(v)}' for n, v in said.items())
    return "{" + ",\n ".join(fields) + "}"


def rows(items: list[Any]) -> str:
    """Return an array, an item a line."""
    return "[" + ",\n  ".join(inline(item) for item in items) + "]"


def inline(value: object) -> str:
    """Return a value in one line."""
    return json.dumps(value, ensure_ascii=False)


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
        gemini=", ".join(f"`{fact}`" for fact in GEMINI_FACTS),
        interactions=", ".join(f"`{fact}`" for fact in INTERACTIONS_FACTS),
        bedrock=", ".join(f"`{fact}`" for fact in BEDROCK_FACTS),
        ollama=", ".join(f"`{fact}`" for fact in OLLAMA_FACTS),
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
