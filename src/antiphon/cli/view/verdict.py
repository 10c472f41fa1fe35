"""A verdict for people: what breaks which rule, where, what helps, and who else would take it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from antiphon.cli.requests.documents import Document
from antiphon.cli.requests.elsewhere import Answer, Mending, Refused, Taken
from antiphon.cli.requests.excerpt import excerpt, offset_of
from antiphon.cli.requests.judging import Verdict
from antiphon.cli.view.text import Ink, count, harmless, one_line, screen_width, wrap
from antiphon.core.rules.findings import Finding, Severity
from antiphon.core.rules.reasons import REASONS

PAGE: Final = "docs/reason-codes.md"
INDENT: Final = "  "


def see(code: str) -> str:
    """Return where the rule behind `code` is explained."""
    return f"{PAGE}#{code}"


def lines(
    document: Document,
    verdict: Verdict,
    answers: Mapping[str, Answer],
    mend: Mending | None,
    ink: Ink,
) -> Iterator[str]:
    """Yield the whole report.

    Args:
        document: What was judged.
        verdict: What came of it.
        answers: What each dialect makes of it; its own says what rendering it anew would do.
        mend: What would repair it.
        ink: Paints, or does not.
    """
    word = ink("accept", "good", "bold") if verdict.accepted else ink("reject", "bad", "bold")
    what = f"{_what(document, verdict)}, {count(verdict.messages, 'message')}"
    yield f"{word}  {harmless(document.name)}  {ink(what, 'dim')}"
    if document.found:
        yield f"{INDENT}{ink(f'judged is {document.found}', 'dim')}"
    yield from _doubts(verdict, ink)
    for finding in verdict.findings:
        yield ""
        yield from _finding(document, verdict, finding, ink)
    own = answers.get(verdict.source or "")
    if (
        isinstance(own, Taken)
        and own.mappings
        and not verdict.accepted
        and verdict.target == verdict.source
    ):
        yield ""
        yield from _told("mend", _mended(document, verdict, own), ink)
    if mend is not None:
        yield ""
        yield from _told("mend", _repaired(document, verdict, mend), ink)
    others = {name: answer for name, answer in answers.items() if name != verdict.source}
    if others:
        yield ""
        yield from _elsewhere(others, verdict.findings, ink)


def _what(document: Document, verdict: Verdict) -> str:
    if verdict.source is None and document.misshapen is None:
        return f"graph for {verdict.target}" if verdict.target else "graph"
    if verdict.source is None:
        return "request"
    if verdict.target != verdict.source:
        return f"{verdict.source} request for {verdict.target}"
    return f"{verdict.source} request"


def _mended(document: Document, verdict: Verdict, own: Taken) -> str:
    source = f"--from {verdict.source} " if verdict.named else ""
    file = harmless(document.argument)
    return (
        f"antiphon render {source}--profile {verdict.source} {file} makes it legal: "
        f"{', '.join(dict.fromkeys(own.mappings))}."
    )


def _repaired(document: Document, verdict: Verdict, mend: Mending) -> str:
    """Say how it is repaired: for the profile that it is meant for, or for those that take it."""
    meant = verdict.target or mend.profiles[0]
    taken = meant in mend.profiles
    target = meant if taken else mend.profiles[0]
    source = f"--from {verdict.source} " if verdict.named else ""
    made = ", ".join(f"{one.change} at {harmless(one.at)}" for one in mend.repairs)
    told = (
        f"antiphon render {source}--repair --profile {target} {harmless(document.argument)} repairs it: "
        f"{made}."
    )
    if taken:
        return f"{told} A server does the same for Antiphon-Repair: on."
    return f"{told} {meant} would not take it even then, only {', '.join(mend.profiles)}."


def _doubts(verdict: Verdict, ink: Ink) -> Iterator[str]:
    recognised = verdict.recognised
    if recognised is None:
        return
    if recognised.rivals:
        could = " or ".join(recognised.rivals)
        yield ink(f"It could be {could} as well; --from says which.", "warn")
    if recognised.foreign:
        places = ", ".join(recognised.foreign[:3])
        yield ink(f"Not the way of {recognised.form}, but of another form: {places}.", "warn")


def _finding(document: Document, verdict: Verdict, finding: Finding, ink: Ink) -> Iterator[str]:
    bad = finding.severity is Severity.ERROR
    code = ink(finding.code, "bad" if bad else "warn", "bold")
    yield f"{code} at {ink(harmless(finding.at), 'bold')}{'' if bad else ' (a note)'}"
    yield from _told("", one_line(finding.message), ink)
    root = "" if finding.code == "unknown_profile" else verdict.at  # the document's own field
    offset = offset_of(document.text, _place(root, finding.at))
    if offset is not None:
        yield from excerpt(document.text, offset, ink)
    reason = REASONS.get(finding.code)
    if reason is not None:
        yield from _told("rule", reason.rule, ink)
        yield from _told("fix", reason.remedy, ink)
        yield from _told("see", see(finding.code), ink)


def _told(word: str, text: str, ink: Ink) -> Iterator[str]:
    """Yield `text` behind its word, wrapped and aligned."""
    head = f"{INDENT}{ink(word, 'mark')}{' ' * (6 - len(word))}" if word else INDENT
    width = screen_width() - (8 if word else len(INDENT))
    for number, row in enumerate(wrap(text, width)):
        yield (head if not number else " " * (8 if word else len(INDENT))) + row


def _elsewhere(
    answers: Mapping[str, Answer], findings: tuple[Finding, ...], ink: Ink
) -> Iterator[str]:
    """Yield who takes it as it is, who once it is mapped, and who refuses it for what."""
    reason = next((f.code for f in findings if f.severity is Severity.ERROR), None)
    refusals = {name: a for name, a in answers.items() if isinstance(a, Refused)}
    codes = {answer.code for answer in refusals.values()}
    if len(refusals) == len(answers) and codes == {reason}:
        yield ink("No other dialect takes it: this rule holds for all of them.", "dim")
        return
    as_is = [n for n, a in answers.items() if isinstance(a, Taken) and a.as_it_stands]
    others = {n: a for n, a in answers.items() if isinstance(a, Taken) and not a.as_it_stands}
    unchanged = [name for name, taken in others.items() if not taken.mappings]
    mapped = {name: taken for name, taken in others.items() if taken.mappings}
    if as_is:
        yield from _group("taken as it stands by", ", ".join(as_is), "good", ink)
    if unchanged:
        yield from _group("can be rendered unchanged for", ", ".join(unchanged), "good", ink)
    if mapped:
        changes = (f"{n} ({count(len(a.mappings), 'mapping')})" for n, a in mapped.items())
        yield from _group("can be rendered for", ", ".join(changes), "good", ink)
    if refusals:
        reasons: dict[str, list[str]] = {}
        for name, answer in refusals.items():
            reasons.setdefault(f"{answer.code} at {harmless(answer.at)}", []).append(name)
        for why, names in reasons.items():
            yield from _group(f"refused for {why} by", ", ".join(names), "bad", ink)


def _group(head: str, text: str, style: str, ink: Ink) -> Iterator[str]:
    yield ink(head, style)
    whole = text.replace(" (", "\N{NO-BREAK SPACE}(")
    rows = wrap(whole, screen_width() - len(INDENT))
    yield from (INDENT + row.replace("\N{NO-BREAK SPACE}", " ") for row in rows)


def _place(root: str, at: str) -> str:
    """Return the path of `at` in the file: places begin inside `root`, and a list is named graph."""
    if not root:
        return at.removeprefix("graph")
    return at if at.startswith(root) else f"{root}.{at}"
