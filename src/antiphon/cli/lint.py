"""`antiphon lint`: may this be sent, and if not, which block breaks which rule."""

from __future__ import annotations

import click
import msgspec

from antiphon.cli.output import json_option, note, print_json
from antiphon.cli.requests.documents import Document, read_documents
from antiphon.cli.requests.elsewhere import Answer, Mending, Taken, answers, mending
from antiphon.cli.requests.judging import Verdict, judge
from antiphon.cli.view.text import Ink
from antiphon.cli.view.verdict import lines, see
from antiphon.core.rules.findings import Finding, Severity
from antiphon.core.rules.reasons import REASONS


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

    FILE holds a provider's request or our graph, as it is or as it was pasted: a curl command, a
    line of a log, a line of a batch, or a request on each line; - is standard input. The form of
    a request is recognised, where nothing tells two forms apart that is said, and --from names
    it. Below the verdict stands which other dialects would take it, as it is or mapped.

    Exit code 0: it may be sent; 3: it may not; 2: it cannot be read.
    """
    documents = read_documents(file)
    told: list[dict[str, object]] = []
    accepted = True
    for number, document in enumerate(documents):
        verdict = judge(document, source=source, profile=profile)
        accepted &= verdict.accepted
        asked = answers(verdict.parsed, document.request, verdict.source)
        mend = mending(verdict)
        if as_json:
            told.append(_as_json(verdict, asked, mend))
            continue
        if number:
            click.echo()
        for line in lines(document, verdict, asked, mend, Ink()):
            click.echo(line)
        for place in verdict.parsed.uncarried:
            note(f"{place} is legal, but this release cannot carry it itself.")
    if as_json:
        print_json(told[0] if len(documents) == 1 else _of_lines(documents, told, accepted))
    ctx.exit(0 if accepted else 3)


def _of_lines(
    documents: tuple[Document, ...], told: list[dict[str, object]], accepted: bool
) -> dict[str, object]:
    lined = [{"line": document.line, **one} for document, one in zip(documents, told, strict=True)]
    return {"verdict": "accept" if accepted else "reject", "requests": lined}


def _as_json(verdict: Verdict, asked: dict[str, Answer], mend: Mending | None) -> dict[str, object]:
    shown: dict[str, object] = {
        "verdict": "accept" if verdict.accepted else "reject",
        "findings": [_finding(finding) for finding in verdict.findings],
        "from": verdict.source,
        "profile": verdict.target,
    }
    if mend is not None:
        shown["repairs"] = [msgspec.to_builtins(one) for one in mend.repairs]
        shown["repaired_for"] = list(mend.profiles)
    if verdict.recognised is not None:
        shown["could_be"] = list(verdict.recognised.rivals)
    shown["dialects"] = {name: _answer(answer) for name, answer in asked.items()}
    return shown


def _finding(finding: Finding) -> dict[str, object]:
    shown: dict[str, object] = {
        "code": finding.code,
        "at": finding.at,
        "message": finding.message,
    }
    if finding.call_ids:
        shown["call_ids"] = list(finding.call_ids)
    if finding.severity is not Severity.ERROR:
        shown["severity"] = finding.severity.value
    reason = REASONS.get(finding.code)
    if reason is not None:
        shown |= {"rule": reason.rule, "fix": reason.remedy, "see": see(finding.code)}
    return shown


def _answer(answer: Answer) -> dict[str, object]:
    if isinstance(answer, Taken):
        return {
            "verdict": "accept",
            "as_it_stands": answer.as_it_stands,
            "mappings": list(answer.mappings),
        }
    return {"verdict": "reject", "code": answer.code, "at": answer.at, "message": answer.message}
