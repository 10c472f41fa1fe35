"""The verdict on a request or a graph: what was read, by whose rules, and what they say of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from antiphon.adapters import registry
from antiphon.adapters.base import Adapter, Parsed
from antiphon.adapters.repairing import repaired
from antiphon.cli.documents import Document
from antiphon.cli.graph import read_graph
from antiphon.cli.kept_state import with_call_ids
from antiphon.cli.recognition import Recognised, recognise
from antiphon.core.findings import Finding, Repair, Severity, ordered
from antiphon.core.profile import Profile
from antiphon.core.rules import check


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found out about a document.

    Attributes:
        parsed: What it says.
        source: The profile that the request was read with; None for a graph.
        target: The profile whose rules judged it; None for those of the graph alone.
        recognised: How the request's form was found; None for a graph.
        named: Whether the caller named it, against what the file says or shows.
        findings: First reason first; their places are those of the document.
        repairs: What would make a history that breaks rules of the graph legal, if that would.
        at: Where in the document those places begin.
    """

    parsed: Parsed
    source: str | None
    target: str | None
    recognised: Recognised | None = None
    named: bool = False
    findings: tuple[Finding, ...]
    repairs: tuple[Repair, ...] = ()
    at: str = ""

    @property
    def accepted(self) -> bool:
        """Whether it may be sent: notes do not stand in the way."""
        return not refused(self.findings)

    @property
    def messages(self) -> int:
        """How many messages it has, those that could not be read among them."""
        return len(self.parsed.messages) + len(self.parsed.findings)


def judge(document: Document, *, source: str | None, profile: str | None) -> Verdict:
    """Return the verdict on a document.

    A request is judged as it stands, by the rules of its own dialect. A graph, or a request
    that is meant for another profile, is judged by what could not be mapped safely.

    Raises:
        InvalidInput: It cannot be read, or its dialect is not spoken by this release.
    """
    if document.request is None:
        return _graph(document, profile or document.target)
    named = source or document.source
    recognised = Recognised(named) if named else recognise(document.request)
    dialect = recognised.form
    parsed = registry.get(dialect).parse(document.request)
    if profile is None or profile == dialect:
        adapter = registry.get(dialect, {**parsed.facts, **document.facts})
        lost = adapter.compare(parsed, document.stored)
        findings = _in_order(parsed, [*as_it_stands(parsed, adapter), *lost])
    else:
        findings = _mapped(parsed, registry.get(profile, document.facts).profile)
    return Verdict(
        parsed=parsed,
        source=dialect,
        target=profile or dialect,
        recognised=recognised,
        named=source is not None,
        findings=findings,
        repairs=_repairs(parsed, findings),
        at=document.request_at,
    )


def as_it_stands(parsed: Parsed, adapter: Adapter) -> tuple[Finding, ...]:
    """Return what a dialect refuses about a request as somebody else has made it."""
    return _findings(
        parsed, check(parsed.messages, adapter.profile, mapped=False, tools=parsed.tools)
    )


def refused(findings: Iterable[Finding]) -> bool:
    """Return whether any of `findings` stands in the way."""
    return any(finding.severity is Severity.ERROR for finding in findings)


def _graph(document: Document, target: str | None) -> Verdict:
    parsed = read_graph(document.graph)
    parsed = replace(parsed, messages=with_call_ids(parsed.messages, document.stored))
    rules = registry.get(target, document.facts).profile if target else None
    return Verdict(
        parsed=parsed,
        source=None,
        target=target,
        findings=(found := _mapped(parsed, rules)),
        repairs=_repairs(parsed, found),
        at=document.graph_at,
    )


def _repairs(parsed: Parsed, findings: Iterable[Finding]) -> tuple[Repair, ...]:
    """Return what a repair would do, where the history is refused and would be legal then."""
    if not refused(findings) or parsed.findings:
        return ()
    whole, repairs = repaired(parsed)
    return repairs if not check(whole.messages) else ()


def _mapped(parsed: Parsed, profile: Profile | None) -> tuple[Finding, ...]:
    return _findings(parsed, check(parsed.messages, profile, tools=parsed.tools))


def _findings(parsed: Parsed, found: Iterable[Finding]) -> tuple[Finding, ...]:
    if parsed.findings and not parsed.messages:
        # Nothing could be read as a message, which is not the same as nothing being there.
        found = [finding for finding in found if finding.code != "empty_sequence"]
    return _in_order(parsed, [*parsed.findings, *parsed.check_options(), *parsed.located(found)])


def _in_order(parsed: Parsed, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return `findings`, the first reason first.

    A result that could not be read is missing for no other reason: what it lacks comes first. Nor
    is it said of results behind a message that could not be read that nobody asked for them, or of
    a message beside one that it is the first or the last.
    """
    told = ordered(findings)
    if not parsed.findings:
        return told
    unread = [f.position for f in parsed.findings if f.code == "malformed_item"]
    if unread:
        told = tuple(f for f in told if not _seems(f, min(unread), max(unread)))
    return tuple(sorted(told, key=lambda finding: finding.code == "missing_tool_result"))


def _seems(finding: Finding, first: int, last: int) -> bool:
    """Say whether it may only seem so, since what stands from `first` to `last` was not read."""
    match finding.code:
        case "orphan_tool_result" | "must_start_with_user":
            return finding.position >= first
        case "must_end_with_user":
            return finding.position < last
        case _:
            return False
