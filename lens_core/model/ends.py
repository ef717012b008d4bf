"""Merging of the events by which several reporters tell of one end: hook, log reader, `lens run`, a scheduler."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from .event_types import START_EVENTS
from .queries import EventRow

# Only reports of one type are merged: a failure is told even if a launcher ends with 0.
MERGED_TYPES = frozenset({"training_ended", "training_failed"})
# A launcher, a scheduler and the flush of a hook tell of an end within this time of each other.
SAME_END_MS = 60_000
_SIGNALLED = 128


def merge_ends(events: Iterable[EventRow]) -> list[EventRow]:
    """The events, newest first, with those that tell of one failure or end as one event, in the place of the earliest.

    Two are of one end if no attempt begins between them and neither names another rank, pod or run.
    """
    found: list[EventRow] = []
    ends: list[int] = []  # places in `found` of ends that an earlier report may belong to
    for event in events:
        if event.type in START_EVENTS:
            ends.clear()
        elif event.type in MERGED_TYPES:
            ends = [place for place in ends if found[place].timestamp - event.timestamp <= SAME_END_MS]
            twin = next((place for place in ends if _is_same(found[place], event)), None)
            if twin is not None:
                event = _merge(found[twin], event)
                del found[twin]
                ends = [place - (place > twin) for place in ends if place != twin]
            ends.append(len(found))
        found.append(event)
    return found


def _is_same(first: EventRow, second: EventRow) -> bool:
    if first.type != second.type:
        return False
    places = ((first.rank, second.rank), (first.pod_name, second.pod_name), (first.run_id, second.run_id))
    known = [(one, other) for one, other in places if one not in (None, "") and other not in (None, "")]
    if not all(one == other for one, other in known):
        return False
    # The launcher of a process that failed may end with a code of its own; two processes of one place are two failures.
    codes = (_exit_code(first), _exit_code(second))
    return None in codes or codes[0] == codes[1] or (first.rank is None) != (second.rank is None)


def _exit_code(event: EventRow) -> Any:
    """The exit code as a shell has it: some reporters give a signal as a negative number."""
    code = event.details.get("exit_code")
    return _SIGNALLED - code if isinstance(code, int) and code < 0 else code


def _merge(later: EventRow, earlier: EventRow) -> EventRow:
    """The earlier event with what the later one knows besides; the one that knows more has the last word."""
    poorer, richer = sorted((later, earlier), key=_knowledge)
    details = {**poorer.details, **richer.details}
    reason = max((str(event.details.get("reason") or "") for event in (poorer, richer)), key=_says_why)
    if reason:
        details["reason"] = reason
    changes: dict[str, Any] = {"details": details, "data_source": richer.data_source}
    for name in ("iteration", "run_id", "attempt", "rank", "pod_name", "node"):
        value = getattr(richer, name)
        changes[name] = getattr(poorer, name) if value in (None, "") else value
    return msgspec.structs.replace(earlier, **changes)


def _knowledge(event: EventRow) -> tuple[bool, bool, bool, int]:
    details = event.details
    return "exception" in details, event.rank is not None, "exit_code" in details, len(details)


def _says_why(reason: str) -> tuple[bool, int]:
    """An exception's words say more than `exit code 1` does, and the whole text more than a part of it."""
    says_nothing = not reason or reason.startswith(("exit code", "killed by", "sys.exit("))
    return not says_nothing, len(reason)
