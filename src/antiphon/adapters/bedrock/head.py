"""Everything of a request that stands before its system text: options and tools.

The model is no field of it: it stands in the path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias
from urllib.parse import quote

import msgspec

from antiphon.adapters.openai_chat.profile import NOWHERE
from antiphon.core.manifest import Mapping, Policy, ToolDeclaration
from antiphon.core.wire.frames import MEDIA_TYPE
from antiphon.errors import InvalidInput

Json: TypeAlias = dict[str, object]

SAMPLING: Final = "inferenceConfig"
OWN_FIELDS: Final = frozenset({"modelId", "messages", "system", "toolConfig"})
OWN_SAMPLING: Final = frozenset({"maxTokens", "temperature"})
"""What of `inferenceConfig` has a setting of ours; the rest of it is passed on."""

OPTIONS: Final = frozenset(
    {"additionalModelRequestFields", "additionalModelResponseFieldPaths", "guardrailConfig"}
    | {"outputConfig", "performanceConfig", "projectIdentifier", "promptVariables"}
    | {"requestMetadata", "serviceTier", SAMPLING}
)
ANY_OBJECT: Final = msgspec.Raw(b'{"type":"object","properties":{}}')

NOTHING: Final = msgspec.Raw(b"{}")

_encode: Final = msgspec.json.Encoder().encode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def url(policy: Policy) -> str:
    """Return where requests for a model go: its id is one segment of the path, whatever is in it."""
    verb = "converse-stream" if policy.stream else "converse"
    home = (policy.endpoint or NOWHERE).rstrip("/")
    return f"{home}/model/{quote(policy.model, safe='')}/{verb}"


def headers(policy: Policy) -> tuple[tuple[str, str], ...]:
    """Return the headers that the request digest covers."""
    return (
        ("accept", MEDIA_TYPE if policy.stream else "application/json"),
        ("authorization", ""),  # a key, or a signature, is put there when it leaves
        ("content-type", "application/json"),
    )


def head(policy: Policy, tools: Sequence[ToolDeclaration]) -> tuple[bytes, list[Mapping]]:
    """Return the body up to its system text, without a comma behind it, and what was mapped.

    Raises:
        InvalidInput: `bad_option`: an extra field that has a setting of its own;
            `unsupported_parameter`: one that the wire does not have.
    """
    _check_extra(policy)
    mappings: list[Mapping] = []
    sampling: Json = {}
    if policy.max_output_tokens is not None:
        sampling["maxTokens"] = policy.max_output_tokens
    if policy.temperature is not None:
        sampling["temperature"] = policy.temperature
    extra = dict(sorted(policy.extra.items()))
    sampling |= _sampling(extra.pop(SAMPLING, NOTHING))
    fields: Json = {SAMPLING: sampling} if sampling else {}
    fields |= extra
    if tools:
        fields["toolConfig"] = _offer(policy, tools, mappings)
    return _encode(fields)[:-1], mappings


def declared(names: Iterable[str]) -> bytes:
    """Return a configuration of the tools that a history names and nobody declares."""
    tools = [_declaration(ToolDeclaration(name=name, parameters=ANY_OBJECT)) for name in names]
    return _encode({"tools": tools})


def _check_extra(policy: Policy) -> None:
    clash = OWN_FIELDS & policy.extra.keys()
    if clash:
        raise _own(f"extra.{min(clash)}")
    unlisted = policy.extra.keys() - OPTIONS
    if unlisted:
        raise _unsupported(f"extra.{min(unlisted)}")


def _sampling(given: msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return what else is asked for in `inferenceConfig`."""
    try:
        sampling = _members.decode(given)
    except msgspec.ValidationError:
        at = f"extra.{SAMPLING}"
        raise InvalidInput("This option is an object.", code="bad_option", at=at) from None
    clash = OWN_SAMPLING & sampling.keys()
    if clash:
        raise _own(f"extra.{SAMPLING}.{min(clash)}")
    return sampling


def _own(at: str) -> InvalidInput:
    return InvalidInput(
        "This field has a setting of its own; leave it out of the extra ones.",
        code="bad_option",
        at=at,
    )


def _offer(policy: Policy, tools: Sequence[ToolDeclaration], mappings: list[Mapping]) -> Json:
    if policy.parallel_tool_calls is False:
        raise _unsupported("parallel_tool_calls")
    config: Json = {"tools": [_declaration(tool) for tool in tools]}
    match policy.tool_choice:
        case None:
            pass
        case "none":
            # History with calls needs the declarations, and there is no word for none.
            detail = "a call would still be possible"
            mappings.append(Mapping(rule="tool_choice_dropped", block="tools", detail=detail))
        case "required":
            config["toolChoice"] = {"any": {}}
        case choice if choice.startswith("tool:"):
            config["toolChoice"] = {"tool": {"name": choice.removeprefix("tool:")}}
        case choice:
            config["toolChoice"] = {choice: {}}
    return config


def _declaration(tool: ToolDeclaration) -> Json:
    spec: Json = {"name": tool.name}
    if tool.description:
        spec["description"] = tool.description
    spec["inputSchema"] = {"json": tool.parameters}
    if tool.strict:
        spec["strict"] = True
    return {"toolSpec": spec}


def _unsupported(at: str) -> InvalidInput:
    return InvalidInput("Converse has no such field.", code="unsupported_parameter", at=at)
