"""Files for a browser: in memory, compressed once, with what the browser may do with them."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Self

from starlette.requests import Request
from starlette.responses import Response

HERE: Final = Path(__file__).parent
BUILT: Final = HERE / "dist"
FALLBACK: Final = HERE / "fallback"

POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' data: blob:",  # pictures that are part of a message
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "object-src 'none'",
    )
)
"""Nothing runs or loads but what this server serves; text of a model least of all."""

SAFE: Final[Mapping[str, str]] = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

KINDS: Final[Mapping[str, str]] = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
"""Said here, since what a machine's own table says differs from one machine to the next."""

SMALL: Final = 1024
"""Below this many bytes compressing gains nothing."""

_ASSET: Final = re.compile(rb'"/assets/([\w.-]+)"')


@dataclass(frozen=True)  # no slots: what is worked out of it is kept
class Asset:
    """One file: what is in it, and what kind that is."""

    body: bytes
    media_type: str

    @cached_property
    def compressed(self) -> bytes | None:
        """The same in fewer bytes, where that is worth it."""
        if len(self.body) < SMALL:
            return None
        return gzip.compress(self.body, mtime=0)

    @cached_property
    def version(self) -> str:
        """What tells this content from every other."""
        return hashlib.sha256(self.body).hexdigest()[:32]

    def answer(self, request: Request) -> Response:
        """Return it as `request` wants it, or that nothing has changed.

        Under an address that names its version it never changes, and is kept for ever. Under any
        other, whoever has it asks again.
        """
        forever = request.query_params.get("v") == self.version
        tag = f'W/"{self.version}"'  # weak, since compressed and plain bytes share it
        headers = {
            **SAFE,
            "cache-control": "public, max-age=31536000, immutable" if forever else "no-cache",
            "etag": tag,
            "vary": "accept-encoding",
        }
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        body = self.body
        if "gzip" in request.headers.get("accept-encoding", "") and self.compressed is not None:
            body = self.compressed
            headers["content-encoding"] = "gzip"
        return Response(body, media_type=self.media_type, headers=headers)


@dataclass(frozen=True, slots=True)
class Site:
    """The page, and the files that it is made of, by name."""

    index: Asset
    assets: Mapping[str, Asset]

    @classmethod
    def built(cls) -> Self:
        """Return what `make web` made, or the page written by hand where it made nothing."""
        return cls.load(BUILT if (BUILT / "index.html").exists() else FALLBACK)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the site in `folder`: `index.html` beside `assets/`, which it names by version."""
        assets = {path.name: _read(path) for path in sorted((folder / "assets").iterdir())}

        def versioned(found: re.Match[bytes]) -> bytes:
            name = found[1].decode()
            return f'"/assets/{name}?v={assets[name].version}"'.encode()

        page = _read(folder / "index.html")
        return cls(Asset(_ASSET.sub(versioned, page.body), page.media_type), assets)


def _read(path: Path) -> Asset:
    return Asset(path.read_bytes(), KINDS[path.suffix])
