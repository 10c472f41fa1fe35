"""Files that somebody hands over: exports, and the configuration."""

from __future__ import annotations

import contextlib
import json
import os
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from antiphon.core.ids import ConversationId
from antiphon.core.telling import archive
from antiphon.engine.settings import KINDS, Settings
from antiphon.errors import AntiphonError
from tests.fuzzing import mutations

_BLOCKS: Final = (
    {"kind": "text", "text": "Hi"},
    {"kind": "reasoning", "text": "So."},
    {"kind": "refusal", "text": "No."},
    {"kind": "image", "media_type": "image/png", "data": "iVBORw0KGgo="},
    {"kind": "tool_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
)
_RESULT: Final = {
    "kind": "tool_result",
    "call_id": "c1",
    "name": "weather",
    "content": [{"kind": "text", "text": "Rain."}],
}


def _message(name: str, parent: str | None, role: str, *blocks: Any, **more: Any) -> Any:
    kind = {"kind": "message", "id": name, "parent_id": parent, "role": role}
    return {**kind, "blocks": list(blocks), **more}


EXPORT: Final = [
    {"kind": "export", "version": archive.VERSION},
    {"kind": "conversation", "id": "conv_1", "title": "T", "head": "m4", "messages": 5},
    _message("m1", None, "user", _BLOCKS[0], metadata={"a": "b"}),
    _message("m2", "m1", "assistant", *_BLOCKS[1:], origin="model", trust="model"),
    _message("m3", "m2", "tool", _RESULT, origin="tool", trust="tool"),
    _message("m4", "m3", "assistant", _BLOCKS[0], status="canceled", error_code="canceled"),
    _message("m5", "m1", "assistant", _BLOCKS[2], deleted=True, copied_from="m2"),
    {"kind": "conversation", "id": "conv_2", "title": None, "head": None, "messages": 0},
]
"""One of everything that a file may hold."""


def imports(chance: random.Random) -> list[str]:
    """Read an export that was damaged; what is read is written and read again as the same."""
    lines = mutations.shuffled([(b"", line) for line in EXPORT], chance, [[(b"", EXPORT[2])]])
    body = mutations.lines_of(lines, chance)
    if chance.random() < 0.1:
        body = mutations.bitten(body, chance)
    try:
        found = archive.read(body.split(b"\n"))
    except AntiphonError:
        return []
    again = archive.read(b"".join(archive.write(found.conversations)).split(b"\n"))
    whole = [replace(one, announced=len(one.messages)) for one in found.conversations]
    if list(again.conversations) != whole:
        return [f"another file when it is written again: {body!r}"]
    for archived in found.conversations:
        for message in archived.messages:
            archive.as_imported(message, ConversationId("conv_x"), 1)
    return []


CONFIG: Final[dict[str, Any]] = {
    "default_model": "fast",
    "side_model": "backup",
    "retries": 2,
    "idle_timeout_s": 30.5,
    "commit_truncated": True,
    "resend_after_unknown": "never",
    "stateless": "keep",
    "url_hosts": ["example.org", "*.example.org"],
    "host": "127.0.0.1",
    "port": 8000,
    "db": "sqlite:///a.db",
    "models": {
        "fast": {
            "profile": "openai-chat",
            "model": "gpt-5.4-mini",
            "base_url": "http://127.0.0.1:9001/v1",
            "api_key_env": "SOME_KEY",
            "context_window": 32768,
            "max_output_tokens": 1024,
            "fallbacks": ["backup"],
            "max_concurrent": 3,
            "requests_per_minute": 60,
            "first_byte_timeout_s": 20,
            "price": {"input": 1.0, "output": 2.0, "cached": 0.1},
            "facts": {"vision": True},
        },
        "backup": {"profile": "anthropic", "model": "claude-haiku-5-5", "max_output_tokens": 5},
        "cloud": {"profile": "bedrock", "region": "eu-north-1", "model": "m"},
        "here": {"profile": "ollama", "context_window": 4096},
    },
    "aliases": {"gpt-4o": "fast"},
    "mcp": {
        "files": {"command": ["mcp-server-git"], "env": {"A": "b"}},
        "web": {"url": "http://127.0.0.1:9/mcp", "headers": {"x": "y"}},
    },
}


def _toml(tree: dict[str, Any], path: tuple[str, ...] = ()) -> str:
    """Return a tree as TOML, or as near to it as what stands in it allows."""
    plain = {key: value for key, value in tree.items() if not isinstance(value, dict)}
    lines = [f"[{'.'.join(map(json.dumps, path))}]"] if path else []
    lines += [f"{json.dumps(key)} = {_value(value)}" for key, value in plain.items()]
    for key, value in tree.items():
        if isinstance(value, dict):
            lines.append(_toml(value, (*path, key)))
    return "\n".join(lines)


def _value(value: object) -> str:
    match value:
        case list():
            return f"[{', '.join(map(_value, value))}]"
        case dict():
            inner = ", ".join(f"{json.dumps(key)} = {_value(one)}" for key, one in value.items())
            return f"{{{inner}}}"
        case _:
            return json.dumps(value)


def configurations(chance: random.Random) -> list[str]:
    """Load a configuration that nobody would write, and an environment of the same kind."""
    tree = mutations.changed(CONFIG, chance, [CONFIG])
    text = _toml(tree if isinstance(tree, dict) else {"x": tree}).encode("utf-8", "surrogatepass")
    if chance.random() < 0.1:
        text = mutations.bitten(text, chance)
    env = {"SOME_KEY": "secret"}
    for name in chance.sample(sorted(KINDS), chance.choice([0, 0, 1, 3])):
        said = str(chance.choice(mutations.ODD))
        env[f"ANTIPHON_{name.upper()}"] = said.replace("\x00", "")
    _FILE.write_bytes(text)
    with contextlib.suppress(AntiphonError):
        Settings.load(config=_FILE, env=env)
    return []


_FILE: Final = Path(tempfile.gettempdir()) / f"antiphon-fuzz-{os.getpid()}.toml"
