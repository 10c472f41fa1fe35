"""Everything of a request that stands before its messages: model, options, tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from antiphon.adapters.ollama.profile import HOME, Wire
from antiphon.core.manifest import Mapping, Policy, ToolDeclaration
from antiphon.errors import InvalidInput

Json: TypeAlias = dict[str, object]

SAMPLING: Final = "options"
OWN_FIELDS: Final = frozenset({"model", "messages", "tools", "stream"})
OWN_SAMPLING: Final = frozenset({"num_predict", "temperature"})
"""What of `options` has a setting of ours; the rest of it is passed on."""

OPTIONS: Final = frozenset(
    {"format", "keep_alive", "logprobs", "shift", "think", "top_logprobs", "truncate", SAMPLING}
)
NOTHING: Final = msgspec.Raw(b"{}")

_encode: Final = msgspec.json.Encoder().encode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def url(endpoint: str) -> str:
    """Return where requests go. An address may name the path of the API, as its libraries do."""
    return f"{(endpoint or HOME).rstrip('/').removesuffix('/api')}/api/chat"


def headers(policy: Policy) -> tuple[tuple[str, str], ...]:
    """Return the headers that the request digest covers."""
    accept = "application/x-ndjson" if policy.stream else "application/json"
    return (("accept", accept), ("content-type", "application/json"))


def head(
    policy: Policy, tools: Sequence[ToolDeclaration], wire: Wire
) -> tuple[bytes, list[Mapping]]:
    """Return the body up to its first message, and what was mapped.

    Raises:
        InvalidInput: `bad_option`: an extra field that has a setting of its own;
            `unsupported_parameter`: one that the wire does not have.
    """
    clash = OWN_FIELDS & policy.extra.keys()
    if clash:
        raise _own(f"extra.{min(clash)}")
    unlisted = policy.extra.keys() - OPTIONS
    if unlisted:
        raise _unsupported(f"extra.{min(unlisted)}")
    mappings: list[Mapping] = []
    extra = dict(sorted(policy.extra.items()))
    sampling = _sampling(policy, extra.pop(SAMPLING, NOTHING), wire)
    fields: Json = {"model": policy.model, "stream": policy.stream}
    if sampling:
        fields[SAMPLING] = sampling
    fields |= extra
    if tools:
        fields |= _offer(policy, tools, mappings)
    return _encode(fields)[:-1] + b',"messages":[', mappings


def _sampling(policy: Policy, given: msgspec.Raw, wire: Wire) -> Json:
    try:
        stated = _members.decode(given)
    except msgspec.ValidationError:
        at = f"extra.{SAMPLING}"
        raise InvalidInput("This option is an object.", code="bad_option", at=at) from None
    clash = OWN_SAMPLING & stated.keys()
    if clash:
        raise _own(f"extra.{SAMPLING}.{min(clash)}")
    sampling: Json = {}
    if wire.num_ctx is not None:
        sampling["num_ctx"] = wire.num_ctx
    if policy.max_output_tokens is not None:
        sampling["num_predict"] = policy.max_output_tokens
    if policy.temperature is not None:
        sampling["temperature"] = policy.temperature
    return sampling | stated


def _offer(policy: Policy, tools: Sequence[ToolDeclaration], mappings: list[Mapping]) -> Json:
    if policy.tool_choice == "none":
        mappings.append(Mapping(rule="tools_withheld", block="tools", detail="none may be called"))
        return {}
    if policy.tool_choice not in (None, "auto"):
        raise _unsupported("tool_choice")
    if policy.parallel_tool_calls is False:
        raise _unsupported("parallel_tool_calls")
    mappings += (
        Mapping(rule="strict_dropped", block=f"tools[{number}]")
        for number, tool in enumerate(tools)
        if tool.strict is not None
    )
    return {"tools": [_declaration(tool) for tool in tools]}


def _declaration(tool: ToolDeclaration) -> Json:
    function: Json = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = tool.parameters
    return {"type": "function", "function": function}


def _own(at: str) -> InvalidInput:
    return InvalidInput(
        "This field has a setting of its own; leave it out of the extra ones.",
        code="bad_option",
        at=at,
    )


def _unsupported(at: str) -> InvalidInput:
    return InvalidInput(
        "Ollama has no such field, and leaves out in silence what it does not know.",
        code="unsupported_parameter",
        at=at,
    )
