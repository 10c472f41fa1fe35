"""`tool`: a typed Python function becomes a tool; its schema is its signature.

    @tool(read_only=True)
    async def weather(city: str, unit: Literal["C", "F"] = "C") -> str:
        \"\"\"The weather now.

Args:
            city: Name of the city, in English.
        \"\"\"

Arguments are converted to the types of the signature before the function sees them, numbers
exactly: an `int` of any length, and a `Decimal` where the digits behind the point matter.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, get_type_hints, overload

import msgspec

from antiphon.engine.tools.function import DEFAULT_TIMEOUT_S, Function, ToolContext
from antiphon.errors import InvalidInput

_SECTION: Final = re.compile(r"^\s*(Args|Arguments|Parameters)\s*:\s*$")
_ENTRY: Final = re.compile(r"^(\s*)(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_OTHER: Final = re.compile(r"^\s*(Returns|Raises|Yields|Example|Examples|Note|Notes)\s*:\s*$")


@overload
def tool(function: Callable[..., Any], /) -> Function: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    idempotent: bool = False,
    repeatable: bool = False,
    approval: bool = False,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    max_result_chars: int | None = None,
) -> Callable[[Callable[..., Any]], Function]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    idempotent: bool = False,
    repeatable: bool = False,
    approval: bool = False,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    max_result_chars: int | None = None,
) -> Function | Callable[[Callable[..., Any]], Function]:
    """Return a tool that runs `function`; as a decorator, with or without options.

    Name and description come from the function and its docstring, descriptions of parameters
    from its `Args` section. A parameter annotated `ToolContext` is not part of the schema: it
    is given the context of the call. The options are those of `Function`.

    Raises:
        InvalidInput: `untyped_tool` for a parameter without annotation, or one that cannot be
            given by name, or a type that JSON cannot carry; `at` names it.
    """

    def made(run: Callable[..., Any]) -> Function:
        told, descriptions = _documented(run)
        arguments, context = _arguments(run, descriptions)
        return Function(
            name=name or run.__name__,
            run=run,
            description=told if description is None else description,
            parameters=_schema(run, arguments),
            read_only=read_only,
            idempotent=idempotent,
            repeatable=repeatable,
            approval=approval,
            timeout_s=timeout_s,
            max_result_chars=max_result_chars,
            decode=_decoder(arguments),
            context=context,
        )

    return made if function is None else made(function)


def _arguments(
    run: Callable[..., Any], descriptions: Mapping[str, str]
) -> tuple[type[msgspec.Struct], str | None]:
    """Return a type with a field for each parameter, and the name of the context's."""
    hints = get_type_hints(run, include_extras=True)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    context = None
    for parameter in inspect.signature(run).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise _untyped(run, parameter.name, "cannot be given by name")
        if parameter.name not in hints:
            raise _untyped(run, parameter.name, "has no annotation")
        hint = hints[parameter.name]
        if hint is ToolContext:
            context = parameter.name
            continue
        if parameter.name in descriptions:
            hint = Annotated[hint, msgspec.Meta(description=descriptions[parameter.name])]
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, parameter.default))
    made = msgspec.defstruct(run.__name__, fields, kw_only=True, forbid_unknown_fields=True)
    return made, context


def _decoder(arguments: type[msgspec.Struct]) -> Callable[[str], Mapping[str, Any]]:
    names = arguments.__struct_fields__

    def decode(text: str) -> Mapping[str, Any]:
        value = msgspec.json.decode(text, type=arguments)
        return {name: getattr(value, name) for name in names}

    return decode


def _schema(run: Callable[..., Any], arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON Schema of the arguments; types of their own are under `$defs`."""
    try:
        (_,), found = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise _untyped(run, run.__name__, str(error).splitlines()[0]) from None
    schema: dict[str, Any] = found.pop(arguments.__name__)
    del schema["title"]
    return schema | ({"$defs": found} if found else {})


def _untyped(run: Callable[..., Any], name: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"{run.__name__}() cannot be a tool: {name} {why}.", code="untyped_tool", at=name
    )


def _documented(run: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return what a docstring says of a function, and of each of its parameters."""
    lines = (inspect.getdoc(run) or "").splitlines()
    told = [line for section, line in _sections(lines) if section == ""]
    entries = [line for section, line in _sections(lines) if section == "args"]
    return "\n".join(told).strip(), dict(_entries(entries))


def _sections(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each line of text with the section it belongs to: `` for none, `args`, `other`."""
    section = ""
    for line in lines:
        if _SECTION.match(line):
            section = "args"
        elif _OTHER.match(line):
            section = "other"
        else:
            yield section, line


def _entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield parameters with what an `Args` section says of them, lines joined."""
    indent: int | None = None
    name = ""
    said: list[str] = []
    for line in lines:
        found = _ENTRY.match(line)
        if found is not None and (indent is None or len(found[1]) <= indent):
            if name:
                yield name, " ".join(said)
            indent, name, said = len(found[1]), found[2], [found[3]]
        elif line.strip():
            said.append(line.strip())
    if name:
        yield name, " ".join(said)
