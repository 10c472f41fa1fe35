"""The console: its own tests, and that the package holds what its sources make."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from antiphon.server.console.site import BUILT
from tests.support.packages import installed, run

pytestmark = pytest.mark.needs("node")


@pytest.mark.req("M77", "M78", "M125")
def test_the_console_keeps_its_promises() -> None:
    told = run(["npm", "test", "--silent", "--", "--no-color"], installed("console"))
    assert re.search(r"Tests +\d+ passed \(\d+\)", told), told


def test_the_bundle_in_the_package_is_made_of_these_sources(tmp_path: Path) -> None:
    run(["npx", "vite", "build", "--outDir", tmp_path, "--logLevel", "error"], installed("console"))
    made = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    kept = {p.relative_to(BUILT): p.read_bytes() for p in BUILT.rglob("*") if p.is_file()}
    kept.pop(Path("build.json"))
    assert made.keys() == kept.keys()
    assert [name for name in made if made[name] != kept[name]] == []
