"""Errors of a ClickHouse that the store retries after."""

from __future__ import annotations

from ..address import NotReady


class PointsAway(NotReady):
    """ClickHouse is not there now, or refused; the text says why."""


class ForeignPoints(PointsAway):
    """The ClickHouse at the address is not the one that has the points of this store; the text says how to fix that."""
