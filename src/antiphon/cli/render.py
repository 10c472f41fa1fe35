"""`antiphon render`: the exact body of a request, and nothing else on standard output."""

from __future__ import annotations

import sys

import click
import msgspec

from antiphon.adapters import registry
from antiphon.adapters.base import Adapter, Parsed, Rendering, render
from antiphon.cli.documents import Document, read_document, recognise
from antiphon.cli.graph import read_graph
from antiphon.cli.output import json_option, mappings, note, print_json
from antiphon.core.digests import NO_KEY
from antiphon.errors import InvalidInput, SequenceRejected

UNNAMED = "unnamed-model"


def rendering(
    document: Document, profile: str, *, model: str | None, base_url: str | None
) -> Rendering:
    """Return the request that a document stands for.

    Raises:
        SequenceRejected: It may not be sent; places are those of the document.
        InvalidInput: It cannot be read, or holds what this release cannot carry.
    """
    adapter = registry.get(profile, document.facts)
    parsed = _parsed(document, adapter)
    if parsed.findings:
        raise SequenceRejected(parsed.findings)
    if parsed.uncarried:
        raise InvalidInput(
            "The dialect allows this, but this release cannot carry it.",
            code="unsupported_parameter",
            at=parsed.uncarried[0],
        )
    policy = msgspec.structs.replace(
        parsed.policy,
        model=model or parsed.policy.model or UNNAMED,
        endpoint=base_url or "",
        profile=profile,
    )
    try:
        made = render(adapter, parsed.messages, policy, parsed.tools, key=NO_KEY)
    except SequenceRejected as rejected:
        raise SequenceRejected(parsed.located(rejected.findings)) from None
    located = tuple(
        msgspec.structs.replace(m, block=parsed.places.get(m.block, m.block)) for m in made.mappings
    )
    return msgspec.structs.replace(made, mappings=located)


def _parsed(document: Document, adapter: Adapter) -> Parsed:
    """The graph comes first; a request beside it lends its options and tools."""
    request = document.request
    if document.graph is None:
        assert request is not None
        return registry.get(document.source or recognise(request)).parse(request)
    graph = read_graph(document.graph)
    if request is None:
        return graph
    options = registry.get(document.source or adapter.name).parse({**request, "messages": []})
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


@click.command("render")
@click.argument("file", metavar="FILE")
@click.option("--profile", metavar="PROFILE", required=True, help="The dialect to render for.")
@click.option("--model", metavar="NAME", help="The model's name at its provider.")
@click.option("--base-url", metavar="URL", help="Where the request would go.")
@json_option
def command(
    file: str, profile: str, model: str | None, base_url: str | None, as_json: bool
) -> None:
    """Print the exact body of the request that FILE stands for.

    FILE holds our graph, or a provider's request; - is standard input. What had to be mapped
    is told on standard error. Exit code 3: it may not be sent, and nothing was printed.
    """
    made = rendering(read_document(file), profile, model=model, base_url=base_url)
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
