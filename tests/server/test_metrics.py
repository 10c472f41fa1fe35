"""What the server counts and what it logs: the truth, and never a word of what was said."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from antiphon.core.ids import RunId
from antiphon.engine.ports import Cut
from antiphon.server.http.logs import Lines
from antiphon.server.metrics import METRICS
from tests.server.stage import ROOT, Served, served
from tests.support.provider import ScriptedProvider, asks, chunk, says

TOOL = {"name": "look", "parameters": {"type": "object", "properties": {}}}
SECRET = "the-word-that-nobody-may-log"


async def values(server: Served) -> dict[str, float]:
    """Return every sample by its name with labels."""
    told = await server.client.get("/metrics")
    assert told.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in told.body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


@pytest.mark.req("M91", "M92", "M93", "M94", "M95", "M96", "M97", "M98")
async def test_every_metric_is_there_from_the_start_with_its_help(tmp_path: Path) -> None:
    async with served(tmp_path / "a.db") as server:
        text = (await server.client.get("/metrics")).body.decode()
        for name, (kind, words) in METRICS.items():
            assert f"# HELP antiphon_{name} {words}\n# TYPE antiphon_{name} {kind}\n" in text
        found = await values(server)
        for zero in (
            "unknown_dispatch_age_seconds",
            "late_blocks_total",
            "previews_withdrawn_total",
            "commit_conflicts_total",
            "partial_tool_dispatches_total",
        ):
            assert found[f"antiphon_{zero}"] == 0


@pytest.mark.req("M92", "M96", "M98")
async def test_runs_tokens_tools_withdrawals_and_refused_results_are_counted(
    tmp_path: Path,
) -> None:
    provider = ScriptedProvider(
        says("Fine."),
        [chunk({"content": "Half"}), Cut("cut", "gone")],
        says("Whole."),
        asks(("call_1", "look", "{}")),
        says("Seen."),
    )
    async with served(tmp_path / "a.db", provider) as server:
        name = await server.conversation()
        for text in ("one", "two"):
            await server.send(name, text)
            await server.idle(name)
        run = await server.send(name, "three", tools=[TOOL])
        await server.idle(name)
        path = f"{ROOT}/runs/{run['id']}/outputs"
        for outputs in (["call_9", "call_1"], ["call_1", "call_1"]):
            told = await server.client.post(
                path, {"outputs": [{"call_id": one, "output": "x"} for one in outputs]}
            )
            assert told.status == 400
        done = await server.client.post(path, {"outputs": [{"call_id": "call_1", "output": "x"}]})
        assert done.status == 202
        await server.idle(name)
        found = await values(server)
        assert found['antiphon_runs_total{outcome="success"}'] == 3
        assert found["antiphon_run_seconds_count"] == 3
        assert found['antiphon_tokens_total{direction="input"}'] == 10 + 10 + 20 + 10
        assert found["antiphon_previews_withdrawn_total"] == 1
        assert found['antiphon_tool_calls_total{outcome="success"}'] == 1
        assert found['antiphon_tool_results_rejected_total{kind="orphan"}'] == 1
        assert found['antiphon_tool_results_rejected_total{kind="duplicate"}'] == 1
        assert found["antiphon_partial_tool_dispatches_total"] == 0
        route = f'route="{ROOT}/conversations/{{conversation}}/messages"'
        assert found[f'antiphon_http_requests_total{{method="POST",{route},status="202"}}'] == 3
        text = (await server.client.get("/metrics")).body.decode()
        for identifier in (name, run["id"], "call_1"):
            assert identifier not in text


async def test_a_request_is_one_line_with_its_id_and_without_what_it_held(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "antiphon")
    async with served(tmp_path / "a.db", ScriptedProvider(says(SECRET))) as server:
        name = await server.conversation()
        told = await server.client.post(
            f"{ROOT}/conversations/{name}/messages", {"content": SECRET}
        )
        await server.idle(name)
        wrong = await server.client.post(f"{ROOT}/{SECRET}", {SECRET: SECRET})
        assert wrong.status == 404
    lines = [json.loads(Lines().format(record)) for record in caplog.records]
    assert SECRET not in json.dumps(lines)
    (line,) = [one for one in lines if one.get("request_id") == told.headers["x-request-id"]]
    assert (line["method"], line["status"], line["principal"], line["whole"]) == (
        "POST",
        202,
        "local",
        True,
    )
    assert line["route"] == f"{ROOT}/conversations/{{conversation}}/messages"


async def test_a_bug_is_told_by_an_id_and_logged_by_its_place_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path / "a.db") as server:

        async def broken(run: RunId) -> None:
            raise ValueError(SECRET)

        monkeypatch.setattr(server.engine.world.store, "find_run", broken)
        told = await server.client.get(f"{ROOT}/runs/run_x")
    assert (told.status, told.json["error"]["code"]) == (500, "internal_error")
    assert SECRET not in told.body.decode()
    (record,) = [one for one in caplog.records if one.getMessage() == "fault"]
    line = json.loads(Lines().format(record))
    assert line["request_id"] == told.headers["x-request-id"]
    assert (line["error"], SECRET in json.dumps(line)) == ("ValueError", False)
    assert re.search(r"test_metrics\.py:\d+ broken$", line["frames"][-1])
