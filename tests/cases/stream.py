"""Cases of kind `stream`: what a transcript amounts to, wherever its bytes are cut."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from typing import Any, Final

from tests.cases.command import call
from tests.cases.files import Case
from tests.cases.history import unavailable
from tests.cases.report import Result, keys_of

PLAIN: Final = ("text", "tool_calls", "finish", "committable", "error", "reasoning")
RANDOM_CUTS: Final = 5


def run_stream(case: Case) -> Result:
    """Judge one stream through `antiphon assemble`, then again with its bytes cut otherwise."""
    result = Result(id=case.id, kind=case.kind, keys=keys_of(case.kind, case.expect))
    result.skipped = unavailable(case.dialect)
    if result.skipped is not None:
        return result
    found = _assembled(case, reads(case), result)
    if found is None:
        return result
    for key, wanted in case.expect.items():
        if key in PLAIN or key == "duplicates_dropped":
            result.check(key, _other(found.get(key), wanted))
        elif key == "usage":
            result.check(key, _other(_part(found.get(key), wanted), wanted))
        elif key == "diagnostics":
            missing = [word for word in wanted if word not in found["diagnostics"]]
            result.check(key, f"{missing} not among {found['diagnostics']}" if missing else None)
    for how, cut in cuts(case):
        other = _assembled(case, cut, result)
        if other is not None and _outcome(other) != _outcome(found):
            result.wrong.append(f"cut {how}, it amounts to {other}")
    return result


def reads(case: Case) -> list[bytes]:
    """Return the bytes of a case, read by read."""
    if "chunks_base64" in case.given:
        return [base64.b64decode(piece) for piece in case.given["chunks_base64"]]
    return [piece.encode() for piece in case.given["chunks"]]


def cuts(case: Case) -> Iterator[tuple[str, list[bytes]]]:
    """Yield the same bytes in one piece, byte by byte, and cut at places drawn by the case's id."""
    body = b"".join(reads(case))
    yield "in one piece", [body]
    yield "byte by byte", [body[i : i + 1] for i in range(len(body))]
    draw = random.Random(case.id)
    for number in range(RANDOM_CUTS):
        marks = sorted(draw.randrange(len(body) + 1) for _ in range(1 + 3 * number))
        pieces = [body[a:b] for a, b in zip([0, *marks], [*marks, len(body)], strict=True)]
        yield f"at {marks}", pieces


def _assembled(case: Case, pieces: list[bytes], result: Result) -> dict[str, Any] | None:
    document = {
        "from": case.provider,
        "chunks_base64": [base64.b64encode(piece).decode() for piece in pieces],
        "tools": case.given.get("tools"),
        "content_type": case.given.get("content_type"),
    }
    code, out, notes = call("assemble", "--json", "--profile", case.provider, document=document)
    if code not in (0, 4) or not out.strip():
        result.wrong.append(
            f"assemble ended with exit code {code}: {(out.decode() or notes)[-300:]}"
        )
        return None
    found: dict[str, Any] = json.loads(out)
    if found["committable"] != (code == 0):
        result.wrong.append(f"committable {found['committable']} with exit code {code}")
    return found


def _outcome(found: dict[str, Any]) -> dict[str, Any]:
    return {key: found.get(key) for key in (*PLAIN, "usage", "duplicates_dropped")}


def _part(found: object, wanted: object) -> object:
    """Return of `found` what `wanted` asks for: a provider may count more than a case names."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return {key: value for key, value in found.items() if key in wanted}
    return found


def _other(found: object, wanted: object) -> str | None:
    if found == wanted or (found in (None, "") and wanted in (None, "")):
        return None
    return f"{found!r}, not {wanted!r}"
