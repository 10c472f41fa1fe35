"""The OpenAPI document, made from the routes and their types: nothing is described twice."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Final

from antiphon.server.describing.endpoints import Endpoint
from antiphon.server.describing.schemas import Schema, Schemas, without_null
from antiphon.server.http.faults import OPENAI, error_shape
from antiphon.version import __version__

PATH: Final = "/antiphon/v1/openapi.json"

DESCRIPTION: Final = """\
Conversations that last, as trees, over any model provider. Under `/v1/` speaks the API of OpenAI's Responses and \
Conversations, and for clients that bring their history Chat Completions and Anthropic Messages; under `/antiphon/v1/` everything that it has no words for.
"""

IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    "description": "The same key with the same body is the same run, for 24 hours.",
}
WHEN_BUSY: Final = {
    "name": "Antiphon-When-Busy",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "enum": ["queue", "refuse"], "default": "queue"},
    "description": "Whether a run waits its turn where another one works, or is refused.",
}


def document(routes: Iterable[Endpoint]) -> Schema:
    """Return the document that describes `routes`."""
    endpoints = list(routes)
    types = [
        kind
        for endpoint in endpoints
        for kind in (endpoint.body, endpoint.answer, endpoint.query)
        if kind is not None
    ]
    types += {error_shape(endpoint.path) for endpoint in endpoints}
    schemas = Schemas(types)
    paths: dict[str, Schema] = {}
    for endpoint in endpoints:
        error = error_shape(endpoint.path)
        paths.setdefault(endpoint.path_format, {})[endpoint.method.lower()] = _operation(
            endpoint, schemas, schemas.of(error)
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Antiphon", "version": __version__, "description": DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"bearer": []}, {}],
    }


def _operation(endpoint: Endpoint, schemas: Schemas, error: Schema) -> Schema:
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in endpoint.param_convertors
    ]
    if endpoint.query is not None:
        parameters += _query(schemas.fields(endpoint.query))
    if endpoint.starts:
        parameters += [IDEMPOTENCY_KEY, WHEN_BUSY]
    description = inspect.getdoc(endpoint.handler) or ""
    told: Schema = {
        "operationId": _name(endpoint),
        "summary": endpoint.summary,
        "description": f"{description}\n\n{_right(endpoint)}",
        "parameters": parameters,
        "responses": {
            str(endpoint.status): _answer(endpoint, schemas),
            "default": {
                "description": "What went wrong.",
                "content": {"application/json": {"schema": error}},
            },
        },
    }
    if endpoint.body is not None:
        told["requestBody"] = {
            "required": endpoint.needs_body,
            "content": {"application/json": {"schema": schemas.of(endpoint.body)}},
        }
    return told


def _answer(endpoint: Endpoint, schemas: Schemas) -> Schema:
    told: Schema = {"description": "Done."}
    if endpoint.answer is None:
        return told
    if endpoint.media_type == "text/event-stream":
        event = {
            "type": "object",
            "properties": {
                "event": {"type": "string"},
                "id": {"type": "string"},
                "data": {
                    "type": "string",
                    "contentMediaType": "application/json",
                    "contentSchema": schemas.of(endpoint.answer),
                },
            },
            "required": ["data"],
        }
        told["description"] = "Server-sent events; this is the schema of each."
        told["content"] = {endpoint.media_type: {"itemSchema": event}}
    else:
        told["content"] = {endpoint.media_type: {"schema": schemas.of(endpoint.answer)}}
    return told


def _query(schema: Schema) -> list[Schema]:
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "schema": without_null(kind),
        }
        for name, kind in schema.get("properties", {}).items()
    ]


def _right(endpoint: Endpoint) -> str:
    return "Needs no key." if endpoint.public else f"Needs the right to {endpoint.right}."


def _name(endpoint: Endpoint) -> str:
    parts = [
        part for part in endpoint.path_format.split("/") if part and part not in ("antiphon", "v1")
    ]
    words = [part.strip("{}").replace(".", "_") for part in parts]
    if endpoint.path.startswith(OPENAI):
        words.insert(0, "openai")
    return "_".join([endpoint.method.lower(), *words])
