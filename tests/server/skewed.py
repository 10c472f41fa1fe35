"""A server on a machine whose clock somebody sets, while it runs.

    python -m tests.server.skewed FILE python -m antiphon serve ...

runs the module in this process, with a wall clock that is off by the seconds that FILE says at that
moment. Clocks that are never set go on as they are, as on a real machine.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

true_ns = time.time_ns


def main() -> None:
    """Set the clock, then be the module that is named."""
    _, file, _, _, module, *arguments = sys.argv
    offset = Path(file)

    def off_ns() -> int:
        return true_ns() + int(float(offset.read_text()) * 1e9)

    time.time_ns = off_ns
    time.time = lambda: off_ns() / 1e9
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
