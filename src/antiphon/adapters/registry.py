"""Which adapter speaks which dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from antiphon.adapters.anthropic import Anthropic
from antiphon.adapters.base import Adapter
from antiphon.adapters.bedrock import Bedrock, Bedrock1
from antiphon.adapters.gemini import Gemini
from antiphon.adapters.gemini_interactions import GeminiInteractions
from antiphon.adapters.ollama import Ollama
from antiphon.adapters.openai_chat import OpenAIChat
from antiphon.adapters.openai_chat.dialects import DIALECTS as CHAT
from antiphon.adapters.openai_chat.dialects import OPENAI
from antiphon.adapters.openai_responses import OpenAIResponses
from antiphon.core.rules.profile_reading import KIND_NAMES
from antiphon.errors import InvalidInput

KNOWN: Final = (
    "openai-chat",
    "openai-responses",
    "anthropic",
    "gemini",
    "gemini-interactions",
    "bedrock",
    "deepseek",
    "mistral",
    "qwen-vllm",
    "ollama",
    "ollama-openai",
    "llamacpp",
    "groq",
    "openrouter",
    "azure",
)
"""Every profile that has a name, whether this release speaks it or not."""

DIALECTS: Final[Mapping[str, Callable[[Mapping[str, object]], Adapter]]] = {
    "anthropic": Anthropic,
    "openai-responses": OpenAIResponses,
    "gemini": Gemini,
    "gemini-interactions": GeminiInteractions,
    "bedrock": Bedrock,
    "ollama": Ollama,
}
"""Dialects that are spoken by one provider only."""


class Retired(NamedTuple):
    """An older version of a dialect that a rollout may go back to.

    `kinds` are the blocks that it knows. What it does not know it must not be shown: such a
    conversation is paused, not told in other words.
    """

    make: Callable[[Mapping[str, object]], Adapter]
    kinds: frozenset[str]


RETIRED: Final[dict[tuple[str, int], Retired]] = {
    ("bedrock", 1): Retired(Bedrock1, frozenset(KIND_NAMES.values()) - {"audio"}),
}
"""By profile and version. The newest version of each dialect is no part of it."""

_encode = msgspec.json.Encoder(order="deterministic").encode


def available() -> tuple[str, ...]:
    """Return the profiles that this release speaks."""
    return tuple(name for name in KNOWN if name in CHAT or name in DIALECTS)


def form_of(profile: str) -> str:
    """Return the form of request that `profile` is a dialect of; most are their own."""
    return OPENAI.profile.name if profile in CHAT else profile


def options_of(profile: str) -> frozenset[str] | None:
    """Return the options that a dialect lists, all of them; None where it takes any."""
    return CHAT[profile].wire.options if profile in CHAT else None


def versions(profile: str) -> tuple[int, ...]:
    """Return the versions of a dialect that this release carries, the newest last."""
    older = sorted(version for name, version in RETIRED if name == profile)
    return (*older, get(profile).version)


def kinds_of(profile: str, version: int) -> frozenset[str] | None:
    """Return the kinds of blocks that an older version knows; None for the newest: all of them."""
    retired = RETIRED.get((profile, version))
    return None if retired is None else retired.kinds


def get(
    profile: str, facts: Mapping[str, object] | None = None, version: int | None = None
) -> Adapter:
    """Return the adapter for `profile`, with what is known of the model behind it.

    Args:
        profile: A name out of `KNOWN`.
        facts: See `antiphon.core.rules.profile.FACTS`; values may be JSON text, as stored.
        version: An older version of it; None for the newest.

    Raises:
        InvalidInput: `unknown_profile`, `profile_unavailable`, `unknown_fact`, `bad_fact`,
            `adapter_version_unknown`.
    """
    if profile not in KNOWN:
        raise InvalidInput(
            f"There is no profile {profile!r}. Known: {', '.join(KNOWN)}.",
            code="unknown_profile",
            at=profile,
        )
    if profile not in available():
        raise InvalidInput(
            f"This release does not speak {profile} yet. It speaks {', '.join(available())}.",
            code="profile_unavailable",
            at=profile,
        )
    newest = _make(profile, _encode(facts or {}))
    if version is None or version == newest.version:
        return newest
    retired = RETIRED.get((profile, version))
    if retired is None:
        raise InvalidInput(
            f"This release carries no version {version} of {profile}. "
            f"It carries {', '.join(map(str, versions(profile)))}.",
            code="adapter_version_unknown",
            at=profile,
        )
    return retired.make(msgspec.json.decode(_encode(facts or {})))


def by_name(adapter: str) -> Adapter:
    """Return the adapter that a manifest names, with its dialect's own facts."""
    return get(adapter)


@lru_cache(maxsize=256)
def _make(profile: str, facts: bytes) -> Adapter:
    stated = msgspec.json.decode(facts)
    if profile in DIALECTS:
        return DIALECTS[profile](stated)
    dialect = CHAT[profile]
    return OpenAIChat(dialect.profile, stated, dialect.wire)
