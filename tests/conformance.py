"""Run the compliance tests of Open Responses against this server, on the rehearsal model.

They are somebody else's program: it takes a checkout of it (https://github.com/openresponses/openresponses)
in which `npm install zod@3.25.76 tsx` has been run, and Node 20 or newer. Those over WebSocket
are left out, since this server has none.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.server.process import server_process

TESTS = (
    "basic-response",
    "assistant-phase",
    "response-output-phase-schema",
    "streaming-response",
    "system-prompt",
    "tool-calling",
    "image-input",
    "multi-turn",
    "compact-response",
    "compact-missing-model",
)
BOUND_S = 120.0
HOW = """Where is Open Responses? Get it once, outside of this directory:

  git clone https://github.com/openresponses/openresponses
  cd openresponses && npm install --no-save zod@3.25.76 tsx

then: make conformance OPENRESPONSES=path/to/openresponses"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", nargs="?", type=Path)
    checkout = parser.parse_args().checkout
    program = None if checkout is None else checkout / "bin" / "compliance-test.ts"
    if program is None or not program.exists():
        print(HOW, file=sys.stderr)
        return 2
    npx = shutil.which("npx")
    if npx is None:
        print("The tests need Node 20 or newer, with npx.", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder, server_process(Path(folder)) as server:
        told = subprocess.run(
            [
                npx,
                "--no-install",
                "tsx",
                "bin/compliance-test.ts",
                "--base-url",
                f"{server.url}/v1",
                "--api-key",
                "any",
                "--model",
                "rehearsal",
                "--filter",
                ",".join(TESTS),
                "--json",
            ],
            cwd=checkout,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )
    try:
        results = json.loads(told.stdout)["results"]
    except (ValueError, KeyError):
        print(told.stdout, told.stderr, sep="\n", file=sys.stderr)
        return 1
    for result in sorted(results, key=lambda result: TESTS.index(result["id"])):
        print(f"{result['status']:8} {result['id']}")
        for problem in result.get("errors") or ():
            print(f"         {problem}")
    passed = sum(result["status"] == "passed" for result in results)
    print(f"{passed} of {len(TESTS)} passed")
    return 0 if passed == len(TESTS) == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
