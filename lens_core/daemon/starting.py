"""Starts components: one whose `start` raises is failed and started again later, while the rest runs."""

from __future__ import annotations

import asyncio
import logging

from ..base.backoff import Backoff
from ..base.errors import LensError
from ..base.exits import without_exit
from ..plugin_api.components import Component
from ..plugin_host.host import PluginHost
from ..plugin_host.info import ComponentKind

logger = logging.getLogger("lens.starting")

# Nobody waits longer for a component's start; it goes on in the background.
WAIT_SECONDS = 60.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0


class NotStarted(LensError):
    """A component whose `start` raised, or has not ended yet."""


class Starter:
    """One component's start: tried once, and again after longer and longer pauses until it succeeds."""

    def __init__(self, component: Component, kind: ComponentKind, host: PluginHost) -> None:
        self.component = component
        self.name = component.context.name
        self.error = ""
        self.is_started = False
        self._kind = kind
        self._host = host
        self._attempt: asyncio.Task[None] | None = None

    async def ensure(self) -> None:
        """Start the component unless it is started; raises NotStarted that says why it is not."""
        if self.is_started:
            return
        attempt = self._attempt
        if attempt is None or attempt.done():
            attempt = self._attempt = asyncio.create_task(self._start_daemon(), name=f"start of {self.name}")
        await asyncio.wait({attempt}, timeout=WAIT_SECONDS)
        if not attempt.done():
            self.error = f"has been starting for more than {WAIT_SECONDS:g} s"
        if not self.is_started:
            raise NotStarted(f"{self._kind} {self.name!r} is not started: {self.error}")

    async def tried(self) -> bool:
        """Try to start the component once; False if it did not succeed, which is logged and shown."""
        try:
            await self.ensure()
        except NotStarted:
            return False
        return True

    async def until_started(self) -> None:
        """Try again until the component is started."""
        backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while not await self.tried():
            await asyncio.sleep(backoff.next_delay())

    def cancel(self) -> None:
        """Give up an attempt that goes on."""
        if self._attempt is not None:
            self._attempt.cancel()

    async def _start_daemon(self) -> None:
        kind = self.component.name
        try:
            await without_exit(self.component.start())
        except Exception as error:
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            owner = self._host.owner_of(self._kind, kind)
            if reason != self.error:  # the first time with its traceback, unless somebody raised it on purpose
                surprise = None if isinstance(error, LensError) else error
                logger.error(
                    "Start failed; retrying. %s=%s plugin=%s error=%s",
                    self._kind,
                    self.name,
                    owner,
                    reason,
                    exc_info=surprise,
                )
            self.error = reason
            self._host.record_failure(kind, f"start: {reason}", kind=self._kind)
            return
        if self.error:
            logger.info("Started after retries. %s=%s", self._kind, self.name)
            self._host.record_success(kind, kind=self._kind)
        self.error, self.is_started = "", True
