"""Text around the message of a line: terminal colours, and the prefixes of launchers, ranks, loggers and containers."""

from __future__ import annotations

import re
from calendar import timegm
from datetime import datetime, timezone
from time import mktime

import msgspec

# The source of a LogLine that is a part of a line, the rest of which comes in the next.
PARTIAL = "log_partial"
MAX_JOINED_CHARACTERS = 1 << 20

_ENVELOPE_KEYS = ("log", "message", "msg")
_COUNTERS_OF_ENTRIES = frozenset(["step", "global_step", "iteration", "iter", "epoch"])
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
# Some pipelines drop the ESC byte and leave the rest. Only where a reset is left too, and never a duration: [5m 3s].
_RESIDUE = re.compile(r"\[\d{1,3}(?:;\d{1,3}){0,4}m(?!\s\d+s\b)")
_CRI = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) (stdout|stderr) ([FP]) ?")
# Prefixes of containers, launchers, ranks and Ray before each line of a process, one for each of them.
_LAUNCHERS = re.compile(
    r"(?:\d{4}-\d\d-\d\dT\S{1,40} (?:stdout|stderr) [FP] |\[(?:default|rank)\d+\]: ?|\[\d+,\d+\]<std(?:out|err)>: ?"
    # A number before two values is no host's, but the step of a loop that has no other name for it (Darknet).
    r"|\([^()]{0,80}\bpid=\d{1,10}[^()]{0,80}\) |"
    # docker-compose's service, and stern's pod with its container; what counts or evaluates something is none.
    r"(?!(?i:step|iter|epoch|batch|update|e?val|test))[A-Za-z][\w.-]{0,60}[_-]\d{1,5} (?: {0,40}\| {0,2}(?=\S)|"
    r"(?!step|iter|epoch|batch|update|e?val|test|loss|train)[a-z][a-z\d-]{1,40} (?=[A-Za-z]))|"
    r"(?:(?!(?i:epoch|step|iter|batch)[-_]\d)[\w.-]{0,80}\d|stderr|stdout): (?![-\d.na]{1,24}, [-\d.na]{1,24} avg)|"
    r"(?:DEBUG|INFO|WARNING|ERROR):(?:root|__main__):)+"
)
_REPEATED = re.compile(r" ?\[repeated \d+x across cluster\][^\r\n]{0,200}$")
_RANK = re.compile(
    r"\[rank[- ]?(\d+)(?:/\d+)?\]|\[(?:PG [^\]]{1,80} )?Rank (\d+)\]|\[RANK:(\d+)\]|^\[\d+,(\d+)\]<std(?:out|err)>:"
)
_LOCAL_RANK = re.compile(r"\[default(\d+)\]:")
_TASK = re.compile(r"^\s*(\d{1,5}): ")
_TIME = re.compile(
    r"(?<!\d)(\d{4})[-/]?(\d\d)[-/]?(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?(?!\d)"
)
# Whatever may precede a message and says nothing about it: brackets, process names, host names, dates, levels.
_PREFIXES = re.compile(
    r"\[[^\]]*\]|\([^)]*\)|\b(?=[\w./-]{0,60}?\d)[\w./-]{1,80}:|^\s*(?!(?i:valid\w*|val|eval\w*|test\w*|sanity):)[\w.-]+:(?=\s)|\b\d[\d:.,TZ/+-]*"
    r"|\b(?:DEBUG|INFO|WARNING|ERROR|WARN|stdout|stderr|root)\b:?|\b(?=[\w.]{1,60}?\.[\w.])[\w.]{1,80}:\d*"
)


def strip_colours(text: str) -> str:
    """The text without terminal control sequences, and without what is left of them when the ESC byte got lost."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    if "[0m" in text or "[39m" in text:
        text = _RESIDUE.sub("", text)
    return text


def split_container_prefix(text: str) -> tuple[str, float | None, bool]:
    """The text after a container runtime's prefix, the prefix's time and whether the line goes on in the next one.

    Format: CRI, `2026-05-18T16:04:46.339001234Z stderr F message`; `P` marks a part of a line.
    """
    match = _CRI.match(text)
    if match is None:
        return text, None, False
    return text[match.end() :], printed_time(match.group(1)), match.group(3) == "P"


def without_launchers(text: str) -> str:
    """The line as the process printed it: without what containers, launchers and Ray have put before it."""
    match = _LAUNCHERS.match(text)
    return text[match.end() :] if match is not None else text


def unwrap(text: str) -> str:
    """The message of a line that a viewer or Ray has decorated at its end."""
    return _REPEATED.sub("", text) if "[repeated " in text else text


def words_before(text: str) -> str:
    """Return the text before a match without everything that may be a prefix."""
    return _PREFIXES.sub(" ", text)


def printed_rank(text: str) -> int | None:
    """The rank that a line names in a prefix: `[rank0]`, `[PG 0 Rank 3]`, srun's `0: `, mpirun's `[1,0]<stdout>:`."""
    match = _RANK.search(text, 0, 200)
    if match is not None:
        return int(next(group for group in match.groups() if group is not None))
    task = _TASK.match(text)
    return int(task.group(1)) if task is not None else None


def printed_local_rank(text: str) -> int | None:
    """The local rank that torchrun's `[default3]:` names."""
    match = _LOCAL_RANK.search(text, 0, 200)
    return int(match.group(1)) if match is not None else None


def printed_time(text: str, *, local: bool = False) -> float | None:
    """The first full date and time on a line, as seconds since the epoch.

    Where no zone is printed it is UTC, or with `local` this machine's own zone (its own files).
    """
    match = _TIME.search(text, 0, 200)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    try:
        datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone.utc)
    except ValueError:
        return None
    zone = match.group(8)
    moment = (year, month, day, hour, minute, second, 0, 0, -1)
    seconds = float(timegm(moment) if zone or not local else mktime(moment))
    if match.group(7):
        seconds += float(f"0.{match.group(7)}")
    if zone and zone != "Z":
        offset = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        seconds += offset if zone[0] == "-" else -offset
    return seconds


def open_envelope(text: str) -> str:
    """The message inside a JSON envelope (`{"log": "...", "stream": "stdout"}`), or the text itself."""
    try:
        body = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return text
    if not isinstance(body, dict):
        return text
    message = next((body[key] for key in _ENVELOPE_KEYS if isinstance(body.get(key), str)), None)
    if message is not None and not _COUNTERS_OF_ENTRIES.isdisjoint(body) and not any(map(str.isdigit, message)):
        return text  # the entry of a structured log, whose numbers are beside its message
    return message.rstrip("\n") if message is not None else text
