"""Requests to AWS, signed by Signature Version 4: who asks is proven over the very bytes that leave.

Credentials come from wherever the AWS tools keep them: the environment, its files, a role of the
machine. Looking for them may read files and ask the network, so it is done beside the event loop,
and not before the first request that needs them.
"""

from __future__ import annotations

import asyncio
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import msgspec

from antiphon.engine.ports import NotSent
from antiphon.errors import InvalidInput

if TYPE_CHECKING:
    from botocore.credentials import Credentials, ReadOnlyCredentials

    from antiphon.core.manifest import WireRequest

SERVICE: Final = "bedrock"
INSTALL: Final = "pip install 'antiphon[bedrock]'"


def require(model: str) -> None:
    """Return if requests can be signed.

    Raises:
        InvalidInput: `extra_missing`; says what to install.
    """
    if find_spec("botocore") is None:
        raise InvalidInput(
            f"Requests to Amazon Bedrock are signed by an extra. Install it with: {INSTALL}; "
            "or name a Bedrock API key by api_key_env.",
            code="extra_missing",
            at=model,
        )


class AwsSigner:
    """Signs with the credentials of this machine, found once and renewed by their source."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._credentials: Credentials | None = None

    async def signed(self, request: WireRequest, region: str) -> WireRequest:
        """Return `request` with the headers that prove who sends it; the body is untouched.

        Raises:
            NotSent: `credentials`: there are none, or their source could not be asked.
        """
        return await asyncio.to_thread(self._signed, request, region)

    def _signed(self, request: WireRequest, region: str) -> WireRequest:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError

        # The header of the key is rendered empty; the signature takes its place.
        headers = {name: value for name, value in request.headers if value}
        outgoing = AWSRequest(request.method, request.url, headers=headers, data=request.body)
        try:
            SigV4Auth(self._found(), SERVICE, region).add_auth(outgoing)
        except BotoCoreError as error:
            problem = type(error).__name__
        else:
            proof = sorted((name.lower(), value) for name, value in outgoing.headers.items())
            return msgspec.structs.replace(request, headers=tuple(proof))
        # Outside the handler, since a chained exception would keep what the source had said.
        raise NotSent("credentials", f"No AWS credentials could be had ({problem}).")

    def _found(self) -> ReadOnlyCredentials | None:
        """Return the credentials as they are now, or None."""
        with self._lock:
            if self._credentials is None:
                from botocore.session import Session

                self._credentials = Session().get_credentials()
            held = self._credentials
            return None if held is None else held.get_frozen_credentials()
