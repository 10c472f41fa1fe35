"""Signature Version 4, written down once more from its specification, to verify what was received."""

from __future__ import annotations

import hashlib
import hmac
import re
from urllib.parse import quote

from tests.support.upstream import RawRequest

FORM = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, "
    r"SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})"
)


def problem(request: RawRequest, *, key_id: str, secret: str, region: str, service: str) -> str:
    """Return why the service would turn `request` away, or nothing."""
    headers = request.headers
    match = FORM.fullmatch(headers.get("authorization", ""))
    if match is None:
        return f"no signature: {headers.get('authorization')!r}"
    if (match[1], match[3], match[4]) != (key_id, region, service):
        return f"signed by or for another: {match[0]}"
    moment = headers["x-amz-date"]
    if moment[:8] != match[2]:
        return "the day of the signature is not that of the request"
    signed = match[5].split(";")
    owed = {"host", "x-amz-date", "content-type"} | {n for n in headers if n.startswith("x-amz-")}
    if owed - set(signed):
        return f"not signed: {owed - set(signed)}"
    method, target, _ = request.head.decode().split("\r\n")[0].split(" ")
    path, _, query = target.partition("?")
    canonical = "\n".join(
        [
            method,
            quote(path, safe="/-_.~"),  # encoded a second time, as everywhere but at S3
            query,
            *(f"{name}:{headers[name]}" for name in signed),
            "",
            ";".join(signed),
            hashlib.sha256(request.body).hexdigest(),
        ]
    )
    scope = f"{match[2]}/{region}/{service}/aws4_request"
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashed}"
    key = b"AWS4" + secret.encode()
    for part in (match[2], region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    expected = hmac.digest(key, text.encode(), "sha256").hex()
    return "" if expected == match[6] else f"the signature does not match:\n{canonical}"
