"""What Gemini's generateContent allows, and how a request is spelled: facts only.

The rules are those of the published request types and of refusals that people have reported;
`docs/reason-codes.md` names them one by one. The names that Google gives its models tell what
a model enforces.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from antiphon.core.blocks import Role
from antiphon.core.rules.profile import Echo, Profile

HOME: Final = "https://generativelanguage.googleapis.com"
API_VERSION: Final = "/v1beta"
"""Stands in the path where the address names no version itself."""

MEDIA: Final = frozenset({"text", "image", "audio", "file"})

GEMINI: Final = Profile(
    name="gemini",
    # System text is the instruction of the whole request; between contents it cannot be said.
    roles=frozenset({Role.USER, Role.ASSISTANT}),
    kinds={
        Role.SYSTEM: frozenset({"text"}),
        Role.DEVELOPER: frozenset({"text"}),
        Role.USER: MEDIA,
        # Models that draw or speak have their own media in their history.
        Role.ASSISTANT: MEDIA | {"reasoning", "refusal", "tool_call"},
        Role.TOOL: frozenset({"tool_result"}),
    },
    system_apart=True,
    results_in_user=True,
    results_in_call_order=True,
    results_together=True,
    calls_answer=True,
    starts_with_user=True,
    empty_text=False,
    object_arguments=True,
    tool_name_pattern="[A-Za-z_][A-Za-z0-9_.:-]{0,127}",
    schemas_without=frozenset(
        {"allOf", "definitions", "dependentSchemas", "patternProperties"}
        | {"$dynamicRef", "$recursiveRef"}
    ),
    reasoning=Echo.KEPT,
)


class Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a request is spelled. The defaults are those of the Gemini API, for ever.

    Attributes:
        key_header: The header that the key goes into.
        call_ids: Whether calls and results are sent with their ids. Without, the provider pairs
            them by name and order.
    """

    key_header: str = "x-goog-api-key"
    call_ids: bool = True

    def url(self, endpoint: str, model: str, *, stream: bool) -> str:
        """Return where requests for `model` go: the path names the model and the method.

        Example:
            >>> Wire().url("", "gemini-3-pro", stream=False)
            'https://generativelanguage.googleapis.com/v1beta/models/gemini-3-pro:generateContent'
        """
        collection, _, name = model.rpartition("/")
        if collection not in COLLECTIONS:
            collection, name = "models", model
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"{base_url(endpoint)}/{collection}/{quote(name, '')}:{method}"

    def headers(self, *, stream: bool) -> tuple[tuple[str, str], ...]:
        """Return the meaningful headers; the key's value is put in at the socket."""
        return headers(self.key_header, stream=stream)


WIRE_FACTS: Final = Wire.__struct_fields__

COLLECTIONS: Final = frozenset({"models", "tunedModels"})
VERSIONED: Final = re.compile(r"/v\d+(?:(?:alpha|beta)\d*)?(?:/|\Z)")
NAMED: Final = re.compile(r"\bgemini-(?P<major>\d{1,2})(?:\.\d+)?\b")
DATED: Final = re.compile(r"(?:-(?:preview|exp|latest))?(?:-\d{3,4}|-\d{2}-\d{2,4})?\Z")


def base_url(endpoint: str) -> str:
    """Return where the API stands: an address may name a version of it, or leave that to us."""
    base = (endpoint or HOME).rstrip("/")
    return base if VERSIONED.search(urlsplit(base).path) else base + API_VERSION


def headers(key_header: str, *, stream: bool) -> tuple[tuple[str, str], ...]:
    """Return the meaningful headers of a request, with room for its key."""
    accept = "text/event-stream" if stream else "application/json"
    fields = {"accept": accept, "content-type": "application/json", key_header: ""}
    return tuple(sorted(fields.items()))


def facts_of(model: str) -> dict[str, object]:
    """Return what the name of a model says of it; nothing for a name that is not Google's.

    From 3 on the first call of each step has to be signed, and no text of the model's own is
    continued.

    Example:
        >>> facts_of("gemini-3-pro-preview")
        {'prefill': 'unsupported', 'thought_signatures': 'first_call_of_each_step'}
    """
    match = NAMED.search(model)
    if match is None:
        return {}
    newer = int(match["major"]) >= 3
    return {
        "prefill": "unsupported" if newer else "supported",
        "thought_signatures": "first_call_of_each_step" if newer else "optional",
    }


def same_model(maker: str | None, reader: str) -> bool:
    """Return whether what `maker` signed may be sent to `reader`.

    A name without its edition stands for the one with it. A name without a number, such as an
    alias or a gateway's own, says nothing, and is taken for the same.
    """
    if maker is None or NAMED.search(maker) is None or NAMED.search(reader) is None:
        return True
    return DATED.sub("", _bare(maker)) == DATED.sub("", _bare(reader))


def _bare(model: str) -> str:
    return model.rpartition("/")[2]
