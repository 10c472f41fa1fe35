"""Answers of the Interactions API as events, step by step."""

from __future__ import annotations

from typing import Any

USAGE = {"total_input_tokens": 7, "total_output_tokens": 9, "total_tokens": 16}


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"event_type": kind, **fields}


def interaction(status: str, *steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    begun = {"id": "v1_1", "object": "interaction", "model": "gemini-3.8-flash", "status": status}
    return {**begun, "steps": list(steps), "usage": USAGE, **more}


def created() -> dict[str, Any]:
    return event("interaction.created", interaction=interaction("in_progress"))


def ended(status: str, *steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return event("interaction.completed", interaction=interaction(status, *steps, **more))


def output(*texts: str) -> dict[str, Any]:
    return {"type": "model_output", "content": [{"type": "text", "text": text} for text in texts]}


def step(index: int, begun: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    """A step from its start to its stop, filled piece by piece."""
    return [
        event("step.start", index=index, step=begun),
        *(event("step.delta", index=index, delta=delta) for delta in deltas),
        event("step.stop", index=index),
    ]


def said(index: int, *pieces: str) -> list[dict[str, Any]]:
    return step(index, output(), *({"type": "text", "text": piece} for piece in pieces))


def call(index: int, call_id: str, name: str, *pieces: str) -> list[dict[str, Any]]:
    begun = {"type": "function_call", "id": call_id, "name": name, "arguments": {}}
    return step(index, begun, *({"type": "arguments_delta", "arguments": p} for p in pieces))


def thinking(index: int, *pieces: str) -> list[dict[str, Any]]:
    summaries = ({"type": "text", "text": piece} for piece in pieces)
    deltas: list[dict[str, Any]] = [{"type": "thought_summary", "content": s} for s in summaries]
    signature = {"type": "thought_signature", "signature": "c2ln"}
    return step(index, {"type": "thought"}, *deltas, signature)
