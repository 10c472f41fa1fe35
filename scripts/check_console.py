"""Say whether the console in the package is what its sources make: `--write` makes it anew, which needs Node.

The comparison needs none: `dist/build.json` holds the digest of the sources that the bundle was made of, and of every
file of the bundle, so neither can change without the other.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
WEB: Final = ROOT / "web"
CONSOLE: Final = WEB / "console"
DIST: Final = ROOT / "src/antiphon/server/console/dist"
RECORD: Final = DIST / "build.json"

SOURCES: Final = (
    "client/src/**/*.ts",
    "console/src/**/*",
    "console/index.html",
    "console/package.json",
    "console/package-lock.json",
    "console/tsconfig.json",
    "console/vite.config.ts",
)


def sources() -> Iterator[Path]:
    """Yield every file that the bundle is made of; tests are not."""
    for pattern in SOURCES:
        for path in sorted(WEB.glob(pattern)):
            if path.is_file() and ".test." not in path.name:
                yield path


def record() -> dict[str, object]:
    """Return the digests as they should be recorded."""
    made_of = hashlib.sha256()
    for path in sources():
        made_of.update(f"{path.relative_to(WEB).as_posix()}\0".encode())
        made_of.update(hashlib.sha256(path.read_bytes()).digest())
    return {
        "sources": made_of.hexdigest(),
        "files": {
            path.relative_to(DIST).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(DIST.rglob("*"))
            if path.is_file() and path != RECORD
        },
    }


def build() -> None:
    """Make the bundle with the locked packages, and record what it was made of."""
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("Making the console needs Node 20.19 or newer, with npm.")
    subprocess.run([WEB / "install", "console"], check=True)
    subprocess.run([npm, "run", "--silent", "build"], cwd=CONSOLE, check=True)
    RECORD.write_text(json.dumps(record(), indent=2) + "\n", encoding="utf-8")


def main() -> int:
    """Compare, or write; return the exit code."""
    if sys.argv[1:] == ["--write"]:
        build()
        return 0
    if RECORD.exists() and json.loads(RECORD.read_text(encoding="utf-8")) == record():
        return 0
    print(f"{DIST.relative_to(ROOT)} is not what web/ makes; run: make web")
    return 1


if __name__ == "__main__":
    sys.exit(main())
