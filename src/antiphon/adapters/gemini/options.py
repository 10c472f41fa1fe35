"""What stands beside the contents of a client's request: its tools and its options."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from antiphon.adapters.gemini.head import OWN_CONFIG, OWN_FIELDS
from antiphon.adapters.gemini.profile import GEMINI
from antiphon.adapters.gemini.schemas import from_openapi
from antiphon.adapters.requests.parsing import encode, type_name
from antiphon.adapters.requests.reading import option
from antiphon.adapters.requests.reading import options as kept
from antiphon.core.manifest import Policy, ToolDeclaration
from antiphon.core.rules.findings import Finding
from antiphon.errors import InvalidInput

Fields: TypeAlias = Mapping[str, object]

OWN: Final = OWN_FIELDS | {"generationConfig"}
PLACES: Final = {
    "max_output_tokens": "generationConfig.maxOutputTokens",
    "temperature": "generationConfig.temperature",
    "tool_choice": "toolConfig.functionCallingConfig",
}
"""What options of ours are called here, with where they stand."""

MODES: Final = {"AUTO": "auto", "ANY": "required", "NONE": "none"}
BORDER: Final = re.compile(r"_([a-z])")


@dataclass(slots=True)
class Declared:
    """The tools of a request, and what was found on the way."""

    tools: tuple[ToolDeclaration, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    uncarried: list[str] = field(default_factory=list)


def camel(fields: Mapping[str, object]) -> dict[str, object]:
    """Return `fields` by the names of the wire: it knows `function_call` for `functionCall` too."""
    return {
        BORDER.sub(lambda m: m[1].upper(), name) if "_" in name else name: value
        for name, value in fields.items()
    }


def tools(items: object) -> Declared:
    """Return the declarations of a request.

    Raises:
        InvalidInput: `wrong_shape`: what is declared is no declaration.
    """
    declared = Declared()
    made: list[ToolDeclaration] = []
    if not isinstance(items, list | None):
        raise _wrong("tools", "tools is an array.")
    for number, item in enumerate(items or ()):
        at = f"tools[{number}]"
        if not isinstance(item, dict):
            raise _wrong(at, f"A tool is an object, not {type_name(item)}.")
        tool = camel(item)
        functions = tool.pop("functionDeclarations", [])
        if any(value is not None for value in tool.values()):
            declared.uncarried.append(at)  # a tool that the provider runs itself
        if not isinstance(functions, list):
            raise _wrong(f"{at}.functionDeclarations", "Declarations are an array.")
        for order, function in enumerate(functions):
            place = f"{at}.functionDeclarations[{order}]"
            declared.places[f"tools[{len(made)}]"] = place
            made.append(_declaration(place, function, declared))
    declared.tools = tuple(made)
    return declared


def _declaration(at: str, value: object, declared: Declared) -> ToolDeclaration:
    function = camel(value) if isinstance(value, dict) else {}
    name, said = function.get("name"), function.get("description")
    if not isinstance(name, str):
        raise _wrong(at, "A function is declared with its name.")
    older, schema = function.get("parameters"), function.get("parametersJsonSchema")
    unknown: list[str] = []
    if older is not None and schema is not None:
        declared.findings.append(
            Finding(
                code="schema_unsupported",
                at=f"{at}.parametersJsonSchema",
                position=-1,
                message=f"{name!r} is declared with parameters and with parametersJsonSchema. Keep one.",
            )
        )
    if older is not None:
        schema = from_openapi(older, unknown, ".parameters")
    declared.findings += (
        Finding(
            code="schema_unsupported",
            at=f"{at}{place}",
            position=-1,
            message=f"The schema of {name!r} cannot be used: its parameters cannot say this here. "
            "Use parametersJsonSchema for JSON Schema.",
        )
        for place in unknown
    )
    tool = ToolDeclaration(name=name, description=said if isinstance(said, str) else "")
    if schema is None:
        return tool
    return msgspec.structs.replace(tool, parameters=msgspec.Raw(encode(schema)))


def policy(request: Fields) -> Policy:
    """Return the options of a request. Those without a setting of ours are passed on as they are.

    Whether the answer is streamed stands in the path, not in the request.

    Raises:
        InvalidInput: `wrong_shape`: an option of the wrong type.
    """
    config = request.get("generationConfig") or {}
    if not isinstance(config, dict):
        raise _wrong("generationConfig", "These options are an object.")
    config = camel(config)
    most = option(config, "maxOutputTokens", int, "generationConfig.")
    warmth = option(config, "temperature", float, "generationConfig.")
    extra = {name: value for name, value in request.items() if name not in OWN}
    rest = {name: v for name, v in config.items() if name not in OWN_CONFIG and v is not None}
    if rest:
        extra["generationConfig"] = rest
    choice = _choice(extra.get("toolConfig"))
    if choice is not None:
        del extra["toolConfig"]
    return Policy(
        profile=GEMINI.name,
        model=option(request, "model", str) or "",
        max_output_tokens=most,
        temperature=warmth,
        tool_choice=choice,
        stream=False,
        extra=kept(extra),
    )


def calls_nothing(request: Fields) -> Iterator[Finding]:
    """Yield what is wrong with how functions are to be called, where none is declared."""
    config = request.get("toolConfig")
    if isinstance(config, dict) and camel(config).get("functionCallingConfig"):
        yield Finding(
            code="tool_config_missing",
            at="toolConfig",
            position=-1,
            message="It says how functions are called, and none is declared. Declare them, or leave it out.",
        )


def _choice(value: object) -> str | None:
    """Return a tool choice as we say it; None for none, or for more than we can say."""
    config = camel(value) if isinstance(value, dict) else {}
    calling = config.get("functionCallingConfig")
    if config.keys() != {"functionCallingConfig"} or not isinstance(calling, dict):
        return None
    match camel(calling):
        case {"mode": "ANY", "allowedFunctionNames": [str(name)], **more} if not more:
            return f"tool:{name}"
        case {"mode": ("AUTO" | "ANY" | "NONE") as mode, **more} if not more:
            return MODES[str(mode)]
        case _:
            return None


def _wrong(at: str, message: str) -> InvalidInput:
    return InvalidInput(message, code="wrong_shape", at=at)
