"""Decides when and how often to send, and waits with a limit.

Policies for sending, retrying and finding a poisoned record: pure, with the random numbers injected.

Waiting with a limit, without two traps of asyncio.wait_for.

It may swallow a cancellation that comes together with the result (before Python 3.12), and it cannot tell its own
timeout from one that the awaited code raises (since 3.11).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from ...base.backoff import Backoff
from ...model.records import Record
from ...plugin_api.sink_answers import Answer, BatchLimits, Delivered, Poisoned, Rejected, Retry
from ..spool.sink_state import Pending

MAX_RETRY_AFTER_SECONDS = 3600.0
MAX_REASON_LETTERS = 500
TIMEOUTS_UNTIL_HALVED = 2
SPARE_TIME = 0.3  # twice as many records then still have some time left
MOST_RECORDS = 1 << 20
ANSWERS_UNTIL_GROWN = 4
MOST_ANSWERS_UNTIL_GROWN = 256


class DeliverySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Delivery to a sink: retries for ever, after delays that double and have full jitter."""

    retry_base_seconds: Annotated[
        float,
        Meta(gt=0, le=3600, description="the longest delay after a first failure; it doubles with each further one"),
    ] = 0.2
    retry_cap_seconds: Annotated[
        float, Meta(gt=0, le=86400, description="no delay is longer, except one that the other side asks for")
    ] = 30.0
    send_timeout_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="a batch that is not answered in this time is sent again")
    ] = 60.0
    failing_after: Annotated[
        int, Meta(ge=1, description="failures in a row until its state is `failing`; it is tried on")
    ] = 20


def new_backoff(settings: DeliverySettings, rng: Callable[[], float]) -> Backoff:
    """Return the delays between the retries of one sink."""
    return Backoff(settings.retry_base_seconds, settings.retry_cap_seconds, rng)


def asked_delay(after_seconds: object) -> float | None:
    """A sink's Retry-After, if it makes sense: finite and not negative; at most an hour."""
    if isinstance(after_seconds, bool) or not isinstance(after_seconds, (int, float)):
        return None
    if not math.isfinite(after_seconds) or after_seconds < 0:
        return None
    return min(float(after_seconds), MAX_RETRY_AFTER_SECONDS)


def is_full(records: int, size: int, limits: BatchLimits) -> bool:
    """Whether so many records, or bytes, make a batch that need not wait for more."""
    return records >= limits.max_records or size >= limits.max_bytes


def seconds_until_ready(pending: Pending, limits: BatchLimits, now: float, *, flush: bool) -> float | None:
    """0 when a batch should be sent now, None when there is nothing, else how long to wait for more."""
    if pending.records <= 0:
        return None
    if flush or is_full(pending.records, pending.bytes, limits):
        return 0.0
    age = now - pending.oldest_at if pending.oldest_at is not None else limits.max_wait_seconds
    # A clock that was set back must not hold a batch for longer than it would have waited anyway.
    return min(max(0.0, limits.max_wait_seconds - age), limits.max_wait_seconds)


class Part(NamedTuple):
    """Records `first` (inclusive) to `last` (exclusive) of what a sink gets."""

    first: int
    last: int

    @property
    def size(self) -> int:
        """The number of records."""
        return self.last - self.first


def halves(part: Part) -> tuple[Part, Part]:
    """The two halves of a poisoned part in their order; raises ValueError for a single record."""
    if part.size < 2:
        raise ValueError("a single record has no halves")
    middle = part.first + part.size // 2
    return Part(part.first, middle), Part(middle, part.last)


class PartLimit:
    """Limits a part to what a sink manages in its time: halved after timeouts, doubled while it answers quickly."""

    def __init__(self, send_timeout_seconds: float) -> None:
        self._quick_seconds = send_timeout_seconds * SPARE_TIME
        self._timeouts = 0
        self._quick_answers = 0
        self._answers_until_grown = ANSWERS_UNTIL_GROWN
        self._is_tried = False
        self.records: int | None = None

    def timed_out(self, size: int) -> bool:
        """Count a part that was not answered in time; whether it has to be smaller from now on.

        The first timeout may have any cause, and a sink may know the same batch when it comes again.
        """
        self._timeouts += 1
        if self._timeouts < TIMEOUTS_UNTIL_HALVED or size < 2:
            return False
        self._timeouts = self._quick_answers = 0
        if self._is_tried:  # it was too much to grow to this size; the next try comes later
            self._answers_until_grown = min(MOST_ANSWERS_UNTIL_GROWN, self._answers_until_grown * 2)
        self._is_tried = False
        self.records = size - size // 2
        return True

    def answered(self, size: int, seconds: float) -> None:
        """Let parts grow again if one as large as they may be was answered in a part of the time."""
        self._timeouts = 0
        if self.records is None or size * 2 <= self.records:
            return  # a small part says nothing about large ones
        self._is_tried = False
        self._quick_answers = self._quick_answers + 1 if seconds <= self._quick_seconds else 0
        if self._quick_answers >= self._answers_until_grown:
            self._quick_answers = 0
            self._is_tried = True
            self.records *= 2
        if self.records > MOST_RECORDS:
            self.records = None
            self._answers_until_grown = ANSWERS_UNTIL_GROWN

    def is_too_large(self, size: int) -> bool:
        """Whether a part of so many records would not be answered in time."""
        return self.records is not None and size > self.records


def sensible(answer: object, size: int) -> Answer:
    """The answer itself if it makes sense for `size` records, else a Retry that says what is wrong with it."""
    if isinstance(answer, Retry):
        reason = str(answer.reason)[:MAX_REASON_LETTERS]
        return Retry(reason, asked_delay(answer.after_seconds), timed_out=bool(answer.timed_out))
    if isinstance(answer, Poisoned):
        return Poisoned(str(answer.reason)[:MAX_REASON_LETTERS])
    if isinstance(answer, Delivered):
        return answer if _is_count(answer.filtered, size) else _nonsense(f"filtered={answer.filtered!r}", size)
    if not isinstance(answer, Rejected):
        return Retry(f"the sink answered {type(answer).__name__} instead of an Answer")
    if not isinstance(answer.items, Mapping) or not all(_is_count(index, size - 1) for index in answer.items):
        return _nonsense("rejected indexes that are out of range", size)
    if not _is_count(answer.filtered, size - len(answer.items)):
        return _nonsense(f"filtered={answer.filtered!r} beside {len(answer.items)} rejected", size)
    items = {index: str(reason)[:MAX_REASON_LETTERS] for index, reason in sorted(answer.items.items())}
    if not isinstance(answer.parts, Mapping) or not all(isinstance(part, Record) for part in answer.parts.values()):
        return _nonsense("refused parts that are no records", size)
    return Rejected(items, answer.filtered, answer.parts)


def _is_count(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _nonsense(what: str, size: int) -> Retry:
    return Retry(f"the sink's answer to {size} records makes no sense: {what}")


T = TypeVar("T")
logger = logging.getLogger("lens.delivery")

# The time that cancelled code has to clean up.
CANCEL_GRACE_SECONDS = 5.0


class NoAnswer(Exception):
    """The other side did not answer within its time, or gave up by itself."""


class TimedOut(NoAnswer):
    """The other side did not answer within its time."""


async def answer_within(seconds: float, asked: Coroutine[Any, Any, T], halt: asyncio.Event, whose: str = "a sink") -> T:
    """Return or raise the result of `asked`. After `seconds`, or when `halt` is set, it is cancelled.

    Raises NoAnswer when it ends without an answer because of that, or gives up by itself.
    """
    task = asyncio.ensure_future(asked)
    halted = asyncio.ensure_future(halt.wait())
    try:
        await asyncio.wait({task, halted}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        await _end_task(task, whose)
        raise
    finally:
        halted.cancel()
    by_itself = task.done()
    if not by_itself:
        await _end_task(task, whose)
    if task.done() and not task.cancelled():
        return task.result()
    if by_itself:
        raise NoAnswer("it gave up by itself")
    if halt.is_set():
        raise NoAnswer("stopped before it answered")
    raise TimedOut(f"no answer within {seconds:g} s")


async def _end_task(task: asyncio.Task[Any], whose: str) -> None:
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=CANCEL_GRACE_SECONDS)
    if not done:
        logger.error("%s ignores the cancellation of send; abandoning the call", whose)
    elif not task.cancelled():
        task.exception()  # it is looked at, so that asyncio does not complain that nobody has


async def is_set_within(seconds: float, event: asyncio.Event) -> bool:
    """Wait for an event, at most so long; whether it is set."""
    if not event.is_set():
        waiting = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({waiting}, timeout=seconds)
        finally:
            waiting.cancel()
    return event.is_set()
