"""Every reason code is explained, and the page that explains them is made from the rules."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from antiphon.core.rules.findings import GRAPH_CODES, PROFILE_CODES
from antiphon.core.rules.reasons import REASONS

ROOT = Path(__file__).parent.parent.parent


def test_every_code_is_explained_and_nothing_else_is() -> None:
    assert set(REASONS) == {*GRAPH_CODES, *PROFILE_CODES}
    assert len(set(GRAPH_CODES) & set(PROFILE_CODES)) == 0


def test_each_rule_and_remedy_is_a_sentence() -> None:
    for code, reason in REASONS.items():
        for sentence in reason:
            assert sentence[0].isupper(), code
            assert sentence.endswith("."), code


def test_the_page_of_reason_codes_is_not_stale() -> None:
    script = ROOT / "scripts" / "check_reason_codes.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (ROOT / "docs" / "reason-codes.md").read_text(encoding="utf-8")
    for code in (*GRAPH_CODES, *PROFILE_CODES):
        assert f"\n### {code}\n" in page
