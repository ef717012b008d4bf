"""Failures of ranks, read out of the events that tell of them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from ..model.event_types import END_EVENTS, FAILURE_EVENTS, START_EVENTS
from ..model.queries import EventRow
from .failure_shapes import failures_of
from .failures import RankFailure

# Behind these, older failures are those of an attempt that is over.
_SETTLED = START_EVENTS | (END_EVENTS - set(FAILURE_EVENTS))
_INTEGER = re.compile(r"-?[0-9]{1,9}")
_WORDS = {"out_of_memory": "CUDA out of memory", "collective_timeout": "Watchdog caught collective operation timeout"}


def failures_since_start(events: Sequence[EventRow]) -> tuple[list[tuple[RankFailure, EventRow]], int]:
    """The failures of the newest attempt, each with its event, and how often the job was restarted; newest first."""
    found: list[tuple[RankFailure, EventRow]] = []
    reported = 0
    for event in events:
        if event.type in _SETTLED:
            break
        if event.type in FAILURE_EVENTS:
            found += [(failure, event) for failure in _failures(event)]
            reported = max(reported, _whole_number(event.details.get("restart_count")) or 0)
    return found, max(reported, sum(event.type == "resumed" for event in events))


def _failures(event: EventRow) -> list[RankFailure]:
    """The failures that an event tells: one, or those of all ranks in DLRover's JSON."""
    reason = event.details.get("reason")
    if isinstance(reason, str) and reason.lstrip().startswith("{"):
        told = failures_of(reason)
        if told and any(failure.message or failure.exit_code is not None for failure in told):
            at = event.timestamp / 1000
            return [
                msgspec.structs.replace(
                    failure,
                    rank=event.rank if failure.rank is None else failure.rank,
                    at=at if failure.at is None else failure.at,
                )
                for failure in told
            ]
    return [_failure(event)]


def _failure(event: EventRow) -> RankFailure:
    details = event.details
    message = str(details.get("reason") or details.get("signal") or details.get("line") or _WORDS.get(event.type, ""))
    xid = details.get("xid")
    if isinstance(xid, int | float):  # the number of a device's error tells its meaning
        message = f"Xid {xid:g}, {message}"
    number = _whole_number(details.get("exit_code"))
    return RankFailure(rank=event.rank, message=message, exit_code=number, at=event.timestamp / 1000)


def _whole_number(value: object) -> int | None:
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53:
        return int(value)
    return int(value) if isinstance(value, str) and _INTEGER.fullmatch(value) else None
