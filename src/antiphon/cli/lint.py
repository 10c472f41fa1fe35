"""`antiphon lint`: may this be sent, and if not, which block breaks which rule."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click

from antiphon.adapters import registry
from antiphon.adapters.base import Parsed
from antiphon.cli.documents import Document, read_document, recognise
from antiphon.cli.excerpt import excerpt, offset_of
from antiphon.cli.graph import read_graph
from antiphon.cli.output import DOCUMENTED, json_option, note, print_json
from antiphon.core.findings import Finding, Severity, ordered
from antiphon.core.profile import Profile
from antiphon.core.reasons import REASONS
from antiphon.core.rules import check


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What lint found out.

    Attributes:
        what: What was judged, for people.
        findings: First reason first; their places are those of the document.
        at: Where in the document those places begin.
        uncarried: Places of what is legal, but not ours to send.
    """

    what: str
    findings: tuple[Finding, ...]
    at: str = ""
    uncarried: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether it may be sent: notes do not stand in the way."""
        return all(finding.severity is not Severity.ERROR for finding in self.findings)


def judge(document: Document, *, source: str | None, profile: str | None) -> Verdict:
    """Return the verdict on a document.

    A request is judged as it stands, by the rules of its own dialect. A graph, or a request
    that is meant for another profile, is judged by what could not be mapped safely.

    Raises:
        InvalidInput: It cannot be read, or its dialect is not spoken by this release.
    """
    if document.request is not None:
        dialect = source or document.source or recognise(document.request)
        target = profile or dialect
        as_it_stands = target == dialect
        parsed = registry.get(dialect).parse(document.request)
        adapter = registry.get(
            target, {**parsed.facts, **document.facts} if as_it_stands else document.facts
        )
        rules: Profile | None = adapter.profile
        lost = adapter.compare(parsed, document.stored) if as_it_stands else ()
        what, at = f"{dialect} request", document.request_at
    else:
        parsed = read_graph(document.graph)
        as_it_stands, lost = False, ()
        named = profile or document.target
        rules = registry.get(named, document.facts).profile if named else None
        what = f"graph for {named}" if named else "graph"
        at = document.graph_at
    return Verdict(
        what=f"{what}, {len(parsed.messages) + len(parsed.findings)} messages",
        findings=ordered([*_findings(parsed, rules, as_it_stands=as_it_stands), *lost]),
        at=at,
        uncarried=parsed.uncarried,
    )


def _findings(
    parsed: Parsed, profile: Profile | None, *, as_it_stands: bool
) -> tuple[Finding, ...]:
    found: Iterable[Finding] = check(
        parsed.messages, profile, mapped=not as_it_stands, tools=parsed.tools
    )
    if parsed.findings and not parsed.messages:
        # Nothing could be read as a message, which is not the same as nothing being there.
        found = [finding for finding in found if finding.code != "empty_sequence"]
    return ordered([*parsed.findings, *parsed.located(found)])


@click.command("lint")
@click.argument("file", metavar="FILE")
@click.option("--from", "source", metavar="PROFILE", help="The dialect of the request.")
@click.option("--profile", metavar="PROFILE", help="Judge it for this profile.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, file: str, source: str | None, profile: str | None, as_json: bool
) -> None:
    """Say whether a request may be sent, and if not, which block breaks which rule.

    FILE holds a provider's request or our graph; - is standard input. Exit code 0: it may be
    sent; 3: it may not; 2: it cannot be read.
    """
    document = read_document(file)
    verdict = judge(document, source=source, profile=profile)
    if as_json:
        print_json(
            {
                "verdict": "accept" if verdict.accepted else "reject",
                "findings": [_as_json(finding) for finding in verdict.findings],
            }
        )
    else:
        _show(document, verdict)
    ctx.exit(0 if verdict.accepted else 3)


def _as_json(finding: Finding) -> dict[str, object]:
    shown: dict[str, object] = {
        "code": finding.code,
        "at": finding.at,
        "message": finding.message,
    }
    if finding.call_ids:
        shown["call_ids"] = list(finding.call_ids)
    if finding.severity is not Severity.ERROR:
        shown["severity"] = finding.severity.value
    return shown


def _show(document: Document, verdict: Verdict) -> None:
    word = (
        click.style("accept", fg="green", bold=True)
        if verdict.accepted
        else click.style("reject", fg="red", bold=True)
    )
    click.echo(f"{word}  {document.name}  {click.style(verdict.what, dim=True)}")
    for finding in verdict.findings:
        click.echo()
        click.echo("\n".join(_told(document, verdict.at, finding)))
    for place in verdict.uncarried:
        note(f"{place} is legal, but this release cannot carry it itself.")
    if verdict.findings:
        note("")
        note(click.style(f"Every code is explained in {DOCUMENTED}.", dim=True))


def _told(document: Document, root: str, finding: Finding) -> Sequence[str]:
    bad = finding.severity is Severity.ERROR
    code = click.style(finding.code, fg="red" if bad else "yellow", bold=True)
    lines = [f"{code} at {click.style(finding.at, bold=True)}", f"  {finding.message}"]
    offset = offset_of(document.text, _place(root, finding.at))
    if offset is not None:
        lines += excerpt(document.text, offset)
    reason = REASONS.get(finding.code)
    if reason is not None:
        lines.append(f"  {click.style('rule', dim=True)}  {reason.rule}")
        lines.append(f"  {click.style('fix ', dim=True)}  {reason.remedy}")
    return lines


def _place(root: str, at: str) -> str:
    """Return the path of `at` in the file: places begin inside `root`, and a list is named graph."""
    if not root:
        return at.removeprefix("graph")
    return at if at.startswith(root) else f"{root}.{at}"
