"""Addresses that a client writes into a message: this server never fetches one, and says whose may pass.

A model's own server may fetch what it is told to. Where that stands in the same network as we do,
an address of a client's would reach what only that network reaches, so the addresses of private
networks do not pass, unless the operator names their hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from antiphon.core.blocks import Block, Image, Message, ToolResult
from antiphon.engine.settings import Settings
from antiphon.errors import InvalidInput

INNER: Final = (".internal", ".local", ".localhost", ".lan", ".home.arpa", ".intranet")


def check_urls(settings: Settings, messages: Iterable[Message]) -> None:
    """Refuse addresses that no model's server may be told to fetch.

    Raises:
        InvalidInput: `url_not_allowed`; it names the host.
    """
    for message in messages:
        check_block_urls(settings, message.blocks)


def check_block_urls(settings: Settings, blocks: Iterable[Block]) -> None:
    """Refuse such addresses in blocks of one message. Raises as `check_urls`."""
    for url in _urls(blocks):
        host = _host(url)
        if host is None:
            raise InvalidInput(
                "An address begins with http:// or https:// and names a host.",
                code="url_not_allowed",
            )
        if host in settings.url_hosts:
            continue
        if settings.url_hosts or _is_inner(host):
            raise InvalidInput(
                "Nothing of this host may be fetched. Send the data itself, or have the host named "
                "in url_hosts.",
                code="url_not_allowed",
                at=host[:100],
            )


def _urls(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        parts = block.content if isinstance(block, ToolResult) else (block,)
        for part in parts:
            if isinstance(part, Image) and part.url is not None and part.data is None:
                yield part.url


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https")
        return parts.hostname.rstrip(".") if usable and parts.hostname else None
    except ValueError:
        return None


def _is_inner(host: str) -> bool:
    """Whether a host may be one of a private network, in any of the spellings that are resolved."""
    try:
        return not ip_address(host).is_global
    except ValueError:
        pass
    if "." not in host or host.endswith(INNER):
        return True
    # 127.1, 0x7f.1 and 2130706433 are addresses to whoever resolves them by the old rules.
    return all(part.isdigit() or part.startswith("0x") for part in host.split("."))
