"""The npm packages of `web/`, installed from their locks."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

WEB: Final = Path(__file__).parents[2] / "web"


def installed(package: str) -> Path:
    """Return the folder of `package`, with all that it builds with."""
    run([WEB / "install", package], WEB)
    return WEB / package


def run(command: list[str | Path], folder: Path, *, limit_s: float = 300) -> str:
    """Return what `command` printed; what it printed is also what a failure says."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=limit_s, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
