"""Where the nodes of a job meet before they train: they join, wait until enough are there, and are given the world.

The world is the rank and the number of processes of each node. A node that joins again (its processes have failed)
dissolves it: the others hear that somebody waits, stop their processes and join too. Rules as in DLRover 0.6, but that
no world is smaller than the least that was asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec

from ..base.errors import LensError

MAX_NODES = 65_536


class NoRoom(LensError):
    """More than a job may keep here."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """How many nodes a world has: at once when all `max_nodes` wait; `min_nodes` after some time, in whole units."""

    min_nodes: int
    max_nodes: int
    waiting_seconds: float = 0.0
    unit: int = 1


class Rendezvous:
    """One meeting point of one job. `clock` in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._terms: Terms | None = None
        self._waiting: dict[int, int] = {}
        self._world: dict[int, int] = {}
        self._latest: frozenset[int] = frozenset()
        self._round = 0
        self._last_join = 0.0

    def agree(self, terms: Terms) -> None:
        """Take the first node's terms; all nodes of a job say the same."""
        if self._terms is None and 0 < terms.min_nodes <= terms.max_nodes and terms.unit > 0:
            self._terms = terms

    def join(self, rank: int, processes: int) -> int:
        """A node waits for a world; the number of the round so far. Raises NoRoom."""
        if rank in self._waiting:
            return self._round
        if len(self._waiting) >= MAX_NODES:
            raise NoRoom(f"more than {MAX_NODES} nodes wait")
        self._waiting[rank] = processes
        self._world = {}
        self._last_join = self._clock()
        return self._round

    def world(self) -> tuple[int, Mapping[int, int]]:
        """The round and its world, in the order of ranks; empty while too few nodes wait."""
        if not self._world:
            self._gather()
        return self._round, self._world

    @property
    def waiting(self) -> int:
        """For how many nodes the others should meet again; a new one alone does not make up a unit."""
        unit = self._terms.unit if self._terms is not None else 1
        has_come_back = not self._latest.isdisjoint(self._waiting)
        return len(self._waiting) if has_come_back or len(self._waiting) >= unit else 0

    def _gather(self) -> None:
        size = self._size_of_world()
        if not size:
            return
        ranks = sorted(self._waiting)[:size]
        self._world = {rank: self._waiting.pop(rank) for rank in ranks}
        self._latest = frozenset(ranks)
        self._round += 1

    def _size_of_world(self) -> int:
        terms, count = self._terms, len(self._waiting)
        if terms is None or count < terms.min_nodes:
            return 0
        if count >= terms.max_nodes:
            return terms.max_nodes
        whole = count // terms.unit * terms.unit
        has_waited = self._clock() - self._last_join >= terms.waiting_seconds
        return whole if has_waited and whole >= terms.min_nodes else 0
