"""`make audit` and the threat model: the scan finds what it looks for, and each row names a test that is there."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    loader = SourceFileLoader("audit", str(ROOT / "scripts" / "audit"))
    spec = importlib.util.spec_from_loader("audit", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_no_tracked_file_holds_a_secret(audit: ModuleType) -> None:
    assert audit.secrets() == 0


def test_a_secret_that_is_planted_is_found(
    audit: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = ["sk-" + "a1" * 20, "AKIA" + "Q" * 16, "antiphon_" + "5f" * 32]
    for number, secret in enumerate(planted):
        (tmp_path / f"{number}.txt").write_text(f"key = {secret}\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    monkeypatch.setattr(audit, "ROOT", tmp_path)
    assert audit.secrets() == len(planted)


def test_each_threat_names_a_test_that_is_there() -> None:
    text = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
    rows = [line for line in text.splitlines() if re.match(r"\| [STRIDE] \|", line)]
    assert {row[2] for row in rows} == set("STRIDE")
    for row in rows:
        named = re.search(r"`(tests/[\w/]+\.py)::(\w+|\*)`", row)
        assert named, row
        source = (ROOT / named[1]).read_text("utf-8")
        assert named[2] == "*" or f"def {named[2]}(" in source, row
