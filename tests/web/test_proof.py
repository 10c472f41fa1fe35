"""The console, and pages that others could have written, in a real browser against a real server.

One Node process with one browser runs all of it; each scenario is a test here, so that it can be
named, and say which requirement it proves.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.packages import WEB, installed, run
from tests.support.parts import chromium

pytestmark = pytest.mark.needs("node", "chromium")

LIMIT_S = 900

PROVES = {
    "an answer is shown as a preview, lighter, and then as saved": ("M77", "M78"),
    "text that is taken back leaves the answer, and a line says so that opens": ("M77", "M78"),
    "an edit and another answer stand beside the first, and the arrows go between them": ("M125", "M126"),
    "stop is a call; what was shown stays, as stopped, and can be kept": ("M137",),
    "useChat: text that is taken back leaves the screen, and no page sends it as history": ("M77", "M78"),
    "useChat: loaded anew in the middle of an answer, it goes on; stop is a call": ("M137", "M169"),
}  # fmt: skip
"""Which requirement a scenario proves."""

SCENARIOS = [
    found[1]
    for name in ("protocol", "pages", "console", "network", "people")
    for found in re.finditer(r'^test\("([^"]+)"', (WEB / f"proof/test/{name}.test.ts").read_text("utf-8"), re.MULTILINE)
]  # fmt: skip


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What became of each scenario, and what its failure says."""
    proof = installed("proof")
    run([proof / "node_modules/.bin/vite", "build", "--logLevel", "warn"], proof)
    run([proof / "node_modules/.bin/tsc"], proof)
    report: Path = tmp_path_factory.mktemp("proof") / "report.tap"
    environment = {**os.environ, "ANTIPHON_PYTHON": sys.executable, "CHROMIUM": chromium() or ""}
    told = [f"--test-reporter-destination={report}", "--test-reporter=tap"]
    command = ["node", "--test", "--test-force-exit", *told, "build/test/all.test.js"]
    subprocess.run(command, cwd=proof, env=environment, check=False, timeout=LIMIT_S)
    return dict(_verdicts(report.read_text("utf-8")))


def _verdicts(tap: str) -> list[tuple[str, str]]:
    """Return name and verdict of each test: empty where it passed, else all that was said of it."""
    pieces = re.split(r"^# Subtest: (.*)$", tap, flags=re.MULTILINE)
    return [
        (name, "" if re.search(r"^ok \d+ ", said, re.MULTILINE) else said)
        for name, said in zip(pieces[1::2], pieces[2::2], strict=True)
    ]


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(name, marks=pytest.mark.req(*PROVES[name]) if name in PROVES else ()) for name in SCENARIOS],
)  # fmt: skip
def test_in_a_browser(scenario: str, verdicts: Mapping[str, str]) -> None:
    assert verdicts.get(scenario, "it did not run") == ""


def test_every_scenario_that_proves_something_is_there() -> None:
    assert set(PROVES) <= set(SCENARIOS)
