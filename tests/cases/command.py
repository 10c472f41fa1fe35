"""The command line, called in this process: the same code, arguments, output and exit codes."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from antiphon import cli


def call(verb: str, *options: str, document: dict[str, Any]) -> tuple[int, bytes, str]:
    """Run one command on `document` and return its exit code, output and notes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.json"
        file.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
        out, notes = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(notes):
            code = cli.run([verb, *options, str(file)])
            sys.stdout.flush()
        assert isinstance(out.buffer, io.BytesIO)
        return code, out.buffer.getvalue(), notes.getvalue()
