"""The public names, pinned, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import antiphon

PUBLIC = {
    "Antiphon", "AntiphonError", "Ask", "CallFinished", "CallsWaiting", "Chat", "Committed",
    "Ended", "FateUnknown", "Found", "Function", "Lookup", "Message", "Output", "Passage", "Preview",
    "Question", "Retriever", "RunHandle", "Settings", "Text",
    "ToolContext", "ToolError", "Unknown", "Withdrawn", "__version__", "judged", "open", "tool",
}  # fmt: skip


def test_the_public_names_are_these_and_each_can_be_had() -> None:
    assert set(antiphon.__all__) == PUBLIC
    for name in PUBLIC:
        assert getattr(antiphon, name) is not None


def test_importing_the_package_or_core_loads_nothing_heavy() -> None:
    program = (
        "import sys, antiphon, antiphon.core.answers.assembler, antiphon.core.dispatch, "
        "antiphon.adapters.registry\n"
        "heavy = {'aiohttp', 'sqlite3', 'jsonschema', 'click', 'asyncio'} & set(sys.modules)\n"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
