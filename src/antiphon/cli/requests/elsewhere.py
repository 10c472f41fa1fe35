"""Who would take a request: every dialect, each asked in its own words; and who once it is repaired."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from antiphon.adapters import registry
from antiphon.adapters.base import Parsed
from antiphon.adapters.requests.conversion import convert
from antiphon.adapters.requests.repairing import repaired
from antiphon.cli.requests.judging import Verdict, as_it_stands, refused
from antiphon.core.rules.findings import Finding, Repair
from antiphon.errors import AntiphonError, SequenceRejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A dialect takes it.

    Attributes:
        as_it_stands: Whether it takes the very request, byte for byte.
        mappings: The rules by which it would be mapped otherwise, one for each change.
    """

    as_it_stands: bool = False
    mappings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A dialect does not: why, and where."""

    code: str
    at: str
    message: str


Answer: TypeAlias = Taken | Refused


def answers(
    parsed: Parsed, request: Mapping[str, object] | None, source: str | None
) -> dict[str, Answer]:
    """Return what every dialect that is spoken makes of what was parsed.

    A dialect of the same form is asked about the very request first, and about what could be
    made of it then; its own dialect about the latter only.

    Args:
        parsed: The line, tools and options.
        request: The request that they were read from; None for our own graph.
        source: The profile that it was read with.
    """
    return {name: _ask(name, parsed, request, source) for name in registry.available()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mending:
    """What makes a broken history legal, and who takes it then: it was tried with each."""

    repairs: tuple[Repair, ...]
    profiles: tuple[str, ...]


def mending(verdict: Verdict) -> Mending | None:
    """Return what repairs a history that is refused; None where nobody would take it even then."""
    if verdict.accepted or verdict.parsed.findings:
        return None
    whole, repairs = repaired(verdict.parsed)
    if not repairs:
        return None
    takes = answers(whole, None, verdict.source)
    profiles = tuple(name for name, answer in takes.items() if isinstance(answer, Taken))
    return Mending(repairs=repairs, profiles=profiles) if profiles else None


def _ask(
    name: str, parsed: Parsed, request: Mapping[str, object] | None, source: str | None
) -> Answer:
    adapter = registry.get(name)
    same_form = source not in (None, name) and registry.form_of(source) == registry.form_of(name)
    try:
        made = convert(parsed, adapter, source=source, model=parsed.policy.model or "model")
        if request is not None and same_form:
            there = adapter.parse(request)
            if not refused(as_it_stands(there, registry.get(name, there.facts))):
                return Taken(as_it_stands=True)
    except SequenceRejected as rejected:
        return _refused(rejected.findings[0])
    except AntiphonError as error:
        return Refused(code=error.code, at=error.at or "", message=error.message)
    return Taken(mappings=tuple(mapping.rule for mapping in made.mappings))


def _refused(finding: Finding) -> Refused:
    return Refused(code=finding.code, at=finding.at, message=finding.message)
