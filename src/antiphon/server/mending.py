"""Histories that come broken: repaired for who asked for that, else refused with what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

from antiphon.adapters.base import Parsed
from antiphon.adapters.requests.repairing import repaired
from antiphon.core.manifest import Mapping
from antiphon.core.rules.graph import check
from antiphon.core.rules.repair import listed
from antiphon.core.traffic.keys import Right
from antiphon.errors import InvalidInput, SequenceRejected
from antiphon.server.rights.principals import principal_of

ASKED: Final = "antiphon-repair"
TOLD: Final = "antiphon-repairs"
MOST_TOLD: Final = 8
"""How many repairs stand in a header; the manifest lists all of them."""


def asked(request: Request) -> bool:
    """Return whether a broken history is to be repaired: by the request's word, else its key's.

    Raises:
        InvalidInput: The header says neither on nor off.
        Forbidden: The key may not ask for it.
    """
    principal = principal_of(request)
    match request.headers.get(ASKED):
        case None:
            return principal.terms.repairs
        case "on":
            principal.require(Right.REPAIR)
            return True
        case "off":
            return False
        case _:
            raise InvalidInput("It is on or off.", at=ASKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mended:
    """A request whose history may be used, and what was done to it."""

    parsed: Parsed
    repairs: tuple[Mapping, ...] = ()


def mended(request: Request, parsed: Parsed) -> Mended:
    """Return the request as it is to be used.

    Raises:
        InvalidInput, Forbidden: As `asked`.
    """
    if not asked(request):
        return Mended(parsed=parsed)
    whole, repairs = repaired(parsed)
    return Mended(parsed=whole, repairs=tuple(map(listed, repairs)))


def with_help(rejected: SequenceRejected, parsed: Parsed) -> SequenceRejected:
    """Return the refusal with the repairs that would make the history legal, where they would."""
    whole, repairs = repaired(parsed)
    if not repairs or check(whole.messages):
        return rejected
    return SequenceRejected(rejected.findings, repairs)


def headers(repairs: Sequence[Mapping]) -> dict[str, str]:
    """Return what an answer says of repairs: change and place of the first few, and how many more."""
    if not repairs:
        return {}
    told = [f"{one.rule.removeprefix('repair_')} {_printable(one.block)}" for one in repairs]
    more = len(told) - MOST_TOLD
    return {TOLD: ", ".join(told[:MOST_TOLD]) + (f", {more} more" if more > 0 else "")}


def _printable(place: str) -> str:
    """Return a place as a header can carry it: ids in it are the client's own."""
    return "".join(c if c.isascii() and c.isprintable() and c != "," else "?" for c in place)[:100]
