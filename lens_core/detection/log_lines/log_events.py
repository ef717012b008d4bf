"""Events of a job: once, however many ranks print them, with what is known from lines before."""

from __future__ import annotations

import zlib
from typing import Any

from ...model.event_types import END_EVENTS, GOAL_EVENTS, STATE_EVENTS
from ...model.records import Event
from . import attempts
from .readings import LogEvent
from .stream_memory import Job

_ONE_SECONDS = 300.0
# The same words from other ranks come within this time.
_SAME_SECONDS = 30.0
_MAX_REMEMBERED = 128


def is_news(job: Job, log_event: LogEvent, attempt: int, stream: str, moment: float) -> bool:
    """Whether this was not reported yet; remembers it."""
    key = _key(log_event, attempt)
    before = job.events.get(key)
    own = f"{key}@{stream}"
    window = _ONE_SECONDS if log_event.type in STATE_EVENTS else _SAME_SECONDS
    if before is not None and _is_repeat(job, log_event, before, own, moment, window):
        return False
    job.events[key] = moment
    job.events[own] = moment
    while len(job.events) > _MAX_REMEMBERED:
        del job.events[next(iter(job.events))]
    return True


def remember_told(job: Job, event: Event) -> None:
    """Remember an end that another reporter told of: lines that tell of the same one are no news."""
    if event.event_time is not None:
        job.events[f"{event.type}/{attempts.of_time(job, event.event_time)}"] = event.event_time


def _is_repeat(job: Job, log_event: LogEvent, before: float, own: str, moment: float, window: float) -> bool:
    if log_event.iteration is not None and log_event.type not in STATE_EVENTS:
        return True
    if log_event.type in STATE_EVENTS:
        return moment - before <= window
    # One rank that says it again later means it again; at the same time it is the same line.
    mine = job.events.get(own)
    return moment <= mine if mine is not None else abs(moment - before) <= window


def _key(log_event: LogEvent, attempt: int) -> str:
    if log_event.type in STATE_EVENTS:
        return f"{log_event.type}/{attempt}"
    details = {name: value for name, value in sorted(log_event.details.items()) if name != "duration_seconds"}
    return f"{log_event.type}/{attempt}/{log_event.iteration}/{hash_of(details)}"


def hash_of(details: dict[str, Any]) -> str:
    """A short text that is the same for the same details, in every process."""
    return f"{zlib.crc32(repr(details).encode()):08x}"


def follow(job: Job, log_event: LogEvent, moment: float) -> LogEvent:
    """Apply an event to its job, and complete it from earlier events: a checkpoint's duration and path."""
    kind = log_event.type
    if kind in END_EVENTS:
        job.is_running = False
    elif kind == "evaluation":
        seconds = log_event.details.get("duration_seconds")
        job.is_evaluating = seconds is None  # with its duration it is over
        if isinstance(seconds, int | float):
            job.evaluation_seconds = max(job.evaluation_seconds, seconds)
    elif kind == "checkpoint_saving":
        job.saving = (log_event.iteration, moment, str(log_event.details.get("path", "")))
    elif kind in GOAL_EVENTS:
        for name in ("target_iteration", "total_epochs"):
            value = log_event.details.get(name)
            if isinstance(value, int | float):
                job.configured[name] = float(value)
    elif kind == "checkpoint_saved" and job.saving is not None:
        return _finish_saving(job, log_event, moment)
    return log_event


def _finish_saving(job: Job, log_event: LogEvent, moment: float) -> LogEvent:
    assert job.saving is not None
    iteration, began, path = job.saving
    if iteration is not None and log_event.iteration is not None and iteration != log_event.iteration:
        return log_event
    job.saving = None
    details = dict(log_event.details)
    if moment >= began:
        details.setdefault("duration_seconds", round(moment - began, 6))
    if path:
        details.setdefault("path", path)
    number = log_event.iteration if log_event.iteration is not None else iteration
    return LogEvent(log_event.type, log_event.framework, number, log_event.attempt, details)
