"""The recorded cases and streams are what they were when they were checked, byte for byte."""

from __future__ import annotations

import hashlib
from pathlib import Path

DATA = Path(__file__).parent / "data"
SUMS = DATA / "SHA256SUMS"
HOW = "after a deliberate change run: scripts/data-sums"


def listed() -> dict[str, str]:
    """Return the digest that is listed for each file."""
    lines = SUMS.read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split("  ", 1) for line in lines)}


def present() -> dict[str, str]:
    """Return the digest of each file that is there; what Python leaves beside the code is not data."""
    files = (
        path
        for path in DATA.rglob("*")
        if path.is_file() and path != SUMS and "__pycache__" not in path.parts
    )
    return {
        path.relative_to(DATA).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def test_every_file_is_listed_and_none_is_missing() -> None:
    assert sorted(present()) == sorted(listed()), HOW


def test_every_file_has_the_bytes_that_are_listed() -> None:
    sums = listed()
    changed = [name for name, digest in present().items() if sums.get(name, digest) != digest]
    assert changed == [], HOW
