"""Answers of every provider, as others have checked them: the bytes of `data/fixtures/streams`."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import Final

STREAMS: Final = Path(__file__).parent.parent / "data" / "fixtures" / "streams"
FOLDERS: Final = {"bedrock": "bedrock_converse", "ollama": "ollama_native"}
TYPES: Final = {
    ".sse": "text/event-stream",
    ".ndjson": "application/x-ndjson",
    ".bin": "application/vnd.amazon.eventstream",
}


def transcript(profile: str, *cases: str) -> Path:
    """Return the first transcript whose name is like one of `cases`, in their order."""
    folder = STREAMS / FOLDERS.get(profile, profile.replace("-", "_"))
    found = (
        path
        for case in cases
        for path in sorted(folder.iterdir())
        if fnmatch(path.stem, case) and path.suffix in TYPES
    )
    return next(found)


def response(path: Path) -> bytes:
    """Return a transcript as an HTTP answer after which the connection is closed."""
    body = path.read_bytes()
    head = (
        f"HTTP/1.1 200 OK\r\ncontent-type: {TYPES[path.suffix]}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
