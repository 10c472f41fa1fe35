"""Cases of kind `history`: may this be sent, if not why, and what exactly would be sent."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from antiphon.adapters import registry
from tests.cases.command import call
from tests.cases.files import Case
from tests.cases.report import Result, keys_of

KEY: Final = {
    "openai-chat": "messages",
    "openai-responses": "input",
    "anthropic": "messages",
    "gemini": "contents",
    "bedrock": "messages",
}
"""Where a dialect's request holds the array that `given.messages` is."""

STORED: Final = (
    "stored_provider_state",
    "committed_blocks",
    "stored_output_items",
    "provider_call_ids",
)


def unavailable(profile: str) -> str | None:
    """Return why a case of this dialect is not run, or None."""
    if profile in registry.available():
        return None
    return f"profile {profile} is not available in this release"


def run_history(case: Case) -> Result:
    """Judge one history through `antiphon lint` and `antiphon render`."""
    result = Result(id=case.id, kind=case.kind, keys=keys_of(case.kind, case.expect))
    result.skipped = unavailable(case.dialect)
    if result.skipped is not None:
        return result
    if case.expect["verdict"] == "accept_after_render":
        _rendered(case, result)
    else:
        _linted(case, result)
    return result


def document(case: Case, *, naive: bool = False) -> dict[str, Any]:
    """Return all that a case gives in one object, as the command line takes it.

    With `naive` only the array as it stands, without the graph that could be rendered instead.
    """
    given = case.given
    request = {k: v for k, v in given.get("request", {}).items() if k != "model_profile"}
    request[KEY[case.dialect]] = given["messages"]
    stored = {name: given[name] for name in STORED if name in given}
    found = {
        "from": case.dialect,
        "request": request,
        "graph": None if naive else given.get("graph"),
        "target": None if naive else given.get("target"),
        "model_profile": given.get("request", {}).get("model_profile"),
    }
    return {**found, "stored": stored} if stored else found


def _linted(case: Case, result: Result) -> None:
    found = _lint(case, result)
    if found is None:
        return
    expect = case.expect
    result.check("verdict", _other(found["verdict"], expect["verdict"]))
    errors = [f for f in found["findings"] if f.get("severity", "error") == "error"]
    first = errors[0] if errors else {}
    for key, name in (("reason", "code"), ("call_ids", "call_ids")):
        if key in expect:
            result.check(key, _other(first.get(name), expect[key]))
    if "at" in expect:
        # A case calls the array `messages`; a request calls it as its dialect does.
        place = expect["at"].replace("messages", KEY[case.dialect], 1)
        result.check("at", _other(first.get("at"), place))


def _lint(case: Case, result: Result, *, naive: bool = False) -> dict[str, Any] | None:
    code, out, notes = call("lint", "--json", document=document(case, naive=naive))
    if code not in (0, 3):
        result.wrong.append(f"lint ended with exit code {code}: {(out.decode() or notes)[-300:]}")
        return None
    found: dict[str, Any] = json.loads(out)
    if (found["verdict"] == "accept") != (code == 0):
        result.wrong.append(f"verdict {found['verdict']} with exit code {code}")
    return found


def _rendered(case: Case, result: Result) -> None:
    expect, profile = case.expect, case.given["target"]
    before = copy.deepcopy(case.given)
    outputs = [
        call("render", "--json", "--profile", profile, document=document(case)) for _ in "12"
    ]
    code, out, notes = outputs[0]
    result.check("verdict", None if code == 0 else f"refused: {(out.decode() or notes)[-300:]}")
    if code != 0:
        return
    if "reason" in expect:
        naive = _lint(case, result, naive=True) or {"verdict": None, "findings": []}
        codes = [finding["code"] for finding in naive["findings"]]
        result.check("reason", _other(codes[0] if codes else None, expect["reason"]))
    told = json.loads(out)
    body, again = json.loads(told["body"]), json.loads(json.loads(outputs[1][1])["body"])
    sent = body[KEY[profile]]
    if "rendered" in expect:
        strict = "rendered_note" not in expect
        problem = shapes().same_array(expect["rendered"], sent, profile, strict_ids=strict)
        result.check("rendered", problem)
        result.compared.update({"rendered_note"} & expect.keys())
    if "rendered_checks" in expect:
        problems = []
        for name, value in expect["rendered_checks"].items():
            held = _held(name, value, case, before, told, body, sent, again[KEY[profile]])
            if not held:
                problems.append(f"{name} {value!r} " + ("unknown" if held is None else "fails"))
        result.check("rendered_checks", "; ".join(problems) or None)
    if "mapping_recorded" in expect:
        result.check("mapping_recorded", _other(bool(told["mappings"]), expect["mapping_recorded"]))


def _held(
    name: str,
    value: object,
    case: Case,
    before: dict[str, Any],
    told: dict[str, Any],
    body: dict[str, Any],
    sent: list[Any],
    again: list[Any],
) -> bool | None:
    """Say whether one property of the rendering holds; None where nobody knows how to tell."""
    if name == "mapping_recorded":
        return bool(told["mappings"]) == value
    if name == "stored_graph_unchanged":
        return (case.given == before) == value
    kind = case.given["target"]
    turns = shapes().parse(sent, kind)
    held: bool | None = shapes().check(name, value, turns, sent, body, again)
    return held


def _other(found: object, wanted: object) -> str | None:
    """Return how a value differs; a list of alternatives where one value stands means any."""
    if found == wanted:
        return None
    if isinstance(wanted, list) and not isinstance(found, list) and found in wanted:
        return None
    return f"{found!r}, not {wanted!r}"


def shapes() -> ModuleType:
    """Return the comparison helpers that came with the cases."""
    name = "case_shapes"
    if name not in sys.modules:
        path = Path(__file__).parents[1] / "data" / "cases" / "score" / "shapes.py"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]
