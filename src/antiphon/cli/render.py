"""`antiphon render`: the exact body of a request, and nothing else on standard output."""

from __future__ import annotations

import sys
from dataclasses import replace

import click
import msgspec

from antiphon.adapters import registry
from antiphon.adapters.base import Adapter, Parsed, Rendering
from antiphon.adapters.requests.conversion import convert
from antiphon.adapters.requests.repairing import repaired
from antiphon.cli.output import json_option, mappings, note, print_json
from antiphon.cli.requests.documents import Document, read_document
from antiphon.cli.requests.graph import read_graph
from antiphon.cli.requests.kept_state import with_call_ids
from antiphon.cli.requests.recognition import SAYING, recognise
from antiphon.core.rules.repair import listed

UNNAMED = "unnamed-model"


def rendering(
    document: Document,
    profile: str,
    *,
    source: str | None,
    model: str | None,
    base_url: str | None,
    repair: bool = False,
) -> Rendering:
    """Return the request that a document stands for, its history repaired where that was asked for.

    Raises:
        SequenceRejected: It may not be sent; places are those of the document.
        InvalidInput: It cannot be read, or holds what this release cannot carry.
    """
    if document.misshapen is not None:
        raise document.misshapen
    adapter = registry.get(profile, document.facts)
    dialect = source or document.source
    if document.request is not None and document.graph is None and dialect is None:
        dialect = recognise(document.request).form
    parsed = _parsed(document, dialect, adapter)
    name = model or parsed.policy.model or UNNAMED
    parsed, repairs = repaired(parsed) if repair else (parsed, ())
    made = convert(parsed, adapter, source=dialect, model=name, endpoint=base_url or "")
    return replace(made, mappings=(*map(listed, repairs), *made.mappings))


def _parsed(document: Document, dialect: str | None, adapter: Adapter) -> Parsed:
    """The graph comes first; a request beside it lends its options and tools."""
    request = document.request
    if document.graph is None:
        assert request is not None
        assert dialect is not None
        return registry.get(dialect).parse(request)
    graph = read_graph(document.graph)
    graph = replace(graph, messages=with_call_ids(graph.messages, document.stored))
    if request is None:
        return graph
    options = registry.get(dialect or adapter.name).parse(
        {**request, **_silent(dialect or adapter.name)}
    )
    policy = options.policy
    if "stream" not in request:
        policy = msgspec.structs.replace(policy, stream=graph.policy.stream)
    return Parsed(
        messages=graph.messages,
        tools=options.tools or graph.tools,
        policy=policy,
        findings=graph.findings,
        places=graph.places,
        uncarried=options.uncarried,
    )


def _silent(dialect: str) -> dict[str, object]:
    """Return what a request of this dialect holds when nothing was said in it."""
    form = registry.form_of(dialect)
    return {name: [] for name, forms in SAYING.items() if form in forms}


@click.command("render")
@click.argument("file", metavar="FILE")
@click.option("--from", "source", metavar="PROFILE", help="The dialect of the request in FILE.")
@click.option("--profile", metavar="PROFILE", required=True, help="The dialect to render for.")
@click.option("--model", metavar="NAME", help="The model's name at its provider.")
@click.option("--base-url", metavar="URL", help="Where the request would go.")
@click.option("--repair", is_flag=True, help="Repair a history that breaks rules of the graph.")
@json_option
def command(
    file: str,
    source: str | None,
    profile: str,
    model: str | None,
    base_url: str | None,
    repair: bool,
    as_json: bool,
) -> None:
    """Print the exact body of the request that FILE stands for.

    FILE holds our graph, or a provider's request; - is standard input. A request of one form
    comes out in the form of another: what had to be mapped is told on standard error, and what
    the other form cannot say is refused. Exit code 3: it may not be sent there, 2: it cannot be
    said there or not be read; then nothing was printed.
    """
    made = rendering(
        read_document(file),
        profile,
        source=source,
        model=model,
        base_url=base_url,
        repair=repair,
    )
    if as_json:
        print_json(
            {
                "method": made.request.method,
                "url": made.request.url,
                "headers": dict(made.request.headers),
                "body": made.request.body.decode(),
                "request_digest": made.request_digest,
                "sequence_digest": made.sequence_digest,
                "mappings": [msgspec.to_builtins(mapping) for mapping in made.mappings],
            }
        )
        return
    sys.stdout.buffer.write(made.request.body)
    sys.stdout.buffer.flush()
    if sys.stdout.isatty():
        click.echo()
    mappings((m.rule, m.block, m.detail) for m in made.mappings)
    if f'"model":"{UNNAMED}"'.encode() in made.request.chunks[0]:
        note(f"No model was named; the body says {UNNAMED}. Name one with --model.")
