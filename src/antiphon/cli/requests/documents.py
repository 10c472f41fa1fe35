"""Files that a person hands us: read whole, within limits, and told apart by what is in them.

What is no JSON may be a command or a line of a log that holds some; looking for it there is the
business of `pasting`. A body that cannot be read is one clear error with a code and a place. Whose request it is stands
in `antiphon.cli.requests.recognition`.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from antiphon.adapters.requests.parsing import number, type_name
from antiphon.cli.requests.pasting import found_in
from antiphon.cli.requests.recognition import CONTAINERS
from antiphon.errors import InvalidInput

MAX_BYTES: Final = 64 * 1024 * 1024

COMBINED: Final = frozenset({"from", "request", "graph", "target", "model_profile", "stored"})
WRAPPERS: Final = ("body", "json_data", "request_body", "request", "json")
"""Where a line of a batch or of a log keeps the request, beside what it says about it."""

OTHER_TEXT: Final = {
    b"\xff\xfe": "It is UTF-16, and JSON is sent as UTF-8. Save it so.",
    b"\xfe\xff": "It is UTF-16, and JSON is sent as UTF-8. Save it so.",
    b"\x1f\x8b": "It is compressed. Unpack it first: gzip -d.",
}
"""How files begin that people take for text, and what would help."""

SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """What was in a file.

    Attributes:
        path: The file, as a command takes it.
        line: The line that is meant, of a file that holds a request on each; None for all of it.
        found: Where in the file the request was, for what is no JSON as it stands.
        text: The text as it stood there, for excerpts.
        source: Profile of the request as the file or the caller names it, or None.
        request: A provider's request, or None.
        misshapen: Why what was meant for one is none: it is no object; None where it is one.
        graph: Our own graph, or None.
        graph_at: Where in the file the graph stands.
        request_at: Where in the file the request stands; its places follow this.
        target: The profile that it is meant for, or None.
        facts: What is known of the model behind the target.
        stored: What was kept of earlier answers, to be sent back.
    """

    path: str
    line: int | None = None
    found: str = ""
    text: str
    source: str | None = None
    request: Mapping[str, object] | None = None
    misshapen: InvalidInput | None = None
    graph: object = None
    graph_at: str = ""
    request_at: str = ""
    target: str | None = None
    facts: Mapping[str, object]
    stored: Mapping[str, object] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The file's name, for people."""
        return _name(self.path) if self.line is None else f"{_name(self.path)}:{self.line}"

    @property
    def argument(self) -> str:
        """What a command takes for it."""
        if self.line is None:
            return self.path
        return f"<(sed -n {self.line}p {'FILE' if self.path == '-' else self.path})"


def read_bytes(path: str) -> bytes:
    """Return the bytes of a file; `-` is standard input.

    Raises:
        InvalidInput: `unreadable` or `too_large`.
    """
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{error.strerror}.", code="unreadable", at=path) from None
    if len(data) > MAX_BYTES:
        raise InvalidInput(
            f"More than {MAX_BYTES // 2**20} MiB are no request.", code="too_large", at=path
        )
    return data


def decode(data: bytes, name: str) -> tuple[object, str]:
    """Return the JSON value of `data`, and its text.

    Raises:
        InvalidInput: `empty_input`, `invalid_utf8`, `invalid_json`, `too_deep`, `duplicate_key`,
            `invalid_number` or `invalid_unicode`, at a line and column where there is one.
    """
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        for beginning, what in OTHER_TEXT.items():
            if data.startswith(beginning):
                raise InvalidInput(what, code="invalid_utf8", at=name) from None
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidInput(
            f"Byte {error.start} (line {line}) is no UTF-8.", code="invalid_utf8", at=name
        ) from None
    if not text.strip():
        raise InvalidInput("There is nothing in it.", code="empty_input", at=name)
    try:
        value = json.loads(
            text,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_integer,
            object_pairs_hook=_unique,
        )
    except RecursionError:
        raise InvalidInput("It is nested too deep.", code="too_deep", at=name) from None
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"Not JSON: {_wrong(text, error)}.",
            code="invalid_json",
            at=f"{name}:{error.lineno}:{error.colno}",
        ) from None
    except ValueError as error:
        raise InvalidInput(f"Not JSON: {error}.", code="invalid_json", at=name) from None
    if SURROGATE_ESCAPE.search(text):
        _no_half_characters(value)
    return value, text


def read_document(path: str) -> Document:
    """Return what is in a file: a request, a graph, or both in one object.

    Raises:
        InvalidInput: It cannot be read, is neither, or holds several (`several_requests`).
    """
    documents = read_documents(path)
    if len(documents) > 1:
        raise InvalidInput(
            f"It holds {len(documents)} requests, one a line, and this takes one. "
            f"Choose it so: {documents[-1].argument}",
            code="several_requests",
            at=_name(path),
        )
    return documents[0]


def read_documents(path: str) -> tuple[Document, ...]:
    """Return what is in a file: one document, or one for each of its lines.

    What is no JSON is searched for a request: a curl command, a line of a log, a dictionary as
    Python prints it.

    Raises:
        InvalidInput: It cannot be read, or holds neither a request nor a graph.
    """
    data, name = read_bytes(path), _name(path)
    try:
        value, text = decode(data, name)
    except InvalidInput as wrong:
        if wrong.code != "invalid_json":
            raise
        text = data.decode("utf-8-sig")
        if lines := _lines(text, name):
            return tuple(
                replace(document_of(value, one, path), line=nth) for nth, value, one in lines
            )
        found = found_in(text)
        if isinstance(found, str):
            raise InvalidInput(found, code="invalid_json", at=name) from None
        if found is None:
            raise
        value, text = decode(found.text.encode(), name)
        return (replace(document_of(value, text, path), found=found.what),)
    return (document_of(value, text, path),)


def _lines(text: str, name: str) -> list[tuple[int, object, str]]:
    """Return number, value and text of each line where each is an object; else nothing.

    The text of a line has the lines before it as empty ones, so that its places are the file's.
    """
    lines = [(nth, line) for nth, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) < 2 or not all(line.strip()[0] + line.strip()[-1] == "{}" for _, line in lines):
        return []
    made = []
    for nth, line in lines:
        value, one = decode(("\n" * (nth - 1) + line).encode(), name)
        made.append((nth, value, one))
    return made


def _wrong(text: str, error: json.JSONDecodeError) -> str:
    """Return what is no JSON at the place of an error, in words that help where we have some."""
    before, here = text[: error.pos].rstrip(), text[error.pos : error.pos + 1]
    if here in ("]", "}") and before.endswith(","):
        return f"a comma stands before the {here} that ends it, and JSON takes none there"
    if error.msg.startswith("Expecting property name") and here == "}":
        return "a comma stands before the } that ends it, and JSON takes none there"
    if here == "'":
        return "texts stand in double quotes"
    if text.startswith(("//", "/*", "#"), error.pos):
        return "it has no comments"
    if not here:
        return "it ends before its time"
    word = re.match(r"(None|True|False|undefined|NaN)\b", text[error.pos :])
    if word is not None:
        return f"{word[1]} is a word of another language; JSON says null, true and false"
    return error.msg[:1].lower() + error.msg[1:]


def document_of(value: object, text: str, path: str) -> Document:
    """Return what a JSON value is: a request, a graph, or both in one object.

    What can only be meant for a request and is no object is told as such: `Document.misshapen`.

    Raises:
        InvalidInput: It is an object that holds neither.
    """
    if isinstance(value, list) and not _are_messages(value):
        return Document(path=path, text=text, graph=value, facts={})
    if not isinstance(value, dict):
        what = (
            "these could be its messages"
            if isinstance(value, list)
            else "this is " + type_name(value)
        )
        wrong = InvalidInput(
            f"A request is a JSON object; {what}.", code="wrong_shape", at="the root"
        )
        return Document(path=path, text=text, misshapen=wrong, facts={})
    if "nodes" in value:
        return Document(path=path, text=text, graph=value, facts={})
    if value.keys() <= COMBINED and not COMBINED.isdisjoint(value):
        return _combined(value, path, text)
    for wrapper in WRAPPERS:
        inner = value.get(wrapper)
        if isinstance(inner, dict) and inner.keys() & CONTAINERS and not value.keys() & CONTAINERS:
            return Document(path=path, text=text, request=inner, request_at=wrapper, facts={})
    return Document(path=path, text=text, request=value, facts={})


def _combined(value: Mapping[str, object], path: str, text: str) -> Document:
    request, graph = value.get("request"), value.get("graph")
    wrong = None
    if request is not None and not isinstance(request, dict):
        sentence = f"A request is a JSON object; this is {type_name(request)}."
        request, wrong = None, InvalidInput(sentence, code="wrong_shape", at="request")
    if request is None and graph is None and wrong is None:
        raise InvalidInput(
            "It holds neither a request nor a graph.", code="wrong_shape", at=_name(path)
        )
    facts = value.get("model_profile") or {}
    if not isinstance(facts, dict):
        raise InvalidInput("Facts are a JSON object.", code="wrong_shape", at="model_profile")
    stored = value.get("stored") or {}
    if not isinstance(stored, dict):
        raise InvalidInput("What is stored is a JSON object.", code="wrong_shape", at="stored")
    return Document(
        path=path,
        text=text,
        source=_word(value, "from"),
        request=request,
        misshapen=wrong,
        request_at="request",
        graph=graph,
        graph_at="graph",
        target=_word(value, "target"),
        facts=facts,
        stored=stored,
    )


def _are_messages(items: list[object]) -> bool:
    """Return whether an array holds a provider's messages, and no blocks of ours."""
    told = [item for item in items if isinstance(item, dict)]
    return bool(told) and not any("kind" in item for item in told)


def _name(path: str) -> str:
    return "standard input" if path == "-" else path


def _word(value: Mapping[str, object], field: str) -> str | None:
    word = value.get(field)
    if word is not None and not isinstance(word, str):
        raise InvalidInput("The name of a profile is a string.", code="wrong_shape", at=field)
    return word


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is no JSON value")


def _finite(word: str) -> float:
    value = number(word)
    if not math.isfinite(value):
        raise _no_number(word)
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object. Of a name that stands twice nobody can say which one a provider reads."""
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(
            f"The name {twice!r} stands twice in one object.", code="duplicate_key", at=twice
        )
    return made


def _integer(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise _no_number(word) from None


def _no_number(word: str) -> InvalidInput:
    shown = word if len(word) <= 20 else f"{word[:20]}…"
    return InvalidInput(
        f"The number {shown} is larger than a request can carry.", code="invalid_number"
    )


def _no_half_characters(value: object) -> None:
    todo: list[tuple[str, object]] = [("", value)]
    while todo:
        path, node = todo.pop()
        if isinstance(node, dict):
            todo += [(path, name) for name in node]
            todo += [(f"{path}.{name}", inner) for name, inner in node.items()]
        elif isinstance(node, list):
            todo += [(f"{path}[{number}]", inner) for number, inner in enumerate(node)]
        elif isinstance(node, str) and not node.isascii():
            try:
                node.encode()
            except UnicodeEncodeError:
                raise InvalidInput(
                    "The text holds half a surrogate pair, which no request can carry.",
                    code="invalid_unicode",
                    at=path.lstrip(".") or "the root",
                ) from None
