"""What the rehearsal model answers: a pure function from one request to one scripted answer.

It is no model. It says so in every answer, repeats what it understood, and obeys a few words at
the beginning of the last message (`docs/rehearsal.md`), so that streaming, tools and every way in
which a provider fails can be seen without a provider. It speaks OpenAI's chat dialect and is as
strict as OpenAI about the order of messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from antiphon.engine.edge.rehearsal_reading import Read, read

NAME: Final = "rehearsal"
LONG_WORD: Final = 4
"""How long a word of a tool's name has to be for a question to mean the tool by it."""

LABEL: Final = "Rehearsal model: "


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before going on."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """Wait until whoever runs the server releases `name`, or the client leaves."""

    name: str = "hold"


@dataclass(frozen=True, slots=True)
class Stall:
    """Say nothing more until the client leaves."""


@dataclass(frozen=True, slots=True)
class Break:
    """Close the connection here, without an end; `reset` does it the hard way."""

    reset: bool = False


Piece: TypeAlias = bytes | Pause | Hold | Stall | Break


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One scripted HTTP answer: what happens before its head, the head, and the body in pieces.

    Each bytes piece is written by itself. A body of one piece has a content length, any other is
    chunked.
    """

    status: int = 200
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    before: tuple[Piece, ...] = ()
    body: tuple[Piece, ...] = ()


class _Function(msgspec.Struct):
    name: str
    arguments: str = ""
    parameters: dict[str, Any] = {}


class _Tool(msgspec.Struct):
    function: _Function


class _Call(msgspec.Struct):
    id: str
    function: _Function


class _Message(msgspec.Struct):
    role: str
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None

    @property
    def text(self) -> str:
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return " ".join(str(part.get("text", f"[{part.get('type')}]")) for part in self.content)


class _Request(msgspec.Struct):
    messages: Annotated[list[_Message], msgspec.Meta(min_length=1)]
    model: str = NAME
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fate:
    """What happens after `words` words: then it ends by `finish`, goes on, or is left unfinished."""

    words: int
    pieces: tuple[Piece, ...] = ()
    finish: str | None = None
    goes_on: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What a message of the model holds, before it is put on the wire."""

    text: str = ""
    refusal: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    finish: str | None = None
    pace: float = 1.0
    fate: _Fate | None = None


_Obey: TypeAlias = Callable[["_Request", str], "_Said | Answer"]


def answer(body: bytes, *, response_id: str, created: int, delay_s: float, seen: int) -> Answer:
    """Return the answer to the chat request `body`.

    Args:
        body: As it came.
        response_id: The id that the response is given.
        created: Its time, in seconds.
        delay_s: Pause between two words.
        seen: How often the very same body came before; `once` makes use of it.
    """
    try:
        request = msgspec.json.decode(body, type=_Request)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return failure(400, f"The body is not a chat request: {error}.")
    wrong = _misplaced(request.messages)
    if wrong is not None:
        return failure(400, wrong)
    said = _reply(request, seen)
    if isinstance(said, Answer):
        return said
    seed = sha256(body).hexdigest()
    wire = _Wire(request, response_id, created, call_prefix=f"call_{seed[:20]}")
    return wire.stream(said, delay_s) if request.stream else wire.whole(said)


def failure(status: int, message: str, *, headers: Mapping[str, str] | None = None) -> Answer:
    """Return a refusal in OpenAI's form."""
    kind = "invalid_request_error" if status < 429 else "rehearsed_error"
    return Answer(
        status=status,
        content_type="application/json",
        headers=headers or MappingProxyType({}),
        body=(_json({"error": {"message": message, "type": kind, "param": None, "code": None}}),),
    )


def _misplaced(messages: Sequence[_Message]) -> str | None:
    """Return what OpenAI would say to tool calls and results that do not match, or None."""
    open_ids: set[str] = set()
    for index, message in enumerate(messages):
        if message.role == "tool":
            if message.tool_call_id not in open_ids:
                return (
                    "Invalid parameter: messages with role 'tool' must be a response to a preceding message with "
                    f"'tool_calls' (messages.[{index}])."
                )
            open_ids.remove(message.tool_call_id)
        elif open_ids:
            break
        else:
            open_ids = {call.id for call in message.tool_calls or ()}
    if open_ids:
        return (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(sorted(open_ids))}"
        )
    return None


# ------------------------------------------------------------------------------- what it says


def _reply(request: _Request, seen: int) -> _Said | Answer:
    last = request.messages[-1]
    told = read(next((m.text for m in reversed(request.messages) if m.role == "user"), ""))
    asked = told.words.strip()
    word, _, rest = asked.removeprefix("/").partition(" ")
    rest = rest.strip()
    if last.role == "tool" and word != "loop":
        return _use_results(request)
    obey = WORDS.get(word.lower())
    if obey is None:
        return _forced_call(request) or _fitting_call(request, asked) or _echo(request, told)
    if rest == "once" or rest.endswith(" once"):
        rest = rest.removesuffix("once").strip()
        if seen:
            return _Said(text="this time it works.")
    return obey(request, rest)


def _echo(request: _Request, told: Read) -> _Said:
    asked = told.words.strip()
    heard = asked if len(asked) <= 200 else f"{asked[:200]}…"
    count = len(request.messages)
    tools = ", ".join(tool.function.name for tool in request.tools or ())
    return _Said(
        text=f"{told.found}you said “{heard}”. I was sent {count} message{'s' if count > 1 else ''}"
        + (f" and may use {tools}" if tools and request.tool_choice != "none" else "")
        + ". I am a script that stands in for a model."
    )


def _use_results(request: _Request) -> _Said:
    names = {call.id: call.function.name for m in request.messages for call in m.tool_calls or ()}
    results: list[str] = []
    for message in reversed(request.messages):
        if message.role != "tool":
            break
        results.append(f"{names[message.tool_call_id or '']} answered “{message.text}”")
    return _Said(text="; ".join(reversed(results)) + ".")


def _tool(request: _Request, rest: str) -> _Said:
    """Ask for a tool; each further line that begins with `tool` asks for another."""
    calls = []
    for line in rest.splitlines():
        name, _, arguments = (
            line.strip().removeprefix("/").removeprefix("tool ").strip().partition(" ")
        )
        if name not in _offered(request):
            return _Said(text=f"no tool {name} is offered to me.")
        calls.append((name, arguments.strip() or "{}"))
    return _Said(calls=tuple(calls)) if calls else _Said(text="which tool? Say /tool NAME {…}.")


def _half_tool(request: _Request, rest: str) -> _Said | Answer:
    """Ask for a tool, but be cut by the token limit in the middle of its arguments."""
    said = _tool(request, rest)
    halves = tuple(
        (name, arguments[: max(1, len(arguments) // 2)]) for name, arguments in said.calls
    )
    return _Said(text=said.text, calls=halves, finish="length") if halves else said


def _forced_call(request: _Request) -> _Said | None:
    """Return the call that `tool_choice` insists on, with the least that its schema takes."""
    choice = request.tool_choice
    if isinstance(choice, Mapping):
        wanted = choice.get("function", {}).get("name")
    elif choice == "required" and request.tools:
        wanted = request.tools[0].function.name
    else:
        return None
    schema = _offered(request).get(wanted)
    return None if schema is None else _Said(calls=((wanted, json.dumps(_example(schema))),))


def _fitting_call(request: _Request, asked: str) -> _Said | None:
    """Return a call of the first tool that a question names by a word of its name."""
    if not asked.endswith("?"):
        return None
    words = set(re.findall(r"\w+", asked.lower()))
    for name, schema in _offered(request).items():
        if words & {word for word in name.lower().split("_") if len(word) >= LONG_WORD}:
            return _Said(calls=((name, json.dumps(_example(schema))),))
    return None


def _offered(request: _Request) -> dict[str, dict[str, Any]]:
    if request.tool_choice == "none":
        return {}
    return {tool.function.name: tool.function.parameters for tool in request.tools or ()}


def _example(schema: Mapping[str, Any]) -> object:
    if schema.get("enum"):
        return schema["enum"][0]
    match schema.get("type", "object"):
        case "string":
            return "example"
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case "array":
            return []
        case _:
            properties = schema.get("properties", {})
            return {name: _example(properties.get(name, {})) for name in schema.get("required", ())}


def _number(text: str, default: int) -> int:
    found = re.match(r"\d{1,6}", text)
    return int(found[0]) if found else default


def _fail(request: _Request, rest: str) -> Answer:
    status, _, seconds = rest.partition(" ")
    code = _number(status, 500)
    wait = {"retry-after": seconds.strip()} if seconds.strip().isdigit() else None
    return failure(
        code if 400 <= code <= 599 else 500, f"{LABEL}you asked for {status or 500}.", headers=wait
    )


def _long(request: _Request, rest: str) -> _Said:
    return _Said(text=" ".join(f"word{i}" for i in range(1, _number(rest, 100) + 1)))


_FILLER: Final = (
    "this sentence will not be finished, because you asked me to stop in the middle of it."
)


def _then(*pieces: Piece, finish: str | None = None, goes_on: bool = False) -> _Obey:
    """Return a word that says some words of a sentence before `pieces` happen."""

    def obey(request: _Request, rest: str) -> _Said:
        fate = _Fate(words=_number(rest, 4), pieces=pieces, finish=finish, goes_on=goes_on)
        return _Said(text=_FILLER, fate=fate)

    return obey


def _event(value: object) -> bytes:
    return b"data: " + _json(value) + b"\n\n"


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


_BROKEN_EVENT: Final = _event(
    {"error": {"message": f"{LABEL}you asked for an error.", "type": "server_error"}}
)

WORDS: Final[Mapping[str, _Obey]] = MappingProxyType(
    {
        "tool": _tool,
        "loop": _tool,
        "halftool": _half_tool,
        "say": lambda request, rest: _Said(text=rest),
        "slowly": lambda request, rest: _Said(text=rest or "slowly it is.", pace=10.0),
        "long": _long,
        "refuse": lambda request, rest: _Said(
            refusal=f"{LABEL}I will not, as you asked.", finish="stop"
        ),
        "empty": lambda request, rest: _Said(finish="stop"),
        "truncate": _then(finish="length"),
        "filter": _then(finish="content_filter"),
        "unfinished": _then(),
        "cut": _then(Break()),
        "reset": _then(Break(reset=True)),
        "stall": _then(Stall()),
        "hold": _then(Hold(), goes_on=True),
        "error": _then(_BROKEN_EVENT),
        "malformed": _then(b"data: {not json\n\n", goes_on=True),
        "fail": _fail,
        "late": lambda request, rest: Answer(before=(Stall(),)),
        "silent": lambda request, rest: Answer(before=(Break(),)),
        "html": lambda request, rest: Answer(
            content_type="text/html", body=(b"<html>Bad gateway</html>",)
        ),
    }
)
"""Every word that the last message may begin with; `docs/rehearsal.md` says what each does."""


# --------------------------------------------------------------------------- how it is written


class _Wire:
    """Puts one message of the model into OpenAI's form, streamed or whole."""

    def __init__(
        self, request: _Request, response_id: str, created: int, *, call_prefix: str
    ) -> None:
        self._request = request
        self._id = response_id
        self._created = created
        self._call_prefix = call_prefix
        self._prompt_tokens = sum(4 + len(m.text) // 4 for m in request.messages)

    def stream(self, said: _Said, delay_s: float) -> Answer:
        pieces: list[Piece] = [self._chunk({"role": "assistant", "content": ""})]
        texts, finish = self._limited(said)
        fate = said.fate or _Fate(words=len(texts), goes_on=True)

        def speak(words: Sequence[str]) -> None:
            for word in words:
                if delay_s:
                    pieces.append(Pause(delay_s * said.pace))
                pieces.append(self._chunk({"content": word}))

        speak(texts[: fate.words])
        pieces.extend(fate.pieces)
        if fate.goes_on:
            speak(texts[fate.words :])
            if said.refusal:
                pieces.append(self._chunk({"refusal": said.refusal}))
            pieces.extend(self._chunk(delta) for delta in self._call_deltas(said))
        elif fate.finish is None:
            return Answer(body=tuple(pieces))
        pieces.append(self._chunk({}, finish=fate.finish or finish))
        if (self._request.stream_options or {}).get("include_usage"):
            usage = self._usage(len(texts))
            pieces.append(_event(self._envelope("chat.completion.chunk", [], usage=usage)))
        pieces.append(b"data: [DONE]\n\n")
        return Answer(body=tuple(pieces))

    def whole(self, said: _Said) -> Answer:
        texts, finish = self._limited(said)
        fate = said.fate or _Fate(words=len(texts), goes_on=True)
        if not fate.goes_on:
            texts = texts[: fate.words]
        message: dict[str, object] = {
            "role": "assistant",
            "content": "".join(texts) or (None if said.calls or said.refusal else ""),
            "refusal": said.refusal or None,
        }
        if said.calls:
            message["tool_calls"] = [
                {
                    "id": self._call_id(index),
                    "type": "function",
                    "function": {"name": name, "arguments": arguments},
                }
                for index, (name, arguments) in enumerate(said.calls)
            ]
        choice = {"index": 0, "message": message, "finish_reason": fate.finish or finish}
        usage = self._usage(len(texts))
        body = _json(self._envelope("chat.completion", [choice], usage=usage))
        half = len(body) // 2
        if fate.goes_on:
            pieces: tuple[Piece, ...] = (body[:half], *fate.pieces, body[half:])
        elif fate.finish is not None:
            pieces = (body,)
        else:
            pieces = (body[:half], *fate.pieces)
        return Answer(content_type="application/json", body=pieces if said.fate else (body,))

    def _limited(self, said: _Said) -> tuple[list[str], str]:
        """Return the words that the token limit leaves, and the finish word that this makes."""
        texts = _words(LABEL + said.text) if said.text else []
        most = self._request.max_completion_tokens or self._request.max_tokens
        if most is not None and len(texts) > most:
            return texts[:most], "length"
        return texts, said.finish or ("tool_calls" if said.calls else "stop")

    def _call_deltas(self, said: _Said) -> Iterator[dict[str, object]]:
        for index, (name, arguments) in enumerate(said.calls):
            function = {"name": name, "arguments": ""}
            opened = {
                "index": index,
                "id": self._call_id(index),
                "type": "function",
                "function": function,
            }
            yield {"tool_calls": [opened]}
            for start in range(0, len(arguments), 8):
                fragment = arguments[start : start + 8]
                yield {"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}

    def _call_id(self, index: int) -> str:
        """Return an id that no other call on the same line can have: the whole line is in it."""
        return f"{self._call_prefix}{index}"

    def _chunk(self, delta: Mapping[str, object], *, finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _event(self._envelope("chat.completion.chunk", [choice]))

    def _envelope(self, kind: str, choices: list[Any], usage: object = None) -> dict[str, object]:
        return {
            "id": self._id,
            "object": kind,
            "created": self._created,
            "model": NAME,
            "choices": choices,
            "usage": usage,
        }

    def _usage(self, completion_tokens: int) -> dict[str, int]:
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": self._prompt_tokens + completion_tokens,
        }


def _words(text: str) -> list[str]:
    """Split into pieces of a few characters, at spaces where there are any; joined they are the text."""
    return re.findall(r"\s*\S{1,12}|\s+$", text)
