"""Meaning of PostgreSQL's errors for a batch and for a query. No text ever holds the connection string."""

from __future__ import annotations

import psycopg

from lens_core import Answer, Poisoned, Retry

# Classes of SQLSTATE that say something about the data, so that the same batch fails again (PostgreSQL's appendix A).
_DATA_CLASSES = frozenset({"22", "23", "54"})
DATA_ERRORS = (ValueError, TypeError, OverflowError, RecursionError)
_NOT_DATA = frozenset({"23503"})  # a stream was removed in the meantime: the next try makes it again


def answer_for(error: BaseException) -> Answer:
    """Poisoned where the data is at fault, Retry for all else: connections, locks, full disks, wrong rights.

    Python's own errors come from encoding a record (too deep, a key that JSON does not have).
    """
    if isinstance(error, (psycopg.DataError, *DATA_ERRORS)):
        return Poisoned(describe_error(error))
    state = getattr(error, "sqlstate", None) or ""
    if state[:2] in _DATA_CLASSES and state not in _NOT_DATA:
        return Poisoned(describe_error(error))
    return Retry(describe_error(error), timed_out=isinstance(error, psycopg.errors.QueryCanceled))


def describe_error(error: BaseException) -> str:
    """One line about an error: the server's own message, without the row that it quotes in its detail."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    lines = [line.strip() for line in (primary or str(error)).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


class StreamsGone(Exception):
    """Streams that were cached exist no more: somebody removed them."""
