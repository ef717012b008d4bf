"""Assignment of lines to the attempts of a job.

Steps that go backwards are a restart only if the line is later than everything before it in its stream; older lines
(late, sent twice) go to the attempt into whose time they fall. Other ranks join the newest attempt.
"""

from __future__ import annotations

from ...model.event_types import END_EVENTS
from .stream_memory import Attempt, Job, Stream

MAX_ATTEMPTS = 64
# Clocks of nodes differ by so much.
SKEW_SECONDS = 1.0
# The ranks of an attempt begin within such a time, also after the first one's failure; a new process takes longer.
_RESTART_SECONDS = 5.0


def begin_attempt(job: Job, moment: float) -> int | None:
    """A start marker: opens the first attempt, or the next one if this one has steps already or has ended.

    Every rank prints the marker; those that come late, or again, open nothing: None.
    """
    if not job.attempts:
        return _open_attempt(job, moment)
    newest = job.attempts[-1]
    if not newest.has_steps and not _had_ended(job, newest.number, moment):
        return None
    if job.last_step_time is not None and moment <= job.last_step_time + SKEW_SECONDS:
        return None
    return _open_attempt(job, moment)


def _had_ended(job: Job, attempt: int, moment: float) -> bool:
    """Whether somebody told of the end of an attempt before a moment."""
    ends = [job.events.get(f"{kind}/{attempt}") for kind in END_EVENTS]
    return any(end is not None and moment > end + _RESTART_SECONDS for end in ends)


def has_steps_under_way(job: Job) -> bool:
    """Whether the newest attempt has steps and no end."""
    return job.is_running and bool(job.attempts) and job.attempts[-1].has_steps


def of_step(job: Job, stream: Stream, counter: str, step: int, moment: float) -> int:
    """The attempt of a step, opened if it begins one. `counter` names what counts the steps (a format)."""
    if not job.attempts:
        _open_attempt(job, moment)
    newest = job.attempts[-1]
    is_new = stream.latest is None or moment > stream.latest
    if not is_new:
        return of_time(job, moment)
    last = stream.last.get(counter)
    if stream.attempt == newest.number and last is not None and step < last:
        newest_number = _open_attempt(job, moment)
        _join_attempt(stream, newest_number)
    elif stream.attempt != newest.number:
        if moment < newest.started - SKEW_SECONDS:
            return of_time(job, moment)
        _join_attempt(stream, newest.number)
    job.attempts[-1].has_steps = True
    return job.attempts[-1].number


def of_time(job: Job, moment: float) -> int:
    """The attempt into whose time a moment falls; the first one for what is before them all."""
    for attempt in reversed(job.attempts):
        if attempt.started <= moment:
            return attempt.number
    return job.attempts[0].number if job.attempts else 1


def is_of_newest(job: Job, moment: float | None) -> bool:
    """Whether a moment falls into the newest attempt, as far as anybody knows."""
    return moment is None or not job.attempts or moment >= job.attempts[-1].started - SKEW_SECONDS


def _open_attempt(job: Job, moment: float) -> int:
    number = job.attempts[-1].number + 1 if job.attempts else 1
    job.attempts.append(Attempt(number, moment))
    del job.attempts[:-MAX_ATTEMPTS]
    job.is_stalled = job.is_not_finite = job.is_evaluating = False
    job.saving = None
    return number


def _join_attempt(stream: Stream, number: int) -> None:
    """Begin a stream's counting anew in this attempt."""
    stream.attempt = number
    stream.last.clear()
    stream.ordinal = 0
    stream.last_row = None
