"""One attempt on the wire: send the bytes, read the answer, show the preview.

It knows sockets and streams, and records that bytes left and that an answer began. What the
outcome means for the conversation is decided by its caller, on the value returned here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from antiphon.adapters.base import Adapter, HttpVerdict, Reader, ResumableReader
from antiphon.core.answers.assembler import Answer, Assembler
from antiphon.core.answers.deltas import CallOpened, OpaqueState
from antiphon.core.commands import AnswerOpened, BindHandle, ExtendDeadline, Resume, Written
from antiphon.core.dispatch import Denied
from antiphon.core.ids import ConversationId, Digest
from antiphon.core.manifest import WireRequest
from antiphon.core.records import Attempt
from antiphon.core.recovery import Rung
from antiphon.engine.catalogue.models import Routing
from antiphon.engine.live import LiveRun
from antiphon.engine.ports import Cut, NotSent, Reply
from antiphon.engine.settings import Settings
from antiphon.engine.world import World

ERROR_BODY_BYTES: Final = 64 * 1024

LINGER_S: Final = 1.0
"""How long a body may stay open behind the end of its answer.

An end that comes in time leaves the connection for the next request; some servers never close.
"""


@dataclass(frozen=True, slots=True)
class Answered:
    """The whole body was read; whether it may be committed, the answer itself says."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class Rejected:
    """A status other than 200, and what the profile makes of it."""

    verdict: HttpVerdict
    status: int


@dataclass(frozen=True, slots=True)
class Unsent:
    """No byte left this process."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Broken:
    """Bytes may have left, and no whole answer came back."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Overtaken:
    """The attempt was no longer there to be taken up: canceled, or in other hands."""


Outcome: TypeAlias = Answered | Rejected | Unsent | Broken


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How long each phase of a call may take. `first_byte_s` is None where idle says enough."""

    connect_s: float
    first_byte_s: float | None
    idle_s: float
    total_s: float


def times_of(settings: Settings, routing: Routing) -> Times:
    """Return how long each phase of a call to a model may take."""
    return Times(
        connect_s=routing.connect_timeout_s or settings.connect_timeout_s,
        first_byte_s=routing.first_byte_timeout_s,
        idle_s=routing.idle_timeout_s or settings.idle_timeout_s,
        total_s=min(settings.deadline_cap_s, routing.total_timeout_s or settings.deadline_cap_s),
    )


class Watchdog:
    """Ends an exchange that is silent for too long, past its deadline, or canceled.

    Bytes count as life, pings included. Being fed costs one assignment: the timer looks at
    the time of the last byte only when it fires.
    """

    def __init__(
        self, world: World, *, idle_s: float, deadline_ms: int, first_byte_s: float | None = None
    ) -> None:
        self._world = world
        self._idle_ms = int(idle_s * 1000)
        self._first_byte_ms = None if first_byte_s is None else int(first_byte_s * 1000)
        self._first_due_ms: int | None = None
        self.deadline_ms = deadline_ms
        self._last_ms = world.clock.now_ms()
        self._stop_ms: int | None = None
        self._forget: Callable[[], None] = lambda: None
        self._scope: asyncio.Timeout | None = None
        self.reason = "idle_timeout"

    def fed(self, now_ms: int) -> None:
        """Note that bytes came."""
        self._last_ms = now_ms
        self._first_due_ms = None

    def sent(self) -> None:
        """Note that the request is leaving: from now on an answer is waited for."""
        if self._first_byte_ms is not None and not self.canceled:
            self._first_due_ms = self._world.clock.now_ms() + self._first_byte_ms
            self._forget()
            self._arm()

    @property
    def canceled(self) -> bool:
        """Whether the run was canceled."""
        return self._stop_ms is not None

    def cancel(self, grace_s: float) -> None:
        """The run was canceled: read on for `grace_s` for what is on its way, then hang up."""
        self._stop_ms = self._world.clock.now_ms() + int(grace_s * 1000)
        self._forget()
        self._arm()

    def answered(self) -> None:
        """The answer has ended: what follows is the end of its body, or nothing."""
        self._idle_ms = min(self._idle_ms, int(LINGER_S * 1000))
        self._forget()
        self._arm()

    def again(self, length_s: float) -> None:
        """Watch a further connection of the same attempt: its time runs from now, if it was over."""
        self._last_ms = self._world.clock.now_ms()
        self.deadline_ms = max(self.deadline_ms, self._last_ms + int(length_s * 1000))

    def __enter__(self) -> asyncio.Timeout:
        self._scope = asyncio.timeout(None)
        self._arm()
        return self._scope

    def __exit__(self, *_: object) -> None:
        self._forget()
        self._scope = None

    def _due_ms(self) -> int:
        due = min(self._last_ms + self._idle_ms, self.deadline_ms)
        if self._first_due_ms is not None:
            due = min(due, self._first_due_ms)
        return due if self._stop_ms is None else min(due, self._stop_ms)

    def _arm(self) -> None:
        wait_ms = max(0, self._due_ms() - self._world.clock.now_ms())
        self._forget = self._world.clock.call_later(wait_ms / 1000, self._fire)

    def _fire(self) -> None:
        now_ms = self._world.clock.now_ms()
        if now_ms < self._due_ms():
            self._arm()
            return
        if self._stop_ms is not None and now_ms >= self._stop_ms:
            self.reason = "canceled"
        elif now_ms >= self.deadline_ms:
            self.reason = "deadline"
        elif self._first_due_ms is not None and now_ms >= self._first_due_ms:
            self.reason = "first_byte_timeout"
        if self._scope is not None and not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())


class Exchange:
    """One attempt while it is on the wire: sent once, and read on by its handle where it has one.

    Where it `extends`, its deadline moves on while bytes arrive.
    """

    def __init__(
        self,
        world: World,
        adapter: Adapter,
        conversation: ConversationId,
        attempt: Attempt,
        *,
        manifest_digest: Callable[[], Digest],
        live: LiveRun,
        assembler: Assembler,
        times: Times,
        extends: bool = True,
    ) -> None:
        self._world = world
        self._extends = extends
        self._half_ms = int(world.settings.deadline_s * 500)  # of an attempt's time
        self._adapter = adapter
        self._times = times
        self._conversation = conversation
        self._attempt = attempt
        self._manifest_digest = manifest_digest
        self._assembler = assembler
        self._keeps = Rung.HANDLE in adapter.recovery
        self._bound = attempt.handle
        self._reader: Reader | None = None
        self._left = False
        self.taken_up = False  # whether it is STREAMING by its handle, as far as we know
        self.live = live
        self.watchdog = Watchdog(
            world,
            idle_s=times.idle_s,
            deadline_ms=attempt.deadline_ms,
            first_byte_s=times.first_byte_s,
        )

    def cancel(self, grace_s: float) -> None:
        """The run was canceled: read on for `grace_s`, then hang up; what has not left stays."""
        self.watchdog.cancel(grace_s if self._left else 0.0)

    @property
    def handle(self) -> str | None:
        """The handle that the answer is kept under, where its provider keeps it."""
        return self._bound

    @property
    def position(self) -> str | None:
        """The event behind which it can be read on, or None where it has to be read anew."""
        # Most providers keep nothing, and whether a reader could tell is dear to ask.
        if not self._keeps or self._assembler.failed:
            return None
        return self._reader.position if isinstance(self._reader, ResumableReader) else None

    async def run(
        self, request: WireRequest, *, api_key: str | None, region: str | None = None
    ) -> Outcome:
        """Send `request` once and read all that comes of it; signed first where there is a region.

        When this returns, or is canceled, the connection is closed or its body has ended:
        nothing of the attempt can reach this process any more.
        """
        if self._world.clock.now_ms() >= self._attempt.deadline_ms:
            return Unsent("deadline", "The attempt's time was over before it was sent.")
        outcome = await self._send(request, api_key, self._written, self._opened, region)
        assert not isinstance(outcome, Overtaken)
        return outcome

    async def resume(self, request: WireRequest, *, api_key: str | None) -> Outcome | Overtaken:
        """Ask for the answer, or for what is left of it, by its handle, and read on.

        The attempt is ours again once the provider has begun to answer. After `Overtaken` it
        is not, and nothing was read.
        """
        self.watchdog.again(self._world.settings.deadline_s)
        return await self._send(request, api_key, self._asking, self._resumed)

    async def look(self, request: WireRequest, *, api_key: str | None) -> Outcome | Overtaken:
        """Ask for the answer as it stands. The attempt stays UNKNOWN, whatever comes."""
        self.watchdog.again(self._world.settings.deadline_s)
        return await self._send(request, api_key, self._asking, self._read)

    async def _send(
        self,
        request: WireRequest,
        api_key: str | None,
        on_written: Callable[[], None],
        read: Callable[[Reply], Awaitable[Outcome | Overtaken]],
        region: str | None = None,
    ) -> Outcome | Overtaken:
        reply: Reply | None = None
        try:
            with self.watchdog as scope:
                async with scope:
                    if region is not None:
                        request = await self._world.signer.signed(request, region)
                    reply = await self._world.transport.send(
                        request,
                        api_key=api_key,
                        connect_timeout_s=self._times.connect_s,
                        on_written=on_written,
                    )
                    if reply.status == 200:
                        return await read(reply)
                    body, now_ms = await _error_body(reply), self._world.clock.now_ms()
                    verdict = self._adapter.classify(reply.status, reply.headers, body, now_ms)
                    return Rejected(verdict, reply.status)
        except NotSent as error:
            return Unsent(error.code, str(error))
        except Cut as error:
            return Broken(error.code, str(error))
        except TimeoutError:
            return self._silenced(reply)
        finally:
            if reply is not None:
                await reply.close()

    async def _opened(self, reply: Reply) -> Outcome:
        self._world.store.submit(
            AnswerOpened(
                conversation=self._conversation,
                now_ms=self._world.clock.now_ms(),
                operation=self._attempt.operation,
                generation=self._attempt.generation,
                fence=self._world.fence,
            )
        )
        return await self._read(reply)

    async def _resumed(self, reply: Reply) -> Outcome | Overtaken:
        resumed = await self._world.do(
            Resume(
                conversation=self._conversation,
                now_ms=self._world.clock.now_ms(),
                operation=self._attempt.operation,
                generation=self._attempt.generation,
                fence=self._world.fence,
            )
        )
        if isinstance(resumed, Denied):
            return Overtaken()
        self.taken_up = True
        return await self._read(reply)

    async def _read(self, reply: Reply) -> Outcome:
        reader = self._reader_of(reply)
        assembler, live = self._assembler, self.live
        read, take = reader.feed, assembler.feed
        cut: Cut | None = None
        try:
            async for chunk in reply.chunks():
                now_ms = self._world.clock.now_ms()
                self.watchdog.fed(now_ms)
                grown = False
                for delta in read(chunk):
                    piece = take(delta)
                    if piece is not None:
                        live.append(piece.block, piece.channel, piece.text)
                        grown = True
                    elif type(delta) is CallOpened:
                        live.call_opened(delta.block)
                    elif type(delta) is OpaqueState:
                        live.keep(delta.block, delta.opaque)
                if self._keeps and self._bound is None:
                    self._bind()
                if grown:
                    self._world.broker.publish(live)
                if assembler.failed:
                    break
                if assembler.ended:
                    self.watchdog.answered()
                elif self._extends and self.watchdog.deadline_ms - now_ms <= self._half_ms:
                    self._extend(now_ms)
        except Cut as error:
            cut = error
        return self._whole(reader, cut.code if cut else None)

    def _silenced(self, reply: Reply | None) -> Outcome:
        """Return what silence, or the end of all patience, leaves.

        An answer that its provider had finished is whole, as it is where the connection breaks
        behind the finish. Nothing is waited for after a cancel, so that it has no answer.
        """
        reason, reader = self.watchdog.reason, self._reader
        whole = reply is not None and self._assembler.finished and not self.watchdog.canceled
        if whole and reader is not None:
            return self._whole(reader, reason)
        return Broken(reason, "The provider fell silent, or time was up.")

    def _whole(self, reader: Reader, cut: str | None) -> Answered:
        for delta in reader.end():
            self._assembler.feed(delta)
        return Answered(self._assembler.end(cut=cut))

    def _reader_of(self, reply: Reply) -> Reader:
        """Return the reader of the attempt: the one that has read its beginning, if any has."""
        content_type = reply.headers.get("content-type", "")
        if self.position is not None and isinstance(self._reader, ResumableReader):
            self._reader.reopen(content_type)
            return self._reader
        self._reader = self._adapter.reader(content_type, self._world.settings.limits)
        return self._reader

    def _bind(self) -> None:
        """Record the handle the moment that it is known: a process that dies now leaves it."""
        self._bound = self._assembler.handle
        if self._bound is None:
            return
        self._world.store.submit(
            BindHandle(
                conversation=self._conversation,
                now_ms=self._world.clock.now_ms(),
                operation=self._attempt.operation,
                generation=self._attempt.generation,
                manifest_digest=self._manifest_digest(),
                handle=self._bound,
            )
        )

    def _asking(self) -> None:
        if self.watchdog.canceled:
            raise NotSent("canceled", "The run was canceled.")
        self._left = True

    def _written(self) -> None:
        if self.watchdog.canceled:
            raise NotSent("canceled", "The run was canceled before its request left.")
        self._left = True
        self.watchdog.sent()
        self._world.store.submit(
            Written(
                conversation=self._conversation,
                now_ms=self._world.clock.now_ms(),
                operation=self._attempt.operation,
                generation=self._attempt.generation,
                fence=self._world.fence,
            )
        )

    def _extend(self, now_ms: int) -> None:
        """Move the deadline while bytes arrive and half of it is over, up to the cap."""
        settings = self._world.settings
        length_ms = int(settings.deadline_s * 1000)
        cap_ms = (self._attempt.accepted_ms or now_ms) + int(self._times.total_s * 1000)
        later_ms = min(now_ms + length_ms, cap_ms)
        if later_ms <= self.watchdog.deadline_ms:
            return
        self.watchdog.deadline_ms = later_ms
        self._world.store.submit(
            ExtendDeadline(
                conversation=self._conversation,
                now_ms=now_ms,
                operation=self._attempt.operation,
                generation=self._attempt.generation,
                fence=self._world.fence,
                deadline_ms=later_ms,
            )
        )


async def _error_body(reply: Reply) -> bytes:
    """Return the body of a refusal, or as much as came: the status says no without it."""
    body = bytearray()
    try:
        async for chunk in reply.chunks():
            body += chunk
            if len(body) > ERROR_BODY_BYTES:
                break
    except Cut:
        pass  # the status stands; only the provider's own words are lost
    return bytes(body)
