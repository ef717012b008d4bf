"""Errors of a ClickHouse that the store retries after, in words."""

from __future__ import annotations

import re

from lens_core.plugin_api.urls import hide

from ..address import NotReady

_MESSAGE_CHARACTERS = 300
_REFUSAL = re.compile(r"Code: (\d+)\.\s*DB::Exception: (.*?)\s*(?:\(version [^)]*\)+\s*)?(?:\(for url [^)]*\)\s*)?$")
_MISSING_RIGHTS = "let the user of `points` create tables in the database, read, insert, delete and drop partitions"
# By the number that ClickHouse gives an error, which is the same in all of its versions.
_REMEDIES = {
    81: "create the database, or give `points` the name of the right one",
    164: _MISSING_RIGHTS,
    242: "its tables are read-only: see system.replicas, and whether Keeper answers",
    243: "its disk is full: free some space, or have retention remove more",
    252: "its merges do not keep up: see system.merges, and whether its disk is full or slow",
    497: _MISSING_RIGHTS,
    516: "give `points` the right user and password",
}


class PointsAway(NotReady):
    """ClickHouse is not there now, or refused; the text says why."""


class ForeignPoints(PointsAway):
    """The ClickHouse at the address is not the one that has the points of this store; the text says how to fix that."""


def describe_failure(error: BaseException, place: str) -> str:
    """One line about what a client raised: what ClickHouse itself says and how to fix it, without secrets."""
    text = " ".join(line.strip() for line in str(error).splitlines() if line.strip())
    refused = _REFUSAL.search(text)
    if refused is None:
        said = f"{type(error).__name__}: {text[:_MESSAGE_CHARACTERS]}" if text else type(error).__name__
        return hide(f"ClickHouse is not available at {place}: {said}")
    remedy = _REMEDIES.get(int(refused[1]))
    said = f"Code {refused[1]}: {refused[2][:_MESSAGE_CHARACTERS].rstrip('.')}"
    return hide(f"ClickHouse at {place} refused: {said}" + (f". To fix it, {remedy}" if remedy else ""))
