"""The verdict on a request or a graph: what was read, by whose rules, and what they say of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from antiphon.adapters import registry
from antiphon.adapters.base import Adapter, Parsed
from antiphon.cli.requests.documents import Document
from antiphon.cli.requests.graph import read_graph
from antiphon.cli.requests.kept_state import with_call_ids
from antiphon.cli.requests.recognition import SAYING, Recognised, recognise
from antiphon.core.manifest import Policy
from antiphon.core.rules.findings import Finding, Severity, ordered
from antiphon.core.rules.graph import check
from antiphon.core.rules.profile import Profile
from antiphon.errors import InvalidInput

DECLARING: Final = frozenset({"tools", "toolConfig", "tool_config"})
"""Fields without which nothing true could be said of the rest, beside those that hold the talk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found out about a document.

    Attributes:
        parsed: What it says.
        source: The profile that the request was read with; None for a graph, or where a body
            shows none.
        target: The profile whose rules judged it; None for those of the graph alone.
        recognised: How the request's form was found; None for a graph.
        named: Whether the caller named it, against what the file says or shows.
        findings: First reason first; their places are those of the document.
        at: Where in the document those places begin.
    """

    parsed: Parsed
    source: str | None
    target: str | None
    recognised: Recognised | None = None
    named: bool = False
    findings: tuple[Finding, ...]
    at: str = ""

    @property
    def accepted(self) -> bool:
        """Whether it may be sent: notes do not stand in the way."""
        return not refused(self.findings)

    @property
    def messages(self) -> int:
        """How many messages it has, those that could not be read among them."""
        unread = (f for f in self.parsed.findings if f.position >= 0)  # others are of its head
        return len(self.parsed.messages) + sum(1 for _ in unread)


def judge(document: Document, *, source: str | None, profile: str | None) -> Verdict:
    """Return the verdict on a document.

    A request is judged as it stands, by the rules of its own dialect. A graph, or a request
    that is meant for another profile, is judged by what could not be mapped safely. What has
    not the shape of a request at all is judged, too: it is refused, and at its place.

    Raises:
        InvalidInput: It cannot be read, or its dialect is not spoken by this release.
    """
    if document.misshapen is not None:
        return _misshapen(source or document.source, document.misshapen)
    unspoken = _unspoken(document) if profile is None else ()
    target = profile or (document.target if not unspoken else None)
    if document.request is None:
        return _graph(document, target, unspoken)
    named = source or document.source
    recognised = Recognised(named) if named else recognise(document.request)
    dialect = recognised.form
    parsed = _read(dialect, document.request)
    if target is None or target == dialect:
        adapter = registry.get(dialect, {**parsed.facts, **document.facts})
        lost = adapter.compare(parsed, document.stored)
        findings = _in_order(parsed, [*as_it_stands(parsed, adapter), *lost])
    else:
        findings = _mapped(parsed, registry.get(target, document.facts).profile)
    return Verdict(
        parsed=parsed,
        source=dialect,
        target=target or dialect,
        recognised=recognised,
        named=source is not None,
        findings=(*unspoken, *findings),
        at=document.request_at,
    )


def _read(dialect: str, request: Mapping[str, object]) -> Parsed:
    """Return what a request says; a field of the wrong shape is a finding, before all others.

    The rest is read as if that field had not been there, unless nothing could be said of it then.
    """
    try:
        return registry.get(dialect).parse(request)
    except InvalidInput as wrong:
        if wrong.code != "wrong_shape":
            raise
        finding, field = _of_head(wrong), (wrong.at or "").partition(".")[0].partition("[")[0]
    if field not in request or field in SAYING or field in DECLARING:
        return _unread(finding)
    parsed = _read(dialect, {name: value for name, value in request.items() if name != field})
    return replace(parsed, findings=(finding, *parsed.findings))


def _misshapen(source: str | None, wrong: InvalidInput) -> Verdict:
    finding = _of_head(wrong)
    return Verdict(
        parsed=_unread(finding),
        source=source,
        target=source,
        recognised=Recognised(source) if source else None,
        findings=(finding,),
    )


def _unread(finding: Finding) -> Parsed:
    """Return a request of which nothing could be read."""
    return Parsed(messages=(), tools=(), policy=Policy(model=""), findings=(finding,), places={})


def _of_head(wrong: InvalidInput) -> Finding:
    """Return what is wrong with a request before its first message, as a finding."""
    return Finding(code="malformed_item", at=wrong.at or "", position=-1, message=wrong.message)


def _unspoken(document: Document) -> tuple[Finding, ...]:
    """Return what is to be said of a target that nobody here speaks."""
    if document.target is None or document.target in registry.available():
        return ()
    known = ", ".join(registry.available())
    sentence = f"There is no profile {document.target!r}. Known: {known}."
    return (Finding(code="unknown_profile", at="target", position=-1, message=sentence),)


def as_it_stands(parsed: Parsed, adapter: Adapter) -> tuple[Finding, ...]:
    """Return what a dialect refuses about a request as somebody else has made it."""
    return _findings(
        parsed, check(parsed.messages, adapter.profile, mapped=False, tools=parsed.tools)
    )


def refused(findings: Iterable[Finding]) -> bool:
    """Return whether any of `findings` stands in the way."""
    return any(finding.severity is Severity.ERROR for finding in findings)


def _graph(document: Document, target: str | None, unspoken: tuple[Finding, ...]) -> Verdict:
    parsed = read_graph(document.graph)
    parsed = replace(parsed, messages=with_call_ids(parsed.messages, document.stored))
    rules = registry.get(target, document.facts).profile if target else None
    return Verdict(
        parsed=parsed,
        source=None,
        target=target,
        findings=(*unspoken, *_mapped(parsed, rules)),
        at=document.graph_at,
    )


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
    left_out = (f for f in parsed.findings if f.code in ("malformed_item", "role_unsupported"))
    unread = [f.position for f in left_out if f.position >= 0]  # not what is wrong at the head
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
