"""Make `docs/dialects.md` from the dialects' facts, or say that it is stale: `--write` makes it anew."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from antiphon.adapters.openai_chat.dialects import DIALECTS, Dialect
from antiphon.adapters.openai_chat.profile import NOWHERE, Wire
from antiphon.core.blocks import Role
from antiphon.core.rules.profile import Echo

PAGE: Final = Path(__file__).parent.parent / "docs" / "dialects.md"

HEAD: Final = """# Dialects of Chat Completions

Made from `antiphon.adapters.openai_chat.dialects` by `scripts/check_dialects.py --write`; `make check` compares.

Many servers speak OpenAI's Chat Completions and few speak it alike. Each name below is a profile: name it in
`antiphon.toml` (`profile = "mistral"`), or with `--profile` and `--from` on the command line. They cannot be told apart
by looking at a request, so `antiphon lint` takes one for `openai-chat` unless `--from` says otherwise.

What a dialect does not list is never sent. A setting that it has no field for is left out where that changes nothing,
and refused (`unsupported_parameter`) where it would. All that is changed on the way is listed in the manifest.
"""

FACTS: Final = """
## What can be stated of one model

A line such as `facts = { reasoning_echo = "never" }` under `[models.NAME]` overrides what the tables say. Often needed:

| fact | for |
|---|---|
| `alternation = "strict"`, `system_position = "first"`, `roles = [...]` | a chat template that insists on turns, on one system message at the front, or knows fewer roles |
| `reasoning_echo = "never"`, `"kept"`, `"with_calls"`, `"always"` | DeepSeek's first reasoning models (`never`); templates of Qwen that read their own reasoning (`kept`) |
| `reasoning_field = "reasoning_content"` | vLLM before 0.26 |
| `text_with_calls = false` | Mistral's templates before version 7 |
| `call_id_pattern`, `call_id_max` | a server with ids of its own form |
| `image_urls = true` | a server that fetches images by address after all |
| `api_version = "..."` | Azure's path by deployments; an address that ends in `/openai/v1` needs none |
| `options = [...]` | the fields that a caller may add, all of them, where a server knows others |
"""

ECHOES: Final = {
    Echo.NEVER: "stays behind",
    Echo.KEPT: "goes back as it was kept",
    Echo.WITH_CALLS: "goes back with calls, in every later request",
    Echo.ALWAYS: "goes back always",
}


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _kinds(dialect: Dialect, role: Role) -> str:
    return ", ".join(sorted(dialect.profile.kinds[role] - {"tool_call"}))


def _call_ids(dialect: Dialect) -> str:
    profile = dialect.profile
    if profile.call_id_pattern is not None:
        return f"`{profile.call_id_pattern}`"
    return (
        "any"
        if profile.call_id_max is None
        else f"up to {profile.call_id_safe} of {profile.call_id_max}"
    )


def _after(roles: frozenset[Role] | None) -> str:
    return "anything" if roles is None else ", ".join(sorted(roles))


def _usage(wire: Wire) -> str:
    return f"asked for by `{wire.usage_option}`" if wire.stream_usage else "comes unasked"


def _tool_choice(wire: Wire) -> str:
    return f"yes; any tool is `{wire.required_word}`" if wire.tool_choice else "no"


def _names(wire: Wire) -> str:
    places = [word for word, so in (("messages", wire.names), ("results", wire.result_names)) if so]
    return "on " + " and ".join(places)


COLUMNS: Final[dict[str, dict[str, Callable[[Dialect], str]]]] = {
    "What may be sent": {
        "roles beside user, assistant, tool": lambda d: ", ".join(
            sorted(d.profile.roles - {Role.USER, Role.ASSISTANT, Role.TOOL})
        ),
        "the user sends": lambda d: _kinds(d, Role.USER),
        "the assistant said": lambda d: _kinds(d, Role.ASSISTANT),
        "images by address": lambda d: _yes(d.profile.image_urls),
        "call ids": _call_ids,
        "most tools": lambda d: str(d.profile.max_tools or "any number"),
        "after a result": lambda d: _after(d.profile.after_tool),
        "may end with": lambda d: "user, tool" if d.profile.ends_with_user else "anything",
    },
    "How it is spelled": {
        "limit": lambda d: f"`{d.wire.output_limit or 'max_completion_tokens at OpenAI, else max_tokens'}`",
        "usage of a stream": lambda d: _usage(d.wire),
        "tool choice": lambda d: _tool_choice(d.wire),
        "`parallel_tool_calls`": lambda d: _yes(d.wire.parallel_tool_calls),
        "`strict`": lambda d: _yes(d.wire.strict_tools),
        "names": lambda d: _names(d.wire),
        "reasoning": lambda d: ECHOES[d.profile.reasoning]
        + ("" if d.profile.reasoning is Echo.NEVER else f" (`{d.wire.reasoning_field}`)"),
    },
    "Where it goes": {
        "address": lambda d: "each customer's own" if d.wire.home == NOWHERE else f"<{d.wire.home}>",
        "path": lambda d: f"`{_path(d.wire)}`",
        "key": lambda d: f"`{d.wire.key_header or 'authorization'}`",
    },
}  # fmt: skip


def _path(wire: Wire) -> str:
    return wire.url(wire.home, "MODEL").removeprefix(wire.home)


def page() -> Iterator[str]:
    """Yield the page's text in pieces."""
    yield HEAD
    for title, columns in COLUMNS.items():
        yield f"\n## {title}\n\n| profile | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}\n"
        for name, dialect in DIALECTS.items():
            yield f"| `{name}` | {' | '.join(said(dialect) for said in columns.values())} |\n"
    yield "\n## What a caller may add\n\n| profile | fields |\n|---|---|\n"
    for name, dialect in DIALECTS.items():
        options = dialect.wire.options
        listed = "any" if options is None else ", ".join(f"`{o}`" for o in sorted(options))
        yield f"| `{name}` | {listed} |\n"
    yield FACTS


def main() -> int:
    """Compare or write; return the exit code."""
    text = "".join(page())
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text("utf-8") == text:
        return 0
    print(f"{PAGE.name} is stale; run: scripts/check_dialects.py --write", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
