"""`antiphon assemble`: read a raw answer as it came over the wire, and say what it amounts to.

Exit code 0 where the answer may be committed, 4 where it may not, 2 where the file is no
recording of an answer.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import click
import msgspec

from antiphon.cli.output import json_option
from antiphon.cli.requests.documents import decode, read_bytes
from antiphon.core.answers.answer import Answer
from antiphon.core.answers.deltas import Usage
from antiphon.core.answers.schemas import SchemaCheck
from antiphon.errors import InvalidInput

DEFAULT_PROFILE: Final = "openai-chat"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The bytes of an answer, read by read, and what was known about it.

    Attributes:
        profile: The dialect that it names, or None.
        reads: The bytes in the order in which they came.
        content_type: As the response said, or None.
        tools: The checks of the tools that were declared, or None where nobody said.
    """

    profile: str | None = None
    reads: tuple[bytes, ...]
    content_type: str | None = None
    tools: Mapping[str, SchemaCheck] | None = None


@click.command(name="assemble")
@click.argument("file", metavar="FILE")
@click.option("--profile", metavar="P", help="The dialect; what the file names, or openai-chat.")
@click.option("--content-type", metavar="TYPE", help="As the response said; an event stream.")
@json_option
def command(file: str, profile: str | None, content_type: str | None, as_json: bool) -> int:
    """Read the answer in FILE and say what it amounts to.

    FILE is a transcript as it came over the wire, streamed or whole, or a JSON object with its
    reads in `chunks` or `chunks_base64`; - is standard input.
    """
    recording = read_recording(file)
    answer = assemble(
        recording,
        profile=profile or recording.profile or DEFAULT_PROFILE,
        content_type=content_type or recording.content_type or "",
    )
    if as_json:
        click.echo(msgspec.json.encode(summary(answer)).decode())
    else:
        for line in told(answer):
            click.echo(line)
    return 0 if answer.committable else 4


def assemble(recording: Recording, *, profile: str, content_type: str) -> Answer:
    """Return what the recorded answer amounts to, read as the engine would read it."""
    from antiphon.adapters import registry
    from antiphon.core.answers.assembler import Assembler

    reader = registry.get(profile).reader(content_type)
    assembler = Assembler(tools=recording.tools)
    for data in recording.reads:
        for delta in reader.feed(data):
            assembler.feed(delta)
    for delta in reader.end():
        assembler.feed(delta)
    return assembler.end()


def summary(answer: Answer) -> dict[str, object]:
    """Return what `--json` prints. Only calls that may run are in it, their numbers as spelled.

    A whole number of many digits stays one: written with an exponent it would be read as a
    fraction, and rounded.
    """
    return {
        "text": answer.text,
        "reasoning": answer.reasoning,
        "tool_calls": [
            {
                "id": call.call_id,
                "name": call.name,
                "arguments": msgspec.Raw(msgspec.json.format(call.arguments, indent=-1).encode()),
            }
            for call in answer.released
        ],
        "finish": answer.finish,
        "usage": _usage(answer.usage),
        "committable": answer.committable,
        "error": answer.error,
        "duplicates_dropped": answer.duplicates_dropped,
        "diagnostics": list(answer.diagnostics),
    }


def told(answer: Answer) -> Iterator[str]:
    """Yield the lines that a person is shown."""
    if answer.committable:
        yield click.style("may be committed", fg="green", bold=True)
    else:
        yield click.style(f"may not be committed [{answer.error}]", fg="red", bold=True)
        yield f"  {answer.error_message}"
        if not answer.definite:
            yield "  What the provider did is not known."
    yield f"finish     {answer.finish or 'none'}"
    counts = ", ".join(
        f"{count} {name.removesuffix('_tokens')}"
        for name, count in (_usage(answer.usage) or {}).items()
    )
    yield f"usage      {counts or 'not told'}"
    for name, text in (
        ("reasoning", answer.reasoning),
        ("text", answer.text),
        ("refusal", answer.refusal),
    ):
        if text:
            yield f"{name:<10} {text}"
    for call in answer.calls:
        problem = answer.problems.get(call.call_id)
        yield f"call       {call.name} {call.arguments} ({call.call_id})" + (
            f": will not run, {problem}" if problem else ""
        )
    for half in answer.partial_calls:
        yield f"half call  {half.name or '?'} {half.arguments} ({half.call_id or 'no id'})"
    if answer.diagnostics:
        yield f"tolerated  {', '.join(answer.diagnostics)}"


def _usage(usage: Usage) -> dict[str, int] | None:
    counts = {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cached_tokens": usage.cached,
        "cache_write_tokens": usage.cache_write,
        "reasoning_tokens": usage.reasoning,
    }
    return {name: count for name, count in counts.items() if count is not None} or None


# Reading the file.


def read_recording(path: str) -> Recording:
    """Return the recording in a file: an object that says so, or else a raw transcript.

    Raises:
        InvalidInput: It cannot be read, or its parts are not what their names promise.
    """
    name = "standard input" if path == "-" else path
    data = read_bytes(path)
    try:
        value = decode(data, name)[0] if data.lstrip()[:1] == b"{" else None
    except InvalidInput:
        value = None  # a transcript: whether it can be read is the question
    if not isinstance(value, dict) or not {"chunks", "chunks_base64"} & value.keys():
        return Recording(reads=(data,))
    tools = value.get("tools")
    return Recording(
        profile=_word(value, "from"),
        reads=tuple(_reads(value)),
        content_type=_word(value, "content_type"),
        tools=None if tools is None else dict(_checks(tools)),
    )


def _word(value: Mapping[str, object], field: str) -> str | None:
    word = value.get(field)
    if word is not None and not isinstance(word, str):
        raise InvalidInput("It has to be a string.", code="wrong_shape", at=field)
    return word


def _reads(value: Mapping[str, object]) -> Iterator[bytes]:
    for field in ("chunks", "chunks_base64"):
        chunks = value.get(field)
        if chunks is None:
            continue
        if not isinstance(chunks, list) or not all(isinstance(chunk, str) for chunk in chunks):
            raise InvalidInput("It has to be an array of strings.", code="wrong_shape", at=field)
        for number, chunk in enumerate(chunks):
            if field == "chunks":
                yield chunk.encode()
                continue
            try:
                yield base64.b64decode(chunk, validate=True)
            except (binascii.Error, ValueError):
                raise InvalidInput(
                    "It is not base64.", code="wrong_shape", at=f"{field}[{number}]"
                ) from None
        return


def _checks(tools: object) -> Iterator[tuple[str, SchemaCheck]]:
    """Yield name and check of each tool, in whichever dialect they are declared."""
    from antiphon.core.answers.schemas import compile_schema

    for number, declared in enumerate(_flat(tools)):
        at = f"tools[{number}]"
        function = declared.get("function", declared.get("toolSpec", declared))
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(name, str):
            raise InvalidInput("A tool has a name.", code="wrong_shape", at=at)
        given = [function[field] for field in SCHEMA_FIELDS if function.get(field) is not None]
        schema = given[0] if given else {}
        if isinstance(schema, dict) and schema.keys() == {"json"}:
            schema = schema["json"]
        if not isinstance(schema, dict):
            raise InvalidInput("A tool's schema is an object.", code="wrong_shape", at=at)
        yield name, compile_schema(schema)


SCHEMA_FIELDS: Final = (
    "parameters",
    "parametersJsonSchema",
    "input_schema",
    "inputSchema",
)
"""Where the dialects keep a tool's schema."""


def _flat(tools: object) -> Iterable[dict[str, object]]:
    if isinstance(tools, dict):
        tools = tools.get("tools")  # Bedrock keeps them in an object of their own
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise InvalidInput("They have to be an array of objects.", code="wrong_shape", at="tools")
    for tool in tools:
        declarations = tool.get("functionDeclarations")
        yield from declarations if isinstance(declarations, list) else (tool,)
